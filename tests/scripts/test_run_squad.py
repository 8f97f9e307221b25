"""run_squad.py from the shell, on the goldens' questions."""

import collections
import json
import os
import shutil
import string

import mistakes
import numpy as np
import pytest
import scripts
import tiny_task

from bert.data import records
from bert.models import checkpoints

ANSWERS = ("predictions.json", "nbest_predictions.json")


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with model/ as a release has it, and files of questions."""
  folder = tmp_path_factory.mktemp("files")
  tiny_task.make_files(folder, goldens)
  for name in ("v1", "v2"):
    squad = json.loads((goldens / f"squad_{name}.json").read_text())
    for part, places in (("train", slice(4)), ("dev", slice(4, 7))):
      _write(folder / f"{part}_{name}.json", _cut(squad, places))
  dev = json.loads((folder / "dev_v2.json").read_text())
  for question in _questions(dev):
    del question["answers"], question["is_impossible"]
  _write(folder / "test.json", dev)
  return folder


def _cut(squad, places):
  """Some of the paragraphs of what has one article."""
  (article,) = squad["data"]
  return {"data": [{**article, "paragraphs": article["paragraphs"][places]}]}


def _questions(squad):
  paragraphs = [p for article in squad["data"] for p in article["paragraphs"]]
  return [question for p in paragraphs for question in p["qas"]]


def _write(path, content):
  path.write_text(json.dumps(content), encoding="utf-8")


def _read(path):
  return json.loads(path.read_text(encoding="utf-8"))


def _threshold(folder):
  return _read(folder / "task.json")["null_score_diff_threshold"]


def _set_threshold(folder, threshold):
  fields = _read(folder / "task.json")
  fields["null_score_diff_threshold"] = threshold
  _write(folder / "task.json", fields)


def _flags(files, out, **changes):
  """A command for SQuAD 1.1, as changed; None leaves a flag out."""
  values = {
    "task_name": None,
    "data_dir": None,
    "train_file": files / "train_v1.json",
    "predict_file": files / "dev_v1.json",
    "max_seq_length": 96,
    "doc_stride": 40,
    "max_query_length": 24,
    "train_batch_size": 4,
    "num_train_epochs": 3,
    "save_checkpoints_steps": 4,
    **changes,
  }
  return tiny_task.flags(files, out, **values)


def _fork(files, out, *actions, status=0, **changes):
  """Runs the command; returns its log."""
  command = [*_flags(files, out, **changes), *actions]
  return scripts.fork("run_squad.py", *command, status=status)[1]


# What reading does not depend on, and what the folder tells by itself.
READ_BACK = dict.fromkeys(("max_seq_length", "doc_stride", "max_query_length"))
V2 = {"version_2_with_negative": True}


def _v2(files, **changes):
  return {
    "train_file": files / "train_v2.json",
    "predict_file": files / "dev_v2.json",
    **V2,
    **changes,
  }


@pytest.fixture(scope="module")
def trained(files):
  """The folder and the log of the original's command."""
  out = files / "v1"
  actions = ("--do_train=True", "--do_predict=True")
  return out, _fork(files, out, *actions, log_steps=5, **tiny_task.HEAD_ONLY)


@pytest.fixture(scope="module")
def trained_v2(files):
  """The same for SQuAD 2.0, with the best threshold."""
  out = files / "v2"
  changes = _v2(
    files,
    null_score_diff_threshold="auto",
    num_train_epochs=1,
    **tiny_task.HEAD_ONLY,
  )
  return out, _fork(files, out, "--do_train", "--do_predict", **changes)


def _words(text):
  text = "".join(c for c in text.lower() if c not in string.punctuation)
  return [word for word in text.split() if word not in ("a", "an", "the")]


def _f1(prediction, gold):
  found, wanted = _words(prediction), _words(gold)
  if not found or not wanted:
    return float(found == wanted)
  both = (collections.Counter(found) & collections.Counter(wanted)).total()
  return 2 * both / (len(found) + len(wanted))


def _scores(predictions, squad):
  """Exact match and F1, in percent, by the definition."""
  exact, f1 = [], []
  for question in _questions(squad):
    found = predictions[question["id"]]
    golds = [a["text"] for a in question.get("answers", ())] or [""]
    exact.append(max(_words(found) == _words(gold) for gold in golds))
    f1.append(max(_f1(found, gold) for gold in golds))
  return 100 * np.mean(exact), 100 * np.mean(f1)


def _windows(folder, name):
  """Number of windows in a file."""
  return sum(1 for _ in records.read_records(f"{folder}/{name}.tf_record"))


def test_answers_and_scores(trained, files):
  out, _ = trained
  dev = _read(files / "dev_v1.json")
  predictions, nbest = (_read(out / name) for name in ANSWERS)
  names = [question["id"] for question in _questions(dev)]
  assert list(predictions) == list(nbest) == names
  for name, entries in nbest.items():
    assert predictions[name] == entries[0]["text"]
    assert sum(e["probability"] for e in entries) == pytest.approx(1)
    assert len(entries) <= 20
  exact, f1 = _scores(predictions, dev)
  results = tiny_task.results(out)
  assert results == pytest.approx(
    {"exact_match": exact, "f1": f1, "global_step": 12}
  )
  assert _read(out / "eval_results.json") == {
    "results": results,
    "predict_file": str(files / "dev_v1.json"),
    "predictions": "predictions.json",
  }
  page = (out / "answer.html").read_text(encoding="utf-8")
  assert "SQuAD 1.1: v1" in page
  assert all(name in page for name in names)
  assert not (out / "null_odds.json").exists()
  assert _threshold(out) is None
  assert "exact match" in (out / "report.html").read_text(encoding="utf-8")


def test_evaluation_leaves_the_answers_alone(trained, files, tmp_path):
  out = tmp_path / "out"
  shutil.copytree(trained[0], out)
  for name in ANSWERS:
    (out / name).write_text("mine")
  os.remove(out / "eval_results.txt")
  before = (out / "answer.html").read_bytes()
  _fork(files, out, "--do_eval", train_file=None, **READ_BACK)
  assert [(out / name).read_text() for name in ANSWERS] == ["mine"] * 2
  assert (out / "answer.html").read_bytes() == before
  assert tiny_task.results(out) == tiny_task.results(trained[0])


def test_the_best_threshold_is_found_and_stored(trained_v2, files):
  out, log = trained_v2
  threshold = _threshold(out)
  predictions, nbest, odds = (
    _read(out / name) for name in (*ANSWERS, "null_odds.json")
  )
  dev = _read(files / "dev_v2.json")
  texts = {
    name: next((e["text"] for e in entries if e["text"]), "")
    for name, entries in nbest.items()
  }

  def answers(threshold):
    return {n: "" if odds[n] > threshold else texts[n] for n in texts}

  assert predictions == answers(threshold)
  assert f"best threshold is {threshold:g}, stored in {out}/task.json" in log
  exact, f1 = _scores(predictions, dev)
  for other in (*odds.values(), min(odds.values()) - 1):
    assert _scores(answers(other), dev)[1] <= f1 + 1e-9
  details = _read(out / "eval_results.json")
  assert details["null_score_diff_threshold"] == threshold
  assert details["best_null_score_diff_threshold"] == threshold
  results = details["results"]
  assert (results["exact"], results["f1"]) == pytest.approx((exact, f1))
  questions = _questions(dev)
  impossible = sum(q["is_impossible"] for q in questions)
  assert 0 < impossible < len(questions)
  assert results["NoAns_total"] == impossible
  assert results["HasAns_total"] == len(questions) - impossible
  assert {"best_exact", "best_f1", "best_f1_thresh"} <= results.keys()
  assert "SQuAD 2.0: v2" in (out / "answer.html").read_text(encoding="utf-8")


def test_a_file_without_answers_takes_the_stored_threshold(
  trained_v2, files, tmp_path
):
  folder, _ = trained_v2
  out = tmp_path / "out"
  shutil.copytree(folder, out)
  _set_threshold(out, 1e9)
  changes = {"predict_file": files / "test.json", **READ_BACK}
  auto = {**changes, "null_score_diff_threshold": "auto"}
  log = _fork(files, out, "--do_predict", **auto)
  predictions = _read(out / "predictions.json")
  assert list(predictions) == list(_read(folder / "predictions.json"))
  assert all(predictions.values())
  assert f"null_score_diff_threshold=1e+09, from {out}/task.json" in log
  # A given number takes precedence.
  given = {"null_score_diff_threshold": -1e9}
  log = _fork(files, out, "--do_predict", **given, **changes)
  assert "null_odds.json: deleted" not in log  # There are new ones.
  assert not any(_read(out / "predictions.json").values())
  _set_threshold(out, None)
  before = scripts.tree(out)
  log = _fork(files, out, "--do_predict", status=2, **auto)
  assert f"no threshold in the task.json of {out};" in log
  log = _fork(files, out, "--do_eval", status=2, **changes)
  assert "test.json: question " in log
  assert "has no answer to evaluate with" in log
  assert scripts.tree(out) == before


def test_a_threshold_stored_beside_the_answers(trained_v2, files, tmp_path):
  folder, _ = trained_v2
  out = tmp_path / "out"
  changes = {
    "init_checkpoint": folder,
    "null_score_diff_threshold": "auto",
    "predict_file": files / "dev_v2.json",
    **READ_BACK,
  }
  _fork(files, out, "--do_predict", **changes)
  flags = _read(out / "flags.json")["flags"]
  settings = _read(folder / "task.json")
  for name in ("task", "null_score_diff_threshold", "init_checkpoint"):
    del settings[name]
  assert {name: flags[name] for name in settings} == settings
  assert settings["version_2_with_negative"]
  assert (out / "answer.html").exists()
  assert _threshold(out) == _threshold(folder)
  _set_threshold(out, 1e9)
  changes["predict_file"] = files / "test.json"
  log = _fork(files, out, "--do_predict", **changes)
  assert all(_read(out / "predictions.json").values())
  # The scores of the earlier predictions are deleted.
  assert "test.json: not scored, because 12 of 12 questions have no ans" in log
  for name in ("eval_results.txt", "eval_results.json", "answer.html"):
    assert not (out / name).exists()


def test_a_threshold_of_another_model(trained_v2, files, tmp_path):
  folder, _ = trained_v2
  other, out = tmp_path / "other", tmp_path / "out"
  shutil.copytree(folder, other)
  for name in os.listdir(other):
    if name.startswith("bert_model.ckpt"):
      os.remove(other / name)
  _set_threshold(other, None)
  weights = checkpoints.Checkpoint(str(folder / "bert_model.ckpt"))
  checkpoints.write_checkpoint(
    str(other / "bert_model.ckpt"),
    {
      name: weights[name] * (1 if name == "global_step" else 1.5)
      for name in weights.shapes
    },
  )
  auto = {"null_score_diff_threshold": "auto", **READ_BACK}
  scored = {"predict_file": files / "dev_v2.json", **auto}
  _fork(files, out, "--do_predict", init_checkpoint=other, **scored)
  assert _threshold(out) is not None
  asked = {"predict_file": files / "test.json", **auto}
  log = _fork(files, out, "--do_predict", init_checkpoint=other, **asked)
  assert f", from {out}/task.json" in log
  log = _fork(files, out, "--do_predict", init_checkpoint=folder, **asked)
  assert f"threshold in {out}/task.json" in log
  assert f", from {folder}/task.json" in log


@pytest.fixture(scope="module")
def kept(files):
  """A folder that keeps its best weights, trained on cut batches."""
  out = files / "kept"
  changes = {
    "eval_steps": 3,
    "keep_best": "f1",
    "pad_to_max_length": False,
    "count_steps_on_windows": True,
    "num_train_epochs": 0.5,
    **tiny_task.HEAD_ONLY,
  }
  return out, _fork(files, out, "--do_train", "--do_predict", **changes)


def test_steps_by_windows(kept):
  out, log = kept
  steps = int(_windows(out, "train") / 4 * 0.5)
  assert f"Training for {steps} steps of 4 rows" in log
  assert _read(out / "best.json")["evaluations"][-1][0] == steps


def test_a_dialogue_reads_as_the_flags_say(trained, files, tmp_path):
  model = shutil.copytree(trained[0], tmp_path / "model")
  fields = _read(model / "bert_config.json")
  assert fields.pop("do_lower_case")
  (tmp_path / "text").write_text("Many Years before this The City was under .")
  typed = f"{tmp_path}/text\nWhat was this The City ?"

  def ask(*flags, status=0):
    command = ["--interactive", f"--init_checkpoint={model}/bert_model.ckpt"]
    command += flags
    return scripts.fork("run_squad.py", *command, stdin=typed, status=status)

  _, log = ask("--do_lower_case=false", status=2)
  assert f"=False contradicts {model}/bert_config.json: the model was" in log
  _write(model / "bert_config.json", fields)
  cased = ask("--do_lower_case=false", f"--vocab_file={model}/vocab.txt")[0]
  assert ask("--do_lower_case=false")[0] == cased
  assert ask()[0] == ask("--do_lower_case")[0] != cased


MISTAKES = """
--do_train=
  nothing to do ... --do_predict or --interactive
--train_file=
  --train_file is required
--predict_file= --keep_best=f1
  --predict_file is required
--train_file=FILES/train_v2.json
  FILES/train_v2.json ... is_impossible ... --version_2_with_negative
--predict_file=FILES/dev_v2.json --do_predict
  FILES/dev_v2.json ... pass --version_2_with_negative
--null_score_diff_threshold=high --version_2_with_negative
  --null_score_diff_threshold=high is not a number ... or auto
--keep_best=loss
  --keep_best=loss is not a metric of SQuAD 1.1 ... f1, exact_match
--predict_file=FILES/test.json --keep_best=f1
  FILES/test.json: question  ... has no answer to evaluate with
--interactive --do_train=
  lacks cls/squad/output_
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, mistake):
  good = [*_flags(files, files / "out"), "--do_train"]
  mistakes.check(mistake, "run_squad.py", files, good, FILES=files)
