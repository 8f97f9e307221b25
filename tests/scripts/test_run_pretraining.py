"""run_pretraining.py from the shell, on the goldens' records."""

import json
import random
import re
import shutil
import signal

import huggingface_hub
import mistakes
import numpy as np
import pytest
import scripts
import tensorflow as tf
import tiny_task

import tokenization
from bert.data import instances
from bert.models import checkpoints
from bert.training import summaries

WEIGHTS = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")
RESULTS = {
  "global_step",
  "loss",
  "masked_lm_accuracy",
  "masked_lm_loss",
  "next_sentence_accuracy",
  "next_sentence_loss",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with model/ as a release has it, and files of records."""
  folder = tmp_path_factory.mktemp("files")
  tiny_task.make_files(folder, goldens)
  for path in (goldens / "pretraining_data").glob("*.tfrecord"):
    shutil.copy(path, folder)
  _write_records(folder / "unmasked.tfrecord", goldens, 64, 0)
  _write_records(folder / "single.tfrecord", goldens, 64, 10, False)
  _write_records(folder / "long.tfrecord", goldens, 96, 12)
  return folder


def _write_records(path, goldens, length, predictions, has_next=True):
  """Records of the goldens' corpus."""
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  made = instances.create_training_instances(
    [str(goldens / "corpus.txt")],
    tokenizer,
    length,
    1,
    0.1,
    0.15,
    predictions,
    random.Random(1),
    next_sentence_prediction=has_next,
  )
  instances.write_instance_to_example_files(
    made, tokenizer, length, predictions, [str(path)]
  )


def _flags(files, output_dir, **changes):
  """A command for the goldens' records, as changed; None leaves a flag out."""
  values = {
    **dict.fromkeys(("task_name", "data_dir", "vocab_file")),
    "input_file": files / "default.tfrecord",
    "max_seq_length": 64,
    "max_predictions_per_seq": 10,
    "num_train_epochs": None,
    "num_train_steps": 12,
    "num_warmup_steps": 2,
    "save_checkpoints_steps": 4,
    **changes,
  }
  return tiny_task.flags(files, output_dir, **values)


def _fork(files, out, *actions, status=0, **changes):
  """Runs the command; returns its log."""
  command = [*_flags(files, out, **changes), *actions]
  return scripts.fork("run_pretraining.py", *command, status=status)[1]


@pytest.fixture(scope="module")
def trained(files):
  """What a training leaves, and its log."""
  out = files / "trained"
  changes = {
    "vocab_file": files / "model" / "vocab.txt",
    "eval_input_file": f"{files}/two-?.tfrecord",
    "eval_steps": 6,
    "log_steps": 3,
  }
  return out, _fork(files, out, "--do_train=True", "--do_eval=True", **changes)


def test_evaluation_is_the_originals(files, goldens, tmp_path):
  out = tmp_path / "out"
  changes = {"eval_batch_size": 8, "max_eval_steps": 20}
  changes["bert_config_file"] = files / "two_layers.json"
  log = _fork(files, out, "--do_eval", **changes)
  # Nothing was trained, so there is nothing to continue or to describe.
  assert not checkpoints.training_checkpoints(str(out))
  assert not (out / "README.md").exists()
  shutil.copy(
    goldens / "pretraining_eval_results.txt", tmp_path / "eval_results.txt"
  )
  expected = tiny_task.results(tmp_path)
  assert expected.keys() == RESULTS
  assert tiny_task.results(out) == pytest.approx(expected, rel=1e-5)
  assert "Checked 447 records in 1 file" in log
  assert "--eval_input_file" not in log  # Nothing was trained on the records.


def test_the_log_tells_what_happens(trained):
  folder, output = trained
  assert "Training for 12 steps of 8 rows, 0.215 epochs of 447 rows" in output
  shapes = checkpoints.Checkpoint(str(folder / "bert_model.ckpt")).shapes
  shapes.pop("global_step")
  count = sum(map(np.prod, shapes.values()))
  assert f"{int(count):,} parameters" in output
  assert "loaded 30 variables; 0 initialized" in output
  for step in (3, 6, 9, 12):
    line = next(x for x in output.splitlines() if f"step {step}/12" in x)
    for name in ("loss", "learning rate", "gradient norm", "examples/s"):
      assert name in line
    assert "masked LM accuracy" in line
    assert "next sentence accuracy" in line
  assert "Traceback" not in output


def test_the_loss_falls_and_its_curves_are_kept(trained):
  folder, _ = trained
  results = tiny_task.results(folder)
  assert results.keys() == RESULTS
  assert results["global_step"] == 12
  # log(1001) = 6.9 for no knowledge; the golden model knows less than nothing.
  assert results["masked_lm_loss"] < 6.6
  curves = summaries.read_scalars(folder)
  assert [step for step, _ in curves["loss"]] == [3, 4, 6, 8, 9, 12]
  assert curves["loss"][0][1] > curves["loss"][-1][1] + 0.5
  assert {"masked_LM_accuracy", "gradient_norm"} <= curves.keys()
  curve = curves["dev/masked_lm_loss"]
  assert [step for step, _ in curve] == [6, 12]
  assert curve[1][1] == pytest.approx(results["masked_lm_loss"], rel=1e-6)


def test_the_card_of_the_model_holds_and_its_code_runs(
  trained, files, monkeypatch, capsys
):
  folder, _ = trained
  card = huggingface_hub.ModelCard.load(folder / "README.md")
  assert card.data.pipeline_tag == "fill-mask"
  results = tiny_task.results(folder)
  assert {r.metric_type: r.metric_value for r in card.data.eval_results} == {
    name: pytest.approx(results[name], rel=1e-6)
    for name in ("masked_lm_accuracy", "next_sentence_accuracy")
  }
  record = json.loads((folder / "flags.json").read_text())
  sources = {"train": "default.tfrecord", "dev": "two-?.tfrecord"}
  for name, pattern in sources.items():
    paths = list(map(str, files.glob(pattern)))
    count = sum(1 for _ in tf.data.TFRecordDataset(paths))
    digest = record["data"][name]
    assert f"| {name} | {count} | `{digest}` |" in card.text
  monkeypatch.chdir(folder.parent)
  (code,) = re.findall("```python\n(.*?)```", card.text, re.S)
  exec(code, {})
  assert "[MASK]" in code
  assert "masks" in capsys.readouterr().out


def test_a_student_that_was_stopped_ends_in_the_same_bytes(
  files, goldens, tmp_path
):
  """With masks that change, so that the teacher computes in each step.

  The student is narrower, so that it learns a projection to the teacher's size.
  """
  teacher = tmp_path / "teacher"
  shutil.copytree(goldens / "model", teacher)  # Two layers.
  shutil.copy(goldens / "vocab.txt", teacher)
  config = json.loads((files / "model" / "bert_config.json").read_text())
  narrow = tmp_path / "narrow.json"
  narrow.write_text(json.dumps({**config, "hidden_size": 16}))
  whole, out = tmp_path / "whole", tmp_path / "stopped"
  changes = {
    "bert_config_file": narrow,
    "init_checkpoint": None,
    "input_file": files / "unmasked.tfrecord",
    "vocab_file": files / "model" / "vocab.txt",
    "dynamic_masking": True,
    "do_whole_word_mask": True,
    "save_checkpoints_steps": 1,
    "teacher": teacher,
    "distill_layers": "0:1",
    "distill_targets": "hidden,attention,relations",
  }
  _fork(files, whole, "--do_train", **changes)
  command = ["run_pretraining.py", *_flags(files, out, **changes), "--do_train"]
  log = scripts.kill_when(
    out / "model.ckpt-2.index", *command, number=signal.SIGINT
  )
  assert log.endswith("in --output_dir, if there is one.\n")
  assert re.search(r"Stopped at step \d+ of 12: Ctrl-C", log)
  log = _fork(files, out, "--do_train", **changes)
  assert "Continuing from" in log
  for name in WEIGHTS:
    assert (whole / name).read_bytes() == (out / name).read_bytes()
  training, released = (
    [name for name, _ in tf.train.list_variables(f"{out}/{prefix}")]
    for prefix in ("model.ckpt-12", "bert_model.ckpt")
  )
  assert "distillation/projection" in training
  assert "distillation/projection" not in released
  assert all("layer_1" not in name for name in released)
  record = json.loads((whole / "flags.json").read_text())
  assert len(record["data"]["teacher"]) == 64


def test_from_nothing_without_next_sentences(files, tmp_path):
  shutil.copy(files / "single.tfrecord", files / "single-1.tfrecord")
  changes = {
    "input_file": f"{files}/single.tfrecord,{files}/single-1.tfrecord",
    "init_checkpoint": None,
    "num_train_steps": 2,
    "num_warmup_steps": 2,
  }
  log = _fork(files, tmp_path, "--do_train", "--do_eval", **changes)
  assert "all weights are random" in log
  assert "records in 2 files" in log
  assert not (tmp_path / "vocab.txt").exists()
  # A uniform guess among 1,001 words.
  _, loss = summaries.read_scalars(tmp_path)["loss"][0]
  assert loss == pytest.approx(np.log(1001), abs=0.5)
  assert "next sentence" not in log
  assert "Evaluating on the training records; pass others" in log
  assert tiny_task.results(tmp_path).keys() == {
    name for name in RESULTS if not name.startswith("next")
  }
  released = checkpoints.Checkpoint(str(tmp_path / "bert_model.ckpt"))
  assert "cls/predictions/output_bias" in released
  assert "cls/seq_relationship/output_bias" not in released


def test_layers_are_frozen_and_have_rates_of_their_own(files, tmp_path):
  changes = {
    "bert_config_file": files / "two_layers.json",
    "freeze_layers": 0,
    "layerwise_lr_decay": 0.25,
    "num_train_steps": 1,
    "num_warmup_steps": 0,
  }
  _fork(files, tmp_path, "--do_train", **changes)
  folders = files / "model", tmp_path
  found = tiny_task.largest_changes(
    *(checkpoints.Checkpoint(f"{f}/bert_model.ckpt") for f in folders)
  )
  assert found == pytest.approx(
    {
      "embeddings": 0,
      "layer_0": 3.1623e-3 / 16,
      "layer_1": 3.1623e-3 / 4,
      "head": 3.1623e-3,
    },
    rel=0.02,
  )


def test_other_records_in_output_dir_are_an_error(trained, files):
  folder, _ = trained
  before = scripts.tree(folder)
  changes = {"input_file": files / "whole_word.tfrecord"}
  log = _fork(files, folder, "--do_train", status=2, **changes)
  assert f"--output_dir={folder} holds a training on other examples" in log
  assert scripts.tree(folder) == before


MISTAKES = """
--do_train=
  nothing to do ... --do_eval
--input_file=
  --input_file is required
--input_file=/dev/null
  --input_file=/dev/null ... is a pipe or a device, which cannot be read
--input_file=FILES/*.record,FILES/default.tfrecord
  no file matches FILES/*.record ... patterns
--eval_input_file=FILES/*.dev --do_eval
  --eval_input_file=FILES/*.dev: no file matches
--num_warmup_steps=13
  --num_warmup_steps=13 ... --num_train_steps=12 ... lower
--max_seq_length=128 --input_file=FILES/empty.tfrecord,FILES/default.tfrecord
  =128, but FILES/default.tfrecord was made for --max_seq_length=64; pass that
--max_predictions_per_seq=20
  =20, but FILES/default.tfrecord was made ... _per_seq=10; pass that
--input_file=FILES/unmasked.tfrecord
  FILES/unmasked.tfrecord are not masked; pass --dynamic_masking=True
--do_whole_word_mask
  --do_whole_word_mask=True ... create_pretraining_data.py ... --dynamic_masking
--dynamic_masking --vocab_file=FILES/model/vocab.txt
  default.tfrecord are masked already; pass --dynamic_masking=False
--dynamic_masking --input_file=FILES/unmasked.tfrecord
  --vocab_file is required
--dynamic_masking --input_file=FILES/unmasked.tfrecord --vocab_file=SMALL
  FILES/unmasked.tfrecord: record 0 ... not from ... --vocab_file
--input_file=FILES/default.tfrecord,FILES/single.tfrecord
  FILES/default.tfrecord has ... FILES/single.tfrecord has ... without next sent
--input_file=FILES/default.tfrecord,FILES/unmasked.tfrecord
  10 of them masked ... FILES/unmasked.tfrecord has ... 0 of them masked
--eval_input_file=FILES/long.tfrecord --eval_steps=3
  64 positions ... FILES/long.tfrecord has 96 positions
--input_file=FILES/truncated.tfrecord
  FILES/truncated.tfrecord: record ... cut off
--input_file=FILES/empty.tfrecord
  FILES/empty.tfrecord: record 0 has no input_ids, but nothing
--input_file=FILES/model/vocab.txt
  FILES/model/vocab.txt is not a TFRecord file
--bert_config_file=FILES/small.json --init_checkpoint=
  FILES/default.tfrecord: record ... not from 0 to 499
--do_train= --do_eval --init_checkpoint=
  no trained model in --output_dir= ... add --do_train
--do_train= --do_eval --init_checkpoint=FILES/bare.ckpt
  --init_checkpoint=FILES/bare.ckpt ... add --do_train
--vocab_file=FILES/large.txt
  FILES/large.txt has 1002 entries ... vocab_size=1001
--init_checkpoint=FILES/cased_L-2_H-32_A-2 --bert_config_file= --do_lower_case
  --do_lower_case=True ... cased_L-2_H-32_A-2 ... --do_lower_case=False
"""


@pytest.fixture(scope="module")
def bad_files(files):
  """The folder of files, with those that the errors are about."""
  good = (files / "default.tfrecord").read_bytes()
  (files / "truncated.tfrecord").write_bytes(good[:-100])
  (files / "empty.tfrecord").touch()
  config = json.loads((files / "model" / "bert_config.json").read_text())
  small = {**config, "vocab_size": 500}
  (files / "small.json").write_text(json.dumps(small))
  shutil.copytree(files / "model", files / "cased_L-2_H-32_A-2")
  words = (files / "model" / "vocab.txt").read_text().splitlines()
  tiny_task.write_lines(files / "small.txt", words[:100])
  tiny_task.write_lines(files / "large.txt", [*words, "onemore"])
  whole = checkpoints.Checkpoint(str(files / "model" / "bert_model.ckpt"))
  encoder = {name: whole[name] for name in whole.shapes if name[:4] == "bert"}
  checkpoints.write_checkpoint(str(files / "bare.ckpt"), encoder)
  return files


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(bad_files, mistake):
  good = [*_flags(bad_files, bad_files / "out"), "--do_train"]
  names = {"SMALL": bad_files / "small.txt", "FILES": bad_files}
  mistakes.check(mistake, "run_pretraining.py", bad_files, good, **names)
