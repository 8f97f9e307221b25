"""Temperatures: SciPy's optimum, in everything that uses a model."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import onnxruntime
import pytest
import scipy.optimize
import scipy.special
import scripts
import tiny_task

import bert
from bert.export import huggingface, onnx_model
from bert.tasks.classification import calibration, task as classification

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=[200, 3]) * 4


def _optimum(loss):
  found = scipy.optimize.minimize_scalar(
    loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9}
  )
  return found.x


def test_the_temperature_is_scipys():
  label_ids = np.where(RNG.random(200) < 0.6, LOGITS.argmax(1), 2)

  def loss(temperature):
    logs = scipy.special.log_softmax(LOGITS / temperature, axis=1)
    return -logs[np.arange(200), label_ids].mean()

  (found,) = calibration.fit_temperatures(LOGITS, label_ids)
  assert found == pytest.approx(_optimum(loss), rel=1e-4)


def test_each_of_several_labels_has_its_own():
  labels = (RNG.random([200, 3]) < scipy.special.expit(LOGITS / [2, 5, 9])) * 1
  labels[:, 2] = 0  # Without a row that has it, nothing is known.
  found = calibration.fit_temperatures(LOGITS, labels)
  for index in (0, 1):
    x, y = LOGITS[:, index], labels[:, index]

    def loss(temperature, x=x, y=y):
      p = scipy.special.log_expit([x / temperature, -x / temperature])
      return -(y * p[0] + (1 - y) * p[1]).mean()

    assert found[index] == pytest.approx(_optimum(loss), rel=1e-4)
  assert found[2] == 1


def test_labels_whose_probabilities_stay_are_named(caplog):
  labels = (LOGITS > 0) * 1
  labels[:50, 0] ^= 1  # Errors of the first label only.
  settings = classification.ClassifierSettings(
    kind="multilabel", labels=("late", "rude", "lost")
  )
  task = classification.ClassificationTask(settings)
  task.calibrate(map(classification.Prediction, LOGITS, labels))
  assert "so probabilities of 'rude', 'lost' stay; use more rows" in caplog.text


def test_without_an_error_the_temperature_stays():
  (found,) = calibration.fit_temperatures(LOGITS, LOGITS.argmax(1))
  assert found == 1
  (found,) = calibration.fit_temperatures(LOGITS, LOGITS.argmin(1))
  assert found == pytest.approx(20)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, goldens):
  """The folder of a calibrated training, and its temperature."""
  files = tiny_task.make_files(tmp_path_factory.mktemp("files"), goldens)
  out = files / "out"
  changes = {"num_train_epochs": 4, "calibrate": True, **tiny_task.HEAD_ONLY}
  command = tiny_task.flags(files, out, **changes)
  scripts.fork("run_classifier.py", *command, "--do_train", "--do_eval")
  fields = json.loads((out / "task.json").read_text())
  (temperature,) = fields["temperatures"]
  assert 0.05 < temperature != 1
  return files, out, temperature


INPUTS = [("the city", "he ate"), ("Jim", "Henson made puppets")]


def test_the_model_answers_calibrated(trained):
  _, out, temperature = trained
  calibrated, raw = bert.load(out), bert.load(out, temperatures=())
  for a, b in zip(raw(INPUTS), calibrated(INPUTS), strict=True):
    assert a["label"] == b["label"]
    logits = np.log(a["probabilities"])
    expected = scipy.special.softmax(logits / temperature)
    np.testing.assert_allclose(b["probabilities"], expected, rtol=1e-4)


def test_the_temperature_is_the_best_for_the_development_set(trained):
  files, out, temperature = trained
  lines = (files / "data" / "dev.tsv").read_text().splitlines()[1:]
  rows = [line.split("\t") for line in lines]
  raw = bert.load(out, temperatures=())
  answers = raw([(row[3], row[4]) for row in rows])
  logs = np.log([answer["probabilities"] for answer in answers])
  labels = [int(row[0]) for row in rows]

  def loss(value):
    scaled = scipy.special.log_softmax(logs / value, axis=1)
    return -scaled[np.arange(len(rows)), labels].mean()

  assert temperature == pytest.approx(_optimum(loss), rel=1e-2)
  results = json.loads((out / "eval_results.json").read_text())["results"]
  assert results["eval_loss"] == pytest.approx(loss(temperature), rel=1e-3)
  page = (out / "report.html").read_text()
  assert "Before the calibration, it was" in page


def test_other_formats_are_calibrated(trained, tmp_path):
  _, out, _ = trained
  model = bert.load(out)
  wanted = model(INPUTS[:1])[0]["probabilities"]
  onnx_model.write_onnx(str(out), str(tmp_path / "model.onnx"))
  session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
  (row,) = model.task.rows(model.task.example(*INPUTS[0]), False)
  names = ("input_ids", "input_mask", "segment_ids")
  batch = {name: np.array([row[name]], np.int64) for name in names}
  (found,) = session.run(["probabilities"], batch)[0]
  np.testing.assert_allclose(found, wanted, atol=1e-5)
  # Programs that do not know task.json compute the same.
  huggingface.to_huggingface(str(out), str(tmp_path / "there"))
  (tmp_path / "there" / "task.json").write_text('{"is_pair": true}')
  found = bert.load(tmp_path / "there")(INPUTS[:1])[0]["probabilities"]
  np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_trained_model_can_be_calibrated_later(trained, tmp_path):
  files, out, temperature = trained
  path = out / "task.json"
  before = path.read_text()
  fields = json.loads(before)
  path.write_text(json.dumps({**fields, "temperatures": []}))
  command = tiny_task.flags(files, out, calibrate=True)
  scripts.fork("run_classifier.py", *command, "--do_eval")
  (found,) = json.loads(path.read_text())["temperatures"]
  assert found == pytest.approx(temperature, rel=1e-5)
  # Again, the calibrated outputs are no reason for another one.
  again = [*command, "--do_eval", "--eval_batch_size=3"]
  scripts.fork("run_classifier.py", *again)
  (found,) = json.loads(path.read_text())["temperatures"]
  assert found == pytest.approx(temperature, rel=1e-5)
  page = (out / "report.html").read_text()
  for name, value in (("eval_batch_size", 3), ("do_train", True)):
    assert re.search(rf">{name}</code>.{{,20}}<td><code>{value}</code>", page)
  # The command that trained it, which has no step left, keeps them, too.
  before = tiny_task.results(out)["eval_loss"]
  changes = {"num_train_epochs": 4, **tiny_task.HEAD_ONLY}
  command = tiny_task.flags(files, out, **changes)
  again = [*command, "--do_train", "--do_eval"]
  _, log = scripts.fork("run_classifier.py", *again)
  assert "Nothing left to train" in log
  assert json.loads(path.read_text())["temperatures"] == [found]
  assert tiny_task.results(out)["eval_loss"] == pytest.approx(before, rel=1e-6)


def test_a_calibration_again_changes_no_byte(trained):
  files, out, _ = trained
  command = tiny_task.flags(files, out, calibrate=True)

  def calibrate():
    scripts.fork("run_classifier.py", *command, "--do_eval")
    paths = filter(pathlib.Path.is_file, out.rglob("*"))
    return {path: path.read_bytes() for path in paths}

  first = calibrate()
  assert calibrate() == first
  # A kill may have left a calibration without its results.
  (out / "eval_results.json").unlink()
  path = out / "task.json"
  fields = json.loads(path.read_text())
  path.write_text(json.dumps({**fields, "temperatures": [7.0]}))
  assert calibrate() == first


def test_further_training_forgets_the_temperatures(tmp_path):
  settings = classification.ClassifierSettings(labels=("a", "b"))
  calibrated = dataclasses.replace(settings, temperatures=(2.0,))
  task = classification.ClassificationTask(calibrated)
  task.before_updates(str(tmp_path))
  found = json.loads((tmp_path / "task.json").read_text())
  assert found["temperatures"] == []
  assert task.settings == settings
