"""run_classifier.py from the shell, on tiny files."""

import json
import math
import os
import pathlib
import re
import statistics

import numpy as np
import pytest
import scripts
import sentencepiece
import tensorflow as tf
import tiny_task

import modeling
from bert.models import checkpoints
from bert.training import summaries


LONG_TEXTS = {
  "max_seq_length": 24,
  "long_text": "mean_windows",
  "num_train_epochs": 0.5,
}


@pytest.fixture(scope="module")
def trained(files):
  """A folder trained on windows of long texts, and the log."""
  folder = files / "mean_windows"
  changes = {**LONG_TEXTS, **tiny_task.HEAD_ONLY}
  command = tiny_task.flags(files, folder, **changes)
  actions = ("--do_train=true", "--do_eval=true", "--do_predict=true")
  return folder, scripts.fork("run_classifier.py", *command, *actions)[1]


def _task_of(folder):
  return json.loads((folder / "task.json").read_text())


def test_checkpoints_are_kept_as_asked(trained):
  """The last five: each third step, and the end."""
  folder, _ = trained
  last = int(tiny_task.results(folder)["global_step"])
  wanted = [*range(3, last, 3), last][-5:]
  paths = [f"{folder}/model.ckpt-{step}" for step in wanted]
  assert checkpoints.training_checkpoints(folder) == paths
  newest = checkpoints.Checkpoint(paths[-1])
  assert newest["global_step"] == last
  assert "output_weights/adam_m" in newest
  assert not [name for name in os.listdir(folder) if "partial" in name]


@pytest.fixture(scope="module")
def short(files, goldens):
  """A model of 40 positions and word pieces of its own, trained."""
  sentencepiece.SentencePieceTrainer.train(
    input=str(goldens / "corpus.txt"),
    model_prefix=str(files / "pieces"),
    vocab_size=500,
    user_defined_symbols="[CLS],[SEP],[MASK]",
    minloglevel=2,
  )
  (files / "pieces.model").rename(files / "pieces.spm")
  config = json.loads((files / "model" / "bert_config.json").read_text())
  config["max_position_embeddings"] = 40
  (files / "short.json").write_text(json.dumps(config))
  command = _short_flags(files, max_seq_length=40)
  scripts.fork("run_classifier.py", *command, "--do_train=true")
  return files / "short"


def _short_flags(files, **changes):
  return tiny_task.flags(
    files,
    files / "short",
    bert_config_file=files / "short.json",
    init_checkpoint=None,
    vocab_file=None,
    spm_model_file=files / "pieces.spm",
    num_train_epochs=0.5,
    **tiny_task.HEAD_ONLY,
    **changes,
  )


def test_a_sentencepiece_model_serves_in_place_of_a_vocabulary(short, files):
  model = (files / "pieces.spm").read_bytes()
  # A model folder is searched for this ending.
  assert (short / "pieces.spm.model").read_bytes() == model
  assert not (short / "vocab.txt").exists()


def test_the_trained_length_is_the_default_for_prediction(short, files):
  # The default of training, 128, is more than the model's positions.
  command = _short_flags(files, max_seq_length=None)
  scripts.fork("run_classifier.py", *command, "--do_predict")
  results = np.loadtxt(short / "test_results.tsv")
  assert results.shape == (tiny_task.ROWS["test"], 2)


KEEP_BEST = {
  "eval_steps": 2,
  "keep_best": "loss",
  "early_stopping_patience": 2,
  "keep_checkpoint_max": 0,
  "num_train_epochs": 8,
  "learning_rate": 0.02,
  **tiny_task.HEAD_ONLY,
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
  assert (
    f"step {best}: loss {min(losses):.4f}, "
    f"best {min(losses):.4f} at step {best}" in log
  )
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


def test_the_last_weights_do_not_replace_the_best(kept, files):
  folder, _ = kept
  before = _weights(folder / "bert_model.ckpt")
  for epochs in (0.4, KEEP_BEST["num_train_epochs"]):  # It stopped early.
    changes = {"num_train_epochs": epochs, "tpu_name": "mine"}
    command = tiny_task.flags(files, folder, **changes)
    _, error = scripts.fork(
      "run_classifier.py", *command, "--do_train", status=2
    )
    assert "pass the same --keep_best" in error.splitlines()[-1]
    assert "--tpu_name=mine is not used; omit it, or add --use_tpu" in error
  after = _weights(folder / "bert_model.ckpt")
  for name, value in before.items():
    np.testing.assert_array_equal(after[name], value)


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
    used = f"Using the weights of {folder}/bert_model.ckpt"
    assert (used in log) == (out == folder)
    assert "Continuing" not in log
  results = tiny_task.results(folder)
  assert results["global_step"] == history["best_step"]
  assert results["eval_loss"] == pytest.approx(history["best_value"], rel=1e-6)
  np.testing.assert_allclose(
    np.loadtxt(folder / "test_results.tsv"),
    np.loadtxt(tmp_path / "test_results.tsv"),
    rtol=1e-5,
  )


def test_killed_and_started_again_ends_in_the_same_bytes(kept, files, tmp_path):
  out = tmp_path / "out"
  command = [*tiny_task.flags(files, out, **KEEP_BEST), "--do_train"]
  # At step 4, the weights of step 2 are the best so far.
  for name in ("train.tf_record", "model.ckpt-4.index"):
    scripts.kill_when(out / name, "run_classifier.py", *command)
  assert (out / "best_model.ckpt.index").exists()
  # A damaged checkpoint is skipped.
  newest = checkpoints.training_checkpoints(str(out))[-1]
  data = pathlib.Path(f"{newest}.data-00000-of-00001")
  data.write_bytes(data.read_bytes()[:1000])
  _, log = scripts.fork("run_classifier.py", *command)
  assert f"Skipping a checkpoint: checkpoint {newest} is damaged" in log
  assert f"Continuing from {out}/model.ckpt-" in log
  suffixes = ("index", "data-00000-of-00001")
  names = [
    f"{n}.{s}" for n in ("best_model.ckpt", "bert_model.ckpt") for s in suffixes
  ]
  for name in ("best.json", *names):
    assert (out / name).read_bytes() == (kept[0] / name).read_bytes(), name


@pytest.fixture(scope="module")
def several(files):
  """The folder of two tasks with two seeds, what was printed, and the log."""
  data = files / "several_data"
  for name in ("MNLI", "AX"):
    (data / name).mkdir(parents=True)
  line = "\t".join([*"01234567", "He ate .", "He slept .", "neutral"])
  sets = ("matched", "mismatched")
  names = [f"{split}_{name}" for split in ("dev", "test") for name in sets]
  for name in ("train", *names):
    rows = 9 if name.endswith("mismatched") else 8
    tiny_task.write_lines(data / "MNLI" / f"{name}.tsv", [line] * (rows + 1))
  tiny_task.write_lines(
    data / "AX" / "diagnostic.tsv", ["0\tHe ate .\tHe slept ."] * 4
  )
  out = files / "several"
  command = tiny_task.flags(
    files,
    out,
    task_name="mnli,ax",
    data_dir=data,
    num_seeds=2,
    seed=3,
    num_train_epochs=1,
    **tiny_task.HEAD_ONLY,
  )
  actions = ("--do_train", "--do_eval", "--do_predict")
  printed, log = scripts.fork("run_classifier.py", *command, *actions)
  return out, printed, log


def test_all_seeds_are_checked_before_the_first_is_trained(files, tmp_path):
  out = tmp_path / "out"
  out.mkdir()
  (out / "seed-2").touch()
  command = tiny_task.flags(files, out, num_seeds=2)
  _, log = scripts.fork("run_classifier.py", *command, "--do_train", status=2)
  assert f"--output_dir={out}/seed-2: {out}/seed-2 is not a writable" in log
  assert [path.name for path in out.iterdir()] == ["seed-2"]


def test_a_trained_model_predicts_the_diagnostic_set(several, files, tmp_path):
  """That of the folder, and that of --init_checkpoint into a new folder."""
  folder = several[0] / "seed-3"
  found = folder / "AX" / "test_results.tsv"
  expected = found.read_text()
  found.unlink()
  changes = {"task_name": "mnli,ax", "data_dir": files / "several_data"}
  start = {"init_checkpoint": folder / "MNLI"}
  for out, more in ((folder, {}), (tmp_path / "out", start)):
    command = tiny_task.flags(files, out, **changes, **more)
    scripts.fork("run_classifier.py", *command, "--do_predict")
    assert (out / "AX" / "test_results.tsv").read_text() == expected


def test_several_tasks_and_seeds_are_summarized(several):
  out, printed, _ = several
  header, *rows = [
    line.split("\t") for line in (out / "results.tsv").read_text().splitlines()
  ]
  names = ["task", "metric", "mean", "deviation", "lowest", "highest"]
  assert header == [*names, "best seed", "seeds"]
  wanted = []
  found = [_all_results(out / f"seed-{seed}" / "MNLI") for seed in (3, 4)]
  for name in sorted(found[0]):
    a, b = values = [results[name] for results in found]
    best = min(values) if "loss" in name else max(values)
    numbers = [statistics.mean(values), statistics.stdev(values)]
    shown = [f"{n:.4f}" for n in (*numbers, min(values), max(values))]
    seed = "3" if best == a else "4"
    if not name.startswith("loss"):  # The same numbers as the eval_loss.
      wanted.append(["MNLI", name, *shown, seed, "2"])
    assert a != b or "loss" not in name
  assert rows == wanted
  assert "eval_accuracy_mismatched" in {row[1] for row in rows}
  assert [line.split() for line in printed.splitlines()] == [
    [*names, "best", "seed", "seeds"],
    *wanted,
  ]
  columns = [re.search(r"\d\.\d", line) for line in printed.splitlines()[1:]]
  assert len({column.start() for column in columns}) == 1


def _all_results(folder):
  """The results of all development sets, by their names in results.tsv."""
  found = tiny_task.results(folder)
  if (folder / "eval_results_mismatched.txt").exists():
    others = tiny_task.results(folder, "_mismatched")
    found |= {f"{name}_mismatched": value for name, value in others.items()}
  return {name: v for name, v in found.items() if "global_step" not in name}


def test_each_task_and_seed_has_its_lines_in_the_log(several):
  _, _, log = several
  assert "retracing" not in log
  for rows in (8, 9):
    line = f"MNLI: {rows} of the {rows} development examples (100.0 %) are"
    assert log.count(line) == 2


def test_the_model_of_mnli_predicts_ax(several):
  out, _, _ = several
  for seed in (3, 4):
    folder = out / f"seed-{seed}"
    mnli = np.loadtxt(folder / "MNLI" / "test_results.tsv")
    assert mnli.shape == (8, 3)
    mismatched = np.loadtxt(folder / "MNLI" / "test_results_mismatched.tsv")
    assert mismatched.shape == (9, 3)
    # All rows of all sets are the same pair.
    ax = np.loadtxt(folder / "AX" / "test_results.tsv")
    np.testing.assert_allclose(ax, mnli[:3], rtol=1e-5)
    for name in ("MNLI", "AX"):
      record = json.loads((folder / name / "flags.json").read_text())
      assert record["flags"]["do_train"] == (name == "MNLI")


def test_submissions_have_a_line_for_each_row(several):
  out, _, _ = several
  nli = ["contradiction", "entailment", "neutral"]
  for seed in (3, 4):
    folder = out / f"seed-{seed}"
    assert sorted(os.listdir(folder)) == ["AX", "MNLI", "glue_submission"]
    submissions = {
      "AX": ("AX/test_results", nli),
      "MNLI-m": ("MNLI/test_results", nli),
      "MNLI-mm": ("MNLI/test_results_mismatched", nli),
    }
    names = {path.stem for path in (folder / "glue_submission").iterdir()}
    assert names == submissions.keys()
    for name, (results, labels) in submissions.items():
      ids = np.loadtxt(folder / f"{results}.tsv").argmax(axis=1)
      wanted = [f"{row}\t{labels[i]}" for row, i in enumerate(ids)]
      submitted = (folder / "glue_submission" / f"{name}.tsv").read_text()
      assert submitted.splitlines() == ["index\tprediction", *wanted]


def test_bfloat16_is_close_to_float32(trained, files, tmp_path):
  folder, _ = trained
  changes = {"init_checkpoint": folder, "precision": "bfloat16"}
  command = tiny_task.flags(files, tmp_path, **LONG_TEXTS, **changes)
  scripts.fork("run_classifier.py", *command, "--do_eval", "--do_predict")
  # bfloat16 has eight significant bits.
  exact = np.loadtxt(folder / "test_results.tsv")
  rounded = np.loadtxt(tmp_path / "test_results.tsv")
  np.testing.assert_allclose(rounded, exact, atol=0.05)
  assert np.any(rounded != exact)
  losses = [tiny_task.results(path)["eval_loss"] for path in (folder, tmp_path)]
  assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_long_texts_are_predicted_as_they_were_trained(trained, files):
  folder, log = trained
  assert _task_of(folder)["long_text"] == "mean_windows"
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
  for name, split in (("train", "train"), ("eval", "dev"), ("predict", "test")):
    path, count = folder / f"{name}.tf_record", tiny_task.ROWS[split]
    windows = len([*tf.data.TFRecordDataset(str(path))])
    assert windows > count
    assert f"{path}: {windows} rows of {count} examples" in log


def test_a_dry_run_measures_memory_and_leaves_nothing(files, tmp_path):
  # All batches have one shape, and share a program.
  changes = {"train_batch_size": 16, "pad_to_max_length": True}
  changes |= tiny_task.HEAD_ONLY
  command = tiny_task.flags(files, tmp_path / "out", **changes)
  printed, log = scripts.fork(
    "run_classifier.py", *command, "--do_train", "--dry_run", "--num_seeds=2"
  )
  assert "--dry_run: measuring a few steps" in log
  task, *lines, seeds = printed.splitlines()
  assert seeds == "Each of the 2 seeds takes that time."
  assert task == "MRPC"
  sizes = dict(re.findall(r"^(.*?)  +([\d,.]+)", "\n".join(lines), re.M))
  predicted, measured = (
    float(re.search(rf"{name} peak +(.*) GB", printed)[1])
    for name in ("predicted", "measured")
  )
  # This fork shares memory with its parent; the measuring processes do not.
  assert 0.5 < predicted / measured < 2.5
  assert sizes["steps"] == "5"  # 40 rows, twice, 16 at a time.
  config = json.loads((files / "model" / "bert_config.json").read_text())
  shapes = modeling.variable_shapes(modeling.BertConfig.from_dict(config))
  count = sum(map(math.prod, shapes.values())) + 2 * config["hidden_size"] + 2
  assert sizes["parameters"] == f"{count:,}"
  assert "s a step" in lines[-1]
  assert not (tmp_path / "out").exists()
  assert "100.0% of the rows have the full --max_seq_length" in log
