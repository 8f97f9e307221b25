"""run_classifier.py from the shell, on tiny files."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scripts
import sentencepiece
import tensorflow as tf

import checkpoints

ROWS = {"train": 40, "dev": 11, "test": 7}


def _write_mrpc(folder, goldens):
  """MRPC's files with the first texts of the golden features."""
  folder.mkdir()
  examples = {name: [] for name in ROWS}
  with open(goldens / "mrpc_features.jsonl", encoding="utf-8") as reader:
    for line in reader:
      example = json.loads(line)
      examples[example["split"]].append(example)
  for name, count in ROWS.items():
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    lines += [
      "\t".join((e["label"], "1", "2", e["text_a"], e["text_b"]))
      for e in examples[name][:count]
    ]
    text = "\n".join(lines) + "\n"
    (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with data/, and model/ as an unzipped release has it."""
  folder = tmp_path_factory.mktemp("files")
  _write_mrpc(folder / "data", goldens)
  shutil.copytree(goldens / "model", folder / "model")
  shutil.copy(goldens / "vocab.txt", folder / "model")
  return folder


def _flags(files, out, **changes):
  flags = {
    "task_name": "MRPC",
    "data_dir": files / "data",
    "vocab_file": files / "model" / "vocab.txt",
    "bert_config_file": files / "model" / "bert_config.json",
    "init_checkpoint": files / "model" / "bert_model.ckpt",
    "max_seq_length": 48,
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_train_epochs": 2,
    "save_checkpoints_steps": 3,
    "output_dir": out,
    **changes,
  }
  return [f"--{k}={v}" for k, v in flags.items() if v is not None]


@pytest.fixture(scope="module")
def trained(files):
  """What the famous command leaves, and what it printed."""
  output_dir = files / "output"
  output = scripts.run(
    "run_classifier.py",
    *_flags(files, output_dir, log_steps=5, v=1),
    "--do_train=true",
    "--do_eval=true",
    "--do_predict=true",
  )
  return output_dir, output


def _eval_results(folder):
  lines = (folder / "eval_results.txt").read_text().splitlines()
  assert lines == sorted(lines)
  return {key: float(v) for key, v in (line.split(" = ") for line in lines)}


def test_the_log_tells_what_happens(trained):
  _, output = trained
  assert "39 variables loaded, 2 fresh by design, 7 ignored" in output
  assert "fresh: output_bias output_weights" in output
  assert "step 5/10: loss " in output
  assert "step 10/10: loss " in output
  assert "learning rate" in output
  assert "examples/s" in output
  assert "Traceback" not in output


def test_checkpoints_are_kept_as_asked(trained):
  folder, _ = trained
  steps = [p.rsplit("-")[-1] for p in checkpoints.training_checkpoints(folder)]
  assert steps == ["3", "6", "9", "10"]
  newest = checkpoints.Checkpoint(f"{folder}/model.ckpt-10")
  assert newest["global_step"] == 10
  assert "output_weights/adam_m" in newest
  assert not [name for name in os.listdir(folder) if "partial" in name]


def test_output_dir_is_a_release(trained, files):
  folder, _ = trained
  names = [
    name for name, _ in tf.train.list_variables(f"{folder}/bert_model.ckpt")
  ]
  weights = {
    n for n, _ in tf.train.list_variables(f"{files}/model/bert_model.ckpt")
  }
  weights = {n for n in weights if n.startswith("bert/")}
  assert set(names) == weights | {"output_weights", "output_bias"}
  for name in ("vocab.txt", "bert_config.json"):
    original = (files / "model" / name).read_text()
    written = (folder / name).read_text()
    if name.endswith("json"):
      original, written = json.loads(original), json.loads(written)
      assert written.pop("do_lower_case") is True
    assert original == written
  assert json.loads((folder / "labels.json").read_text()) == ["0", "1"]


def test_eval_results_have_the_references_keys(trained):
  results = _eval_results(trained[0])
  assert results.keys() == {"eval_accuracy", "eval_loss", "global_step", "loss"}
  assert results["global_step"] == 10
  assert results["loss"] == pytest.approx(results["eval_loss"], rel=1e-5)
  # A share of eleven rows.
  assert (results["eval_accuracy"] * 11) % 1 == pytest.approx(0, abs=1e-9)


def test_test_results_are_probabilities_row_by_row(trained):
  rows = np.loadtxt(trained[0] / "test_results.tsv", delimiter="\t")
  assert rows.shape == (ROWS["test"], 2)
  np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_trained_model_brings_its_head(trained, files, tmp_path, batch_size):
  folder, _ = trained
  scripts.run(
    "run_classifier.py",
    *_flags(
      files,
      tmp_path,
      init_checkpoint=folder,
      vocab_file=folder / "vocab.txt",
      bert_config_file=folder / "bert_config.json",
      eval_batch_size=batch_size,
      predict_batch_size=batch_size,
      pad_to_max_length=True,
    ),
    "--do_eval=true",
    "--do_predict=true",
  )
  ours, theirs = _eval_results(tmp_path), _eval_results(folder)
  assert ours["eval_accuracy"] == theirs["eval_accuracy"]
  assert ours["eval_loss"] == pytest.approx(theirs["eval_loss"], rel=1e-5)
  np.testing.assert_allclose(
    np.loadtxt(tmp_path / "test_results.tsv"),
    np.loadtxt(folder / "test_results.tsv"),
    rtol=1e-4,
  )


def test_nothing_left_to_train_is_said(trained, files):
  folder, _ = trained
  before = (folder / "bert_model.ckpt.data-00000-of-00001").read_bytes()
  output = scripts.run(
    "run_classifier.py", *_flags(files, folder), "--do_train=true"
  )
  assert f"Continuing from {folder}/model.ckpt-10" in output
  assert "Nothing left to train: 10 of 10 steps" in output
  after = (folder / "bert_model.ckpt.data-00000-of-00001").read_bytes()
  assert before == after


def test_killed_and_started_again_ends_in_the_same_bytes(
  trained, files, tmp_path
):
  command = _flags(files, tmp_path / "out", save_checkpoints_steps=1)
  continued = False
  for wanted in ("train.tf_record", "model.ckpt-2.index", "model.ckpt-5.index"):
    process = scripts.start("run_classifier.py", *command, "--do_train=true")
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / wanted).exists():
      assert time.monotonic() < deadline
      assert process.poll() is None, process.stdout.read()
      time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    continued = "Continuing from" in process.communicate()[0] or continued
    assert process.returncode == -signal.SIGKILL
  assert continued
  scripts.run("run_classifier.py", *command, "--do_train=true")
  for suffix in ("data-00000-of-00001", "index"):
    name = f"bert_model.ckpt.{suffix}"
    undisturbed = (trained[0] / name).read_bytes()
    assert (tmp_path / "out" / name).read_bytes() == undisturbed


def test_another_model_in_output_dir_is_an_error(trained, files, tmp_path):
  folder, _ = trained
  before = scripts.tree(folder)
  command = _flags(files, folder, task_name="xnli")
  results = scripts.run_many(
    "run_classifier.py", [[*command, "--do_train"]], tmp_path
  )
  status, _, error = results[0]
  assert status == 2
  assert "output_weights has shape [2, 32] there, and [3, 32] here" in error
  assert scripts.tree(folder) == before


def test_a_model_of_other_labels_is_an_error(trained, files, tmp_path):
  folder = tmp_path / "model"
  shutil.copytree(trained[0], folder)
  (folder / "labels.json").write_text('["1", "0"]')
  commands = [
    [*_flags(files, tmp_path / "out", init_checkpoint=folder), "--do_eval"],
    [*_flags(files, folder), "--do_train"],
  ]
  for status, _, error in scripts.run_many(
    "run_classifier.py", commands, tmp_path
  ):
    assert status == 2
    assert "labels.json has the labels 1, 0, and --task_name=MRPC" in error
  assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_passed_over(trained, files, tmp_path):
  folder = tmp_path / "out"
  shutil.copytree(trained[0], folder)
  data = folder / "model.ckpt-10.data-00000-of-00001"
  data.write_bytes(data.read_bytes()[:1000])
  output = scripts.run(
    "run_classifier.py", *_flags(files, folder), "--do_train=true"
  )
  assert f"Continuing from {folder}/model.ckpt-9" in output
  name = "bert_model.ckpt.data-00000-of-00001"
  assert (folder / name).read_bytes() == (trained[0] / name).read_bytes()


USER_SCRIPT = """
import os
import sys
sys.path.insert(0, {root!r})
import common_flags
import run_classifier
import tokenization

class MoodProcessor(run_classifier.DataProcessor):
  def get_train_examples(self, data_dir):
    return self._create_examples(
        self._read_tsv(os.path.join(data_dir, "mood.tsv")), "train")
  def get_dev_examples(self, data_dir):
    return self._create_examples(
        self._read_tsv(os.path.join(data_dir, "mood.tsv")), "dev")
  def get_labels(self):
    return ["sad", "glad", "mad"]
  def get_test_examples(self, data_dir):
    return self._create_examples(
        self._read_tsv(os.path.join(data_dir, "mood.tsv")), "test")
  def _create_examples(self, lines, set_type):
    examples = []
    for (i, line) in enumerate(lines):
      text_a = tokenization.convert_to_unicode(line[0])
      if set_type == "test":
        label = "0"
      else:
        label = tokenization.convert_to_unicode(line[1])
      examples.append(run_classifier.InputExample(
          guid="%s-%s" % (set_type, i), text_a=text_a, text_b=None,
          label=label))
    return examples

run_classifier.PROCESSORS["mood"] = MoodProcessor
common_flags.run(run_classifier.main, run_classifier.define_flags)
"""


def test_a_users_processor_works_as_it_always_did(files, tmp_path):
  lines = [f"I feel {m} .\t{m}" for m in ("sad", "glad", "mad")] * 4
  (tmp_path / "mood.tsv").write_text("\n".join(lines) + "\n")
  flags = _flags(files, tmp_path / "out", task_name="mood", data_dir=tmp_path)
  code = USER_SCRIPT.format(root=str(scripts.ROOT))
  flags += ["--do_train", "--do_eval", "--do_predict"]
  subprocess.run(
    [sys.executable, "-c", code, *flags], check=True, capture_output=True
  )
  results = np.loadtxt(tmp_path / "out" / "test_results.tsv")
  assert results.shape == (12, 3)
  lacking = code.replace("get_dev_examples", "get_other_examples")
  failed = subprocess.run(
    [sys.executable, "-c", lacking, *flags], capture_output=True, text=True
  )
  assert failed.returncode == 2
  last = failed.stderr.splitlines()[-1]
  assert "MoodProcessor has no get_dev_examples, which --do_eval needs" in last
  labels = json.loads((tmp_path / "out" / "labels.json").read_text())
  assert labels == ["sad", "glad", "mad"]
  assert "eval_accuracy" in _eval_results(tmp_path / "out")


def test_a_sentencepiece_model_serves_in_place_of_a_vocabulary(
  files, goldens, tmp_path
):
  sentencepiece.SentencePieceTrainer.train(
    input=str(goldens / "corpus.txt"),
    model_prefix=str(tmp_path / "pieces"),
    vocab_size=500,
    user_defined_symbols="[CLS],[SEP],[MASK]",
    minloglevel=2,
  )
  out = tmp_path / "out"
  model = tmp_path / "pieces.model"
  scripts.run(
    "run_classifier.py",
    *_flags(files, out, vocab_file=None, spm_model_file=model),
    "--do_train=true",
    "--do_eval=true",
  )
  assert "eval_accuracy" in _eval_results(out)
  assert (out / "pieces.model").read_bytes() == model.read_bytes()


def test_mnli_evaluates_and_predicts_both_sets(trained, files, tmp_path):
  line = ["7", *"1234567", "He ate .", "He slept .", "neutral"]
  sets = ("matched", "mismatched")
  names = [f"{split}_{name}" for split in ("dev", "test") for name in sets]
  for name in ("train", *names):
    rows = 9 if name.endswith("mismatched") else 6
    text = "\n".join(["\t".join(line)] * (rows + 1)) + "\n"
    (tmp_path / f"{name}.tsv").write_text(text)
  out = tmp_path / "out"
  scripts.run(
    "run_classifier.py",
    *_flags(
      files, out, task_name="mnli", data_dir=tmp_path, train_batch_size=2
    ),
    "--do_train=true",
    "--do_eval=true",
    "--do_predict=true",
  )
  for suffix, rows in (("", 6), ("_mismatched", 9)):
    assert "eval_loss" in (out / f"eval_results{suffix}.txt").read_text()
    results = (out / f"test_results{suffix}.tsv").read_text().splitlines()
    assert len(results) == rows
    assert all(len(line.split("\t")) == 3 for line in results)


def _config_with(files, name, **changes):
  fields = json.loads((files / "model" / "bert_config.json").read_text())
  path = files / name
  path.write_text(json.dumps({**fields, **changes}))
  return path


def _bad_files(files):
  """Makes what the table of bad inputs names."""
  (files / "no_words.txt").write_text("")
  (files / "no_cls.txt").write_text("[PAD]\n[UNK]\n[SEP]\n")
  (files / "latin1.json").write_bytes(b'{"vocab_size": 9, "note": "caf\xe9"}')
  for path in (files / "model").glob("bert_model.ckpt.*"):
    content = path.read_bytes()
    cut = content[: len(content) // 2] if "data" in path.name else content
    (files / path.name.replace("bert_model", "cut")).write_bytes(cut)


def _bad_inputs(files):
  """(changed flags, what the one line must say)."""
  _bad_files(files)
  empty = files / "empty"
  empty.mkdir()
  (files / "cased_L-12_H-768_A-12").mkdir()
  for path in (files / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, files / "cased_L-12_H-768_A-12")
  bad_label = files / "bad_label"
  shutil.copytree(files / "data", bad_label)
  with open(bad_label / "train.tsv", "a", encoding="utf-8") as writer:
    writer.write("7\t1\t2\ta\tb\n")
  prefix = files / "model" / "bert_model.ckpt"
  return {
    "no vocabulary": ({"vocab_file": None}, ["--vocab_file"]),
    "no such vocabulary": ({"vocab_file": "nowhere"}, ["--vocab_file=nowhere"]),
    "config is a folder": ({"bert_config_file": empty}, ["bert_config_file"]),
    "no data": ({"data_dir": empty}, [str(empty), "train.tsv"]),
    "unknown task": ({"task_name": "MRPCC"}, ["MRPCC", "mrpc", "xnli"]),
    "index path": (
      {"init_checkpoint": f"{prefix}.index"},
      [f"{prefix}.index", f"pass its prefix {prefix}"],
    ),
    "no checkpoint": ({"init_checkpoint": "nowhere"}, ["nowhere"]),
    "too many words": (
      {"bert_config_file": _config_with(files, "small.json", vocab_size=99)},
      ["vocab.txt has 1001 entries", "vocab_size=99", "small.json"],
    ),
    "too long": ({"max_seq_length": 129}, ["--max_seq_length=129", "128"]),
    "heads": (
      {
        "bert_config_file": _config_with(files, "h.json", num_attention_heads=5)
      },
      ["hidden_size=32", "num_attention_heads=5", "h.json"],
    ),
    "wider": (
      {"bert_config_file": _config_with(files, "wide.json", hidden_size=64)},
      ["bert/embeddings/word_embeddings", "[1001, 32]", "[1001, 64]"],
    ),
    "deeper": (
      {"bert_config_file": _config_with(files, "l.json", num_hidden_layers=3)},
      ["lacks bert/encoder/layer_2/attention/self/query/kernel"],
    ),
    "casing": (
      {"init_checkpoint": files / "cased_L-12_H-768_A-12" / "bert_model.ckpt"},
      ["--do_lower_case=True", "cased_L-12_H-768_A-12"],
    ),
    "empty vocabulary": (
      {"vocab_file": files / "no_words.txt"},
      ["no_words.txt", "[CLS]"],
    ),
    "no special": (
      {"vocab_file": files / "no_cls.txt"},
      ["no_cls.txt has no line [CLS]"],
    ),
    "config is not UTF-8": (
      {"bert_config_file": files / "latin1.json"},
      ["latin1.json"],
    ),
    "checkpoint cut short": (
      {"init_checkpoint": files / "cut.ckpt"},
      ["cut.ckpt is damaged or incomplete"],
    ),
    "endless": ({"num_train_epochs": "inf"}, ["--num_train_epochs=inf"]),
    "no rate": ({"learning_rate": "nan"}, ["--learning_rate=nan"]),
    "late warm-up": ({"warmup_proportion": 2}, ["--warmup_proportion=2"]),
    "negative seed": ({"seed": -1}, ["seed", "-1"]),
    "unknown label": (
      {"data_dir": bad_label},
      [f"{bad_label}/train.tsv:42", "'7'", "0, 1"],
    ),
    "nothing to do": ({"do_train": "false"}, ["--do_train"]),
    "untrained": (
      {"do_train": "false", "do_predict": "true"},
      ["--output_dir", "--do_train"],
    ),
    "no batch": ({"train_batch_size": 0}, ["--train_batch_size=0"]),
    "too few rows": ({"train_batch_size": 99}, ["--train_batch_size=99"]),
    "unknown flag": ({"learning_rat": 1}, ["learning_rat"]),
    "wrong type": ({"seed": "one"}, ["seed", "one"]),
    "output is a file": (
      {"output_dir": files / "model" / "vocab.txt"},
      ["--output_dir", "vocab.txt is not a folder"],
    ),
    "below a file": (
      {"output_dir": files / "model" / "vocab.txt" / "out"},
      ["--output_dir", "vocab.txt is not a folder"],
    ),
    "unset output": ({"output_dir": ""}, ["--output_dir"]),
    "unset checkpoint": ({"init_checkpoint": ""}, ["--init_checkpoint"]),
    "other casing": (
      {"bert_config_file": _config_with(files, "c.json", do_lower_case=False)},
      ["--do_lower_case=True contradicts", "c.json"],
    ),
    "no room": ({"max_seq_length": 2}, ["--max_seq_length=2", "3 or more"]),
    "no output": ({"output_dir": None}, ["--output_dir"]),
  }


def test_bad_input_is_one_line_and_leaves_nothing(files, tmp_path):
  cases = _bad_inputs(files)
  before = scripts.tree(files)
  commands = [
    _flags(files, tmp_path / "out", **{"do_train": "true", **changes})
    for changes, _ in cases.values()
  ]
  results = scripts.run_many("run_classifier.py", commands, tmp_path)
  for (name, (_, wanted)), result in zip(cases.items(), results, strict=True):
    status, _, error = result
    lines = error.splitlines()
    assert status == 2, (name, error)
    assert len(lines) == 1, (name, error)
    for text in wanted:
      assert text in lines[0], name
  assert not (tmp_path / "out").exists()
  assert scripts.tree(files) == before


def test_importing_the_script_defines_no_flag():
  code = (
    "import run_classifier; from absl import flags; "
    "assert 'data_dir' not in flags.FLAGS; "
    "run_classifier.create_model; run_classifier.MrpcProcessor().get_labels()"
  )
  environment = {**os.environ, "PYTHONPATH": str(scripts.ROOT)}
  subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_help_lists_the_flags(tmp_path):
  script = pathlib.Path(scripts.ROOT, "run_classifier.py")
  result = subprocess.run(
    [sys.executable, str(script), "--help"], capture_output=True, text=True
  )
  for flag in ("--data_dir", "--init_checkpoint", "--[no]use_tpu", "--seed"):
    assert flag in result.stdout
