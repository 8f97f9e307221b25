"""run_classifier.py from the shell, on tiny files."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import numpy as np
import pytest
import scripts
import sentencepiece
import tensorflow as tf
import tiny_task

from training import checkpoints, summaries


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with data/, and model/ as an unzipped release has it."""
  return tiny_task.make_files(tmp_path_factory.mktemp("files"), goldens)


@pytest.fixture(scope="module")
def trained(files):
  """What the famous command leaves, and what it printed."""
  output_dir = files / "output"
  output = scripts.run(
    "run_classifier.py",
    *tiny_task.flags(files, output_dir, log_steps=5, v=1),
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
  assert "loaded 39 variables; 2 initialized" in output
  assert "initialized: output_bias output_weights" in output
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
  assert results.keys() == {
    "eval_accuracy",
    "eval_f1",
    "eval_loss",
    "global_step",
    "loss",
  }
  assert results["global_step"] == 10
  assert results["loss"] == pytest.approx(results["eval_loss"], rel=1e-5)
  # A share of eleven rows.
  assert (results["eval_accuracy"] * 11) % 1 == pytest.approx(0, abs=1e-9)


def test_test_results_are_probabilities_row_by_row(trained):
  rows = np.loadtxt(trained[0] / "test_results.tsv", delimiter="\t")
  assert rows.shape == (tiny_task.ROWS["test"], 2)
  np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_trained_model_brings_its_head(trained, files, tmp_path, batch_size):
  folder, _ = trained
  scripts.fork(
    "run_classifier.py",
    *tiny_task.flags(
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
  _, log = scripts.fork(
    "run_classifier.py", *tiny_task.flags(files, folder), "--do_train=true"
  )
  assert f"Continuing from {folder}/model.ckpt-10" in log
  assert "Nothing left to train: 10 of 10 steps" in log
  after = (folder / "bert_model.ckpt.data-00000-of-00001").read_bytes()
  assert before == after


def test_killed_and_started_again_ends_in_the_same_bytes(
  trained, files, tmp_path
):
  command = tiny_task.flags(files, tmp_path / "out", save_checkpoints_steps=1)
  continued = False
  for wanted in ("train.tf_record", "model.ckpt-2.index", "model.ckpt-5.index"):
    log = scripts.kill_when(
      tmp_path / "out" / wanted, "run_classifier.py", *command, "--do_train"
    )
    continued = "Continuing from" in log or continued
  assert continued
  scripts.fork("run_classifier.py", *command, "--do_train=true")
  for suffix in ("data-00000-of-00001", "index"):
    name = f"bert_model.ckpt.{suffix}"
    undisturbed = (trained[0] / name).read_bytes()
    assert (tmp_path / "out" / name).read_bytes() == undisturbed


def test_another_model_in_output_dir_is_an_error(trained, files):
  folder, _ = trained
  before = scripts.tree(folder)
  command = tiny_task.flags(files, folder, task_name="xnli")
  _, error = scripts.fork("run_classifier.py", *command, "--do_train", status=2)
  assert "labels.json has the labels 0, 1 (classification)" in error
  assert scripts.tree(folder) == before


def test_a_model_of_other_labels_is_an_error(trained, files, tmp_path):
  folder = tmp_path / "model"
  shutil.copytree(trained[0], folder)
  (folder / "labels.json").write_text('["1", "0"]')
  out = tmp_path / "out"
  commands = [
    [*tiny_task.flags(files, out, init_checkpoint=folder), "--do_eval"],
    [*tiny_task.flags(files, folder), "--do_train"],
  ]
  for command in commands:
    _, error = scripts.fork("run_classifier.py", *command, status=2)
    assert "labels.json has the labels 1, 0 (classification), and" in error
    assert "--task_name=MRPC has 0, 1 (classification); pass" in error
  assert not out.exists()


def test_a_damaged_checkpoint_is_passed_over(trained, files, tmp_path):
  folder = tmp_path / "out"
  shutil.copytree(trained[0], folder)
  data = folder / "model.ckpt-10.data-00000-of-00001"
  data.write_bytes(data.read_bytes()[:1000])
  _, log = scripts.fork(
    "run_classifier.py", *tiny_task.flags(files, folder), "--do_train=true"
  )
  assert f"Continuing from {folder}/model.ckpt-9" in log
  name = "bert_model.ckpt.data-00000-of-00001"
  assert (folder / name).read_bytes() == (trained[0] / name).read_bytes()


USER_SCRIPT = """
import os
import sys
sys.path.insert(0, {root!r})
from training import startup
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
startup.run(run_classifier.main, run_classifier.define_flags)
"""


def test_a_users_processor_works_as_it_always_did(files, tmp_path):
  lines = [f"I feel {m} .\t{m}" for m in ("sad", "glad", "mad")] * 4
  (tmp_path / "mood.tsv").write_text("\n".join(lines) + "\n")
  flags = tiny_task.flags(
    files, tmp_path / "out", task_name="mood", data_dir=tmp_path
  )
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
  scripts.fork(
    "run_classifier.py",
    *tiny_task.flags(files, out, vocab_file=None, spm_model_file=model),
    "--do_train=true",
    "--do_eval=true",
  )
  assert "eval_accuracy" in _eval_results(out)
  assert (out / "pieces.model").read_bytes() == model.read_bytes()


def test_mnli_has_two_sets_and_its_model_predicts_ax(files, tmp_path):
  line = ["7", *"1234567", "He ate .", "He slept .", "neutral"]
  sets = ("matched", "mismatched")
  names = [f"{split}_{name}" for split in ("dev", "test") for name in sets]
  data = tmp_path / "data"
  (data / "MNLI").mkdir(parents=True)
  (data / "AX").mkdir()
  for name in ("train", *names):
    rows = 9 if name.endswith("mismatched") else 6
    lines = ["\t".join(line)] * (rows + 1)
    tiny_task.write_lines(data / "MNLI" / f"{name}.tsv", lines)
  tiny_task.write_lines(
    data / "AX" / "diagnostic.tsv", ["0\tHe ate .\tHe slept ."] * 4
  )
  out = tmp_path / "out"
  printed, _ = scripts.fork(
    "run_classifier.py",
    *tiny_task.flags(
      files, out, task_name="mnli,ax", data_dir=data, train_batch_size=2
    ),
    "--do_train=true",
    "--do_eval=true",
    "--do_predict=true",
  )
  assert "MNLI  eval_accuracy_mismatched" in printed
  mnli = out / "MNLI"
  for suffix, rows in (("", 6), ("_mismatched", 9)):
    assert "eval_loss" in (mnli / f"eval_results{suffix}.txt").read_text()
    assert np.loadtxt(mnli / f"test_results{suffix}.tsv").shape == (rows, 3)
  # All rows of all sets are the same pair.
  np.testing.assert_allclose(
    np.loadtxt(out / "AX" / "test_results.tsv"),
    np.loadtxt(mnli / "test_results.tsv")[:3],
    rtol=1e-5,
  )
  submitted = {"AX": 3, "MNLI-m": 6, "MNLI-mm": 9}
  for name, rows in submitted.items():
    text = (out / "glue_submission" / f"{name}.tsv").read_text()
    header, *lines = text.splitlines()
    assert header == "index\tprediction"
    assert [line.split("\t")[0] for line in lines] == [*map(str, range(rows))]
  assert len(os.listdir(out / "glue_submission")) == len(submitted)


KEEP_BEST = {
  "eval_steps": 2,
  "keep_best": "loss",
  "early_stopping_patience": 2,
  "keep_checkpoint_max": 0,
  "num_train_epochs": 8,
}


@pytest.fixture(scope="module")
def kept(files):
  """A folder that keeps its best weights, and the log of its training."""
  folder = files / "kept"
  command = tiny_task.flags(files, folder, **KEEP_BEST)
  return folder, scripts.fork("run_classifier.py", *command, "--do_train")[1]


def _weights(prefix):
  """The variables of a checkpoint, without what only training needs."""
  checkpoint = checkpoints.Checkpoint(str(prefix), weights_only=True)
  return {name: checkpoint[name] for name in checkpoint.shapes}


def test_the_best_is_released_and_patience_ends_the_training(kept):
  folder, log = kept
  history = json.loads((folder / "best.json").read_text())
  steps = [step for step, _ in history["evaluations"]]
  losses = [loss for _, loss in history["evaluations"]]
  best = steps[np.argmin(losses)]
  assert (history["metric"], history["best_step"]) == ("loss", best)
  assert history["best_value"] == min(losses)
  # Every second step, until two evaluations in a row were no better.
  assert steps == [*range(2, best + 5, 2)]
  assert f"Stopped at step {best + 4} of 40" in log
  assert f"step {best}: loss {min(losses):.4f}, the best so far" in log
  released = _weights(folder / "bert_model.ckpt")
  wanted = _weights(folder / f"model.ckpt-{best}")
  assert released.keys() == wanted.keys()
  for name, value in wanted.items():
    np.testing.assert_array_equal(released[name], value)
  curves = summaries.read_scalars(folder)
  curve = curves["dev/eval_loss"]
  assert [step for step, _ in curve] == steps
  np.testing.assert_allclose([loss for _, loss in curve], losses, rtol=1e-6)
  assert set(steps) <= {step for step, _ in curves["loss"]}


def test_the_best_is_evaluated_and_predicted_later(kept, files, tmp_path):
  folder, _ = kept
  history = json.loads((folder / "best.json").read_text())
  prefix = folder / f"model.ckpt-{history['best_step']}"
  for out, changes in ((folder, {}), (tmp_path, {"init_checkpoint": prefix})):
    _, log = scripts.fork(
      "run_classifier.py",
      *tiny_task.flags(files, out, **changes),
      "--do_eval",
      "--do_predict",
    )
    used = f"Using the weights of {folder}/best_model.ckpt"
    assert (used in log) == (out == folder)
  results = _eval_results(folder)
  assert results["global_step"] == history["best_step"]
  assert results["eval_loss"] == pytest.approx(history["best_value"], rel=1e-6)
  np.testing.assert_allclose(
    np.loadtxt(folder / "test_results.tsv"),
    np.loadtxt(tmp_path / "test_results.tsv"),
    rtol=1e-5,
  )


def test_killed_between_evaluations_it_ends_in_the_same_bytes(
  kept, files, tmp_path
):
  out = tmp_path / "out"
  command = [*tiny_task.flags(files, out, **KEEP_BEST), "--do_train"]
  names = ("model.ckpt-2", "best_model.ckpt", "model.ckpt-4", "model.ckpt-6")
  for name in names:
    path = out / f"{name}.index"
    scripts.kill_when(path, "run_classifier.py", *command)
  _, log = scripts.fork("run_classifier.py", *command)
  assert f"Continuing from {out}/model.ckpt-" in log
  suffixes = ("index", "data-00000-of-00001")
  names = [
    f"{n}.{s}" for n in ("best_model.ckpt", "bert_model.ckpt") for s in suffixes
  ]
  for name in ("best.json", *names):
    assert (out / name).read_bytes() == (kept[0] / name).read_bytes(), name


def test_another_learning_rate_is_warned_of(trained, files, tmp_path):
  folder = tmp_path / "out"
  shutil.copytree(trained[0], folder)
  _, log = scripts.fork(
    "run_classifier.py",
    *tiny_task.flags(files, folder, learning_rate=2e-3, log_steps=7),
    "--do_train",
  )
  assert (
    f"--learning_rate=0.002: the training in {folder} began with 0.001; to "
    "start a new training, pass another --output_dir\n"
  ) in log
  # The record tells what the model was trained with.
  record = json.loads((folder / "flags.json").read_text())
  assert record["flags"]["learning_rate"] == 0.001
  assert log.count("began with") == 1


@pytest.fixture(scope="module")
def several(files, goldens):
  """The folder of two tasks with two seeds, and what was printed."""
  data = files / "several_data"
  tiny_task.write_mrpc(data / "MRPC", goldens)
  (data / "RTE").mkdir()
  labels = ["entailment", "not_entailment"]
  for name, rows in (("train", 24), ("dev", 9), ("test", 5)):
    lines = ["index\tsentence1\tsentence2\tlabel"]
    lines += [
      f"{i}\tthat {'was' * (i % 2)} first\twith {i} .\t{labels[i % 2]}"
      for i in range(rows)
    ]
    if name == "test":
      lines = [line.rpartition("\t")[0] for line in lines]
    tiny_task.write_lines(data / "RTE" / f"{name}.tsv", lines)
  out = files / "several"
  printed, _ = scripts.fork(
    "run_classifier.py",
    *tiny_task.flags(
      files,
      out,
      task_name="MRPC,rte",
      data_dir=data,
      num_seeds=2,
      seed=3,
      num_train_epochs=1,
    ),
    "--do_train",
    "--do_eval",
    "--do_predict",
  )
  return out, printed


def test_several_tasks_and_seeds_are_summarized(several):
  out, printed = several
  header, *rows = [
    line.split("\t") for line in (out / "results.tsv").read_text().splitlines()
  ]
  assert header == ["task", "metric", "mean", "deviation", "best", "best seed"]
  wanted = []
  for task in ("MRPC", "RTE"):
    found = [_eval_results(out / f"seed-{seed}" / task) for seed in (3, 4)]
    for name in sorted(found[0].keys() - {"global_step"}):
      a, b = values = [results[name] for results in found]
      best = min(values) if "loss" in name else max(values)
      numbers = (statistics.mean(values), statistics.stdev(values), best)
      shown = [f"{number:.4f}" for number in numbers]
      seed = "3" if best == a else "4"
      wanted.append([task, name, *shown, seed])
      assert a != b or "loss" not in name
  assert rows == wanted
  assert [line.split() for line in printed.splitlines()] == [
    ["task", "metric", "mean", "deviation", "best", "best", "seed"],
    *wanted,
  ]
  assert len({line.index("0.") for line in printed.splitlines()[1:]}) == 1


def test_submissions_have_a_line_for_each_row(several):
  out, _ = several
  for seed in (3, 4):
    folder = out / f"seed-{seed}"
    assert sorted(os.listdir(folder)) == ["MRPC", "RTE", "glue_submission"]
    assert sorted(os.listdir(folder / "glue_submission")) == [
      "MRPC.tsv",
      "RTE.tsv",
    ]
    for task, labels in (
      ("MRPC", ["0", "1"]),
      ("RTE", ["entailment", "not_entailment"]),
    ):
      places = np.loadtxt(folder / task / "test_results.tsv").argmax(axis=1)
      wanted = [f"{row}\t{labels[place]}" for row, place in enumerate(places)]
      submitted = (folder / "glue_submission" / f"{task}.tsv").read_text()
      assert submitted.splitlines() == ["index\tprediction", *wanted]


@pytest.fixture(scope="module")
def long_texts(files):
  """A folder for each way to read long texts, by --long_text and precision."""
  folders = {}
  for long_text, precision in (
    ("head_tail", "float32"),
    ("mean_windows", "float32"),
    ("mean_windows", "bfloat16"),
  ):
    folder = files / f"{long_text}_{precision}"
    command = tiny_task.flags(
      files, folder, max_seq_length=24, long_text=long_text, precision=precision
    )
    actions = ("--do_train", "--do_eval", "--do_predict")
    scripts.fork("run_classifier.py", *command, *actions)
    folders[long_text, precision] = folder
  return folders


def test_bfloat16_is_close_to_float32(long_texts):
  full = long_texts["mean_windows", "float32"]
  half = long_texts["mean_windows", "bfloat16"]
  # Eight bits of a fraction, in two layers and ten updates.
  exact = np.loadtxt(full / "test_results.tsv")
  rounded = np.loadtxt(half / "test_results.tsv")
  np.testing.assert_allclose(rounded, exact, atol=0.05)
  assert np.any(rounded != exact)
  losses = [_eval_results(folder)["eval_loss"] for folder in (full, half)]
  assert losses[0] == pytest.approx(losses[1], rel=0.05)
  weights = _weights(half / "bert_model.ckpt")
  assert {value.dtype for value in weights.values()} == {np.dtype("float32")}


@pytest.mark.parametrize("long_text", ["head_tail", "mean_windows"])
def test_long_texts_are_answered_as_they_were_trained(
  long_texts, files, long_text
):
  folder = long_texts[long_text, "float32"]
  settings = json.loads((folder / "classifier.json").read_text())
  assert settings["long_text"] == long_text
  _, *lines = (files / "data" / "test.tsv").read_text().splitlines()
  out, _ = scripts.fork(
    "run_classifier.py",
    "--predict_file=-",
    f"--output_dir={folder}",
    stdin="".join("\t".join(line.split("\t")[3:]) + "\n" for line in lines),
  )
  shown = [line.split("\t")[2:] for line in out.splitlines()[1:]]
  wanted = np.loadtxt(folder / "test_results.tsv")
  assert len(wanted) == len(lines) == tiny_task.ROWS["test"]
  np.testing.assert_allclose(
    np.array(shown, np.float64), wanted, rtol=1e-4, atol=5.1e-7
  )
  rows = len([*tf.data.TFRecordDataset(str(folder / "predict.tf_record"))])
  assert (rows > len(lines)) == (long_text == "mean_windows")
  assert "eval_f1" in _eval_results(folder)


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
