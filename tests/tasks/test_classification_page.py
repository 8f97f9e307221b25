"""report.html: well-formed, alone, and with the numbers that were given."""

import dataclasses
import math

import numpy as np
import pytest
from web_page import Page

from bert.reports import training_page
from bert.tasks.classification import label_types, page as classification_report
from bert.tasks.classification.examples import InputExample

HISTORY = {
  "loss": [(10, 0.7), (20, math.nan), (30, 0.25)],
  "learning_rate": [(10, 2e-5), (20, 1e-5), (30, 0.0)],
  "gradient_norm": [(10, 1.5), (20, math.inf), (30, 0.5)],
  "examples/s": [(10, 31.0), (20, 30.0), (30, 32.0)],
  "dev/eval_accuracy": [(15, 0.5), (30, 0.75)],
  "dev/eval_loss": [(15, 0.625), (30, 0.5)],
}
RECORD = {
  "flags": {"task_name": "MRPC", "learning_rate": 2e-5, "init": None},
  "versions": {"tensorflow": "2.99.1"},
  "data": {"/data/<dev>.tsv": "0123abcd" * 8},
  "files": ["vocab.txt"],
  "changes": {"20": {"learning_rate": 1e-5}},
}


def write_page(folder, title, evaluations, history, record):
  training_page.write(
    str(folder),
    title,
    evaluations,
    classification_report.section,
    history,
    record,
    classification_report.STYLE,
  )


@pytest.fixture
def write(tmp_path):
  """Writes a report and returns its Page."""

  def write(*evaluations, title="A run", history=(), record=RECORD):
    path = tmp_path / "report.html"
    write_page(tmp_path, title, evaluations, dict(history), record)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    return Page(path.read_text(encoding="utf-8"))

  return write


def rows(count, text="a text", pair=None):
  return [InputExample(f"dev-{i}", text, pair, "x") for i in range(count)]


def classification(label_ids, probabilities, labels=("no", "yes"), **changed):
  probabilities = np.asarray(probabilities, np.float32)
  arguments = {
    "name": "development set",
    "label_type": label_types.Classification(labels),
    "results": {"eval_accuracy": 0.8652341, "eval_loss": 0.3125},
    "label_ids": np.asarray(label_ids),
    "probabilities": probabilities,
    "losses": -np.log(probabilities[np.arange(len(label_ids)), label_ids]),
    "examples": rows(len(label_ids)),
  }
  return classification_report.ClassifiedSet(**{**arguments, **changed})


def four_rows(**changed):
  """Rows 1 and 3 are wrong, at 0.625 and 0.875."""
  evaluation = classification(
    [0, 0, 1, 1], [[0.75, 0.25], [0.375, 0.625], [0.25, 0.75], [0.875, 0.125]]
  )
  return dataclasses.replace(evaluation, **changed)


def multilabel(**changed):
  arguments = {
    "name": "development set",
    "label_type": label_types.Multilabel(["angry", "short", "never"]),
    "results": {"eval_accuracy": 1 / 3, "eval_f1_micro": 0.5},
    "label_ids": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]]),
    "probabilities": np.array(
      [[0.75, 0.625, 0.125], [0.25, 0.75, 0.125], [0.9375, 0.25, 0.25]]
    ),
    "losses": np.array([0.5, 0.25, 1.5]),
    "examples": rows(3),
  }
  return classification_report.ClassifiedSet(**{**arguments, **changed})


def regression(label_ids, numbers, **changed):
  label_ids = np.asarray(label_ids, np.float32)
  numbers = np.asarray(numbers, np.float32)
  arguments = {
    "name": "development set",
    "label_type": label_types.Regression(),
    "results": {"eval_pearson": 0.875, "eval_mse": 0.0625},
    "label_ids": label_ids,
    "probabilities": numbers[:, np.newaxis],
    "losses": np.square(numbers - label_ids),
    "examples": rows(len(label_ids)),
  }
  return classification_report.ClassifiedSet(**{**arguments, **changed})


@pytest.fixture(scope="module")
def page(tmp_path_factory):
  """The page of four rows."""
  folder = tmp_path_factory.mktemp("page")
  write_page(folder, "MRPC & <friends>", [four_rows()], HISTORY, RECORD)
  return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_page_needs_nothing_from_outside(write):
  page = write(four_rows(), multilabel(), regression([1, 2], [1, 3]))
  assert not {"script", "link", "img", "iframe"} & {t for t, _ in page.tags}
  for _, attributes in page.tags:
    for name, value in attributes.items():
      assert "://" not in value
      if name in ("href", "src", "xlink:href"):
        assert value.startswith("#")
  style = "".join(page.text)
  assert "@import" not in style
  assert "url(" not in style


def test_ids_are_unique_and_what_refers_to_them_finds_them(write):
  page = write(four_rows(), four_rows(), regression([1, 2], [1, 3]))
  ids = [a["id"] for _, a in page.tags if "id" in a]
  assert len(set(ids)) == len(ids)
  for _, attributes in page.tags:
    for name, value in attributes.items():
      if name == "href":
        assert value[1:] in ids
      elif value.startswith("url("):
        assert value[5:-1] in ids


@pytest.mark.parametrize(
  ("name", "title"),
  [("multiple choice", "Multiple choice"), ("SQuAD 1.1", "SQuAD 1.1")],
)
def test_the_title_is_in_words(tmp_path, name, title):
  write_page(tmp_path, name, [], {}, {})
  page = (tmp_path / "report.html").read_text("utf-8")
  assert f'<h1 dir="auto">{title}: {tmp_path.name}</h1>' in page


def test_metrics_are_those_given(write):
  page = write(
    four_rows(), four_rows(name="mismatched set", results={"eval_f1": 0.71875})
  )
  assert page.tables["Metrics"] == [
    ["metric", "development set", "mismatched set"],
    ["accuracy", "0.87", "–"],
    ["loss", "0.31", "–"],
    ["F1", "–", "0.72"],
  ]
  for number in (0.8652341, 0.3125, 0.71875):
    assert number in page.numbers()


def test_labels_and_confusions_are_counted(page):
  # Of "no": 1 right, 1 taken for "yes". Of "yes": the same.
  assert page.tables["Labels"][1:] == [
    ["no", "0.50", "0.50", "0.50", "2"],
    ["yes", "0.50", "0.50", "0.50", "2"],
  ]
  assert page.tables["Confusion matrix"] == [
    ["true ↓ predicted →", "no", "yes"],
    ["no", "150%", "150%"],  # 1 example, 50 %
    ["yes", "150%", "150%"],
  ]


def test_a_threshold_leaves_the_more_probable_rows(page):
  # Of 0.75, 0.625, 0.75 and 0.875, the second and the last are wrong.
  assert page.tables["Rows above a threshold"][1:] == [
    ["0.5", "1.00", "0.50"],
    ["0.6", "1.00", "0.50"],
    ["0.7", "0.75", "0.67"],
    ["0.8", "0.25", "0"],
  ]


def test_many_labels_have_a_table_of_what_is_confused_most(write):
  labels = [f"label {i}" for i in range(21)]
  # 7 is taken for 3 twice, 5 for 4 once; 5 for 5 once.
  predicted = np.array([3, 3, 4, 5])
  page = write(
    classification([7, 7, 5, 5], np.eye(21)[predicted] * 0.9 + 0.001, labels)
  )
  assert "Confusion matrix" not in page.tables
  assert page.tables["Most confused labels"][1:] == [
    ["label 7", "label 3", "2", "1.00"],
    ["label 5", "label 4", "1", "0.50"],
  ]


def test_errors_are_sorted_by_loss(page):
  # -log(1 / 8) and -log(3 / 8).
  assert page.tables["Errors with the largest loss"] == [
    ["id", "text", "true", "predicted", "loss", "probability"],
    ["dev-3", "a text", "yes", "no", "2.0794", "0.8750"],
    ["dev-1", "a text", "no", "yes", "0.9808", "0.6250"],
  ]
  assert "2 of 4 predictions are wrong. " in "".join(page.text)


def test_labels_that_are_not_predicted_are_to_be_checked(page, write):
  assert page.tables["Labels to check"] == [
    ["id", "text", "given", "probability"],
    ["dev-3", "a text", "yes", "0.1250"],
    ["dev-1", "a text", "no", "0.3750"],
  ]
  assert "2 given labels that the model does not predict" in "".join(page.text)
  page = write(multilabel())
  assert page.tables["Labels to check"][1:] == [
    ["dev-2", "a text", "not angry", "0.0625"],
    ["dev-0", "a text", "not short", "0.3750"],
  ]
  assert "Labels to check" not in write(regression([1, 2], [1, 3])).tables
  given = np.linspace(0.1, 0.9, 160)  # Half of them are above 0.5.
  page = write(classification([0] * 160, np.stack([given, 1 - given], -1)))
  shown = page.tables["Labels to check"][1:]
  assert [row[0] for row in shown] == [f"dev-{i}" for i in range(50)]
  assert "80 given labels" in "".join(page.text)
  page = write(classification([0] * 9, [[0.9, 0.1]] * 9))
  assert "Labels to check" not in page.tables


def test_multilabel(write):
  page = write(multilabel())
  assert page.tables["Labels"][1:] == [
    ["angry", "0.50", "1.00", "0.67", "1"],
    ["short", "0.50", "1.00", "0.67", "1"],
    ["never", "0", "0", "0", "0"],
  ]
  assert "Confusion matrix" not in page.tables
  assert page.tables["Errors with the largest loss"][1:] == [
    ["dev-2", "a text", "none", "angry", "1.5000"],
    ["dev-0", "a text", "angry", "angry|short", "0.5000"],
  ]


def test_regression(write):
  page = write(regression([1, 2, 3], [1.5, 2, -1]))
  assert len(page.named("svg")) == 1
  assert page.tables["Errors with the largest loss"] == [
    ["id", "text", "true", "predicted", "loss"],
    ["dev-2", "a text", "3", "-1", "16.0000"],
    ["dev-0", "a text", "1", "1.5", "0.2500"],
  ]
  assert "Labels" not in page.tables
  text = "".join(page.text)
  assert "2 of 3 predictions differ from the given number" in text
  assert "wrong" not in text


def test_texts_are_text(write):
  script = "<script>alert('x')</script> & \"so\" <b>on"
  page = write(four_rows(examples=rows(4, script, "مرحبا\n日本語")))
  assert (
    page.tables["Errors with the largest loss"][1][1]
    == script + "مرحبا\n日本語"
  )
  assert "script" not in {tag for tag, _ in page.tags}
  paragraphs = [a for a in page.named("p") if a.get("dir") == "auto"]
  assert len(paragraphs) >= 4


def test_labels_names_and_flags_are_text(write):
  page = write(
    four_rows(
      label_type=label_types.Classification(["<i>", '"&amp;$x^$']),
      name="<u>set",
      results={"<eval>": 1.0},
    ),
    history={"dev/<u>$_": [(1, 1.0)], '"odd"': [(1, 2.0)]},
    record={"flags": {"<u>": "<u>"}},
  )
  assert not {"i", "u", "eval"} & {tag for tag, _ in page.tags}
  assert page.tables["Labels"][2][0] == '"&amp;$x^$'
  assert page.tables["Flags"][1] == ["<u>", "<u>"]


def test_flags_versions_and_data(page):
  assert page.tables["Flags"][1:] == [
    ["task_name", "MRPC"],
    ["learning_rate", "2e-05"],
    ["init", "None"],
  ]
  assert page.tables["Versions"][1:] == [["tensorflow", "2.99.1"]]
  changed = page.tables["Flags changed at step 20"]
  assert changed[1:] == [["learning_rate", "1e-05"]]
  assert page.tables["Data"][1:] == [["/data/<dev>.tsv", "0123abcd" * 8]]


def test_curves_say_where_they_end(page):
  labels = [a["aria-label"] for a in page.named("svg")]
  assert [label for label in labels if "at step" in label] == [
    "Loss: training 0.25 at step 30; development 0.5 at step 30",
    "Examples/s: training 32 at step 30",
    "Gradient norm: training 0.5 at step 30",
    "Learning rate: training 0 at step 30",
  ]
  # Two points are no curve.
  assert page.tables["Short curves"] == [
    ["curve", "set", "step", "value"],
    ["Development: accuracy", "development", "15", "0.5000"],
    ["Development: accuracy", "development", "30", "0.7500"],
  ]


def test_run_that_diverged(write):
  nan = np.full((4, 2), np.nan)
  history = {"loss": [(1, math.nan), (2, -math.inf)]}
  page = write(
    four_rows(
      probabilities=nan,
      losses=nan[:, 0],
      results={"eval_loss": math.nan, "eval_accuracy": math.inf},
    ),
    regression([1, 2, 3, 4], nan[:, 0]),
    regression([1, 2], [np.nan, 1]),
    multilabel(probabilities=np.full((3, 3), np.nan), losses=[1, np.nan, 3]),
    history=history,
  )
  assert ["loss", "NaN", "–", "–", "–"] in page.tables["Metrics"]
  text = "".join(page.text)
  assert "The expected calibration error is NaN." in text
  # The row of a NaN loss comes first.
  *_, first, _ = page.tables["Errors with the largest loss"]
  assert first[0] == "dev-1"


def test_equal_inputs_are_equal_bytes(tmp_path, monkeypatch):
  import matplotlib

  def settings():
    # To read the backend would choose one.
    return {
      k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != "backend"
    }

  before = settings()
  evaluations = [four_rows(), multilabel(), regression([1, 2, 3], [1, 1, 1])]
  history = {"loss": HISTORY["loss"]}
  pages = []
  for name, epoch, size in (("a", "0", 10), ("b", "1600000000", 20)):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with matplotlib.rc_context({"font.size": size, "lines.linewidth": size}):
      folder = tmp_path / name / "run"
      folder.mkdir(parents=True)
      write_page(folder, "A run", evaluations, history, RECORD)
      pages.append((folder / "report.html").read_bytes())
  assert pages[0] == pages[1]
  assert settings() == before
