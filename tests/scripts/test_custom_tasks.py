"""run_classifier.py on tables of one's own, and what answers from its folder.

What a run reports is computed again from the probabilities it wrote, by
scikit-learn and SciPy.
"""

import csv
import gzip
import json
import re
import shutil

import numpy as np
import pytest
import scripts
import tensorflow as tf
import tiny_task
from scipy import stats
from sklearn import metrics


# Words of the golden vocabulary.
WORDS = ["that", "with", "from", "were", "which", "this", "their", "also"]
SIGNS = {"no": "first", "perhaps": "after", "yes": "they"}


def _run(files, out, *flags, **changes):
  """Runs a task of one's own; returns what it printed and its log."""
  changes = {"task_name": "custom", "data_dir": None, **changes}
  command = tiny_task.flags(files, out, **changes)
  return scripts.fork("run_classifier.py", *command, *flags)


def _write_csv(path, rows):
  with open(path, "w", encoding="utf-8", newline="") as writer:
    csv.writer(writer).writerows(rows)


def _read_table(text):
  """Header and rows of what run_classifier.py writes."""
  header, *rows = csv.reader(text.splitlines(), delimiter="\t")
  return header, rows


def _results(folder):
  return json.loads((folder / "eval_results.json").read_text())["results"]


def _task_of(folder):
  return json.loads((folder / "task.json").read_text())


# Pairs, from CSV.

PAIR_COUNTS = {"no": 12, "perhaps": 8, "rare": 1, "yes": 3}


def _pair_rows():
  """Rows of training and of development: name, premise, hypothesis, verdict."""
  verdicts = [v for v, n in PAIR_COUNTS.items() for _ in range(n)]
  train = [
    [f"t{i}", f"{WORDS[i % 8]} {WORDS[i // 8]}", SIGNS.get(v, "been"), v]
    for i, v in enumerate(verdicts)
  ]
  train[3][1] = 'that,\n"were"'
  for row in train[:3]:
    row[1] = "with " * 30 + row[1]
  new = [
    [f"d{i}", f"{WORDS[i]} time", SIGNS[v], v]
    for i, v in enumerate(["no", "yes", "perhaps", "no", "yes", "no"])
  ]
  seen = [["d6", *train[5][1:]], ["d7", *train[14][1:]]]
  return train, [new[0], seen[0], *new[1:], seen[1]]


@pytest.fixture(scope="module")
def pairs(files):
  """A folder trained on pairs, the log, and the development set's rows."""
  train, dev = _pair_rows()
  header = ["name", "premise", "hypothesis", "verdict"]
  _write_csv(files / "pairs.csv", [header, *train])
  _write_csv(files / "pairs_dev.csv", [header, *dev])
  # The development set once more, without its labels.
  _write_csv(files / "pairs_test.csv", [row[:3] for row in [header, *dev]])
  folder = files / "pairs"
  _, log = _run(
    files,
    folder,
    "--do_train",
    "--do_eval",
    "--do_predict",
    train_file=files / "pairs.csv",
    dev_file=files / "pairs_dev.csv",
    test_file=files / "pairs_test.csv",
    text_a_column="premise",
    text_b_column="hypothesis",
    label_column="verdict",
    id_column="name",
    class_weights="balanced",
    max_seq_length=24,
    num_train_epochs=8,
  )
  return folder, log, dev


def test_results_are_those_of_the_predictions(pairs):
  folder, _, dev = pairs
  probabilities = np.loadtxt(folder / "test_results.tsv", delimiter="\t")
  names = [*PAIR_COUNTS]
  label_ids = np.array([names.index(row[3]) for row in dev])
  predictions = probabilities.argmax(axis=1)
  details = json.loads((folder / "eval_results.json").read_text())
  results = details["results"]
  losses = -np.log(probabilities[np.arange(8), label_ids])
  assert results == {
    "eval_accuracy": np.mean(predictions == label_ids),
    "eval_f1_macro": pytest.approx(
      metrics.f1_score(label_ids, predictions, average="macro")
    ),
    "eval_loss": pytest.approx(losses.mean(), rel=1e-4),
    "loss": results["eval_loss"],
    "global_step": 24,
  }
  lines = (folder / "eval_results.txt").read_text().splitlines()
  # With the digits of float32.
  shown = dict(line.split(" = ") for line in lines)
  assert list(shown) == sorted(results)
  assert {k: float(v) for k, v in shown.items()} == pytest.approx(
    results, rel=1e-6
  )
  supports = [details["labels"][name]["support"] for name in names]
  assert supports == np.bincount(label_ids, minlength=4).tolist()
  matrix = metrics.confusion_matrix(label_ids, predictions, labels=range(4))
  assert details["confusion_matrix"] == matrix.tolist()


def test_a_trained_model_knows_how_its_table_was_read(pairs, files, tmp_path):
  folder, _, _ = pairs
  command = ["--do_predict", f"--test_file={files / 'pairs_test.csv'}"]
  command += [f"--init_checkpoint={folder}", f"--output_dir={tmp_path}"]
  scripts.fork("run_classifier.py", *command)
  path = "test_predictions.tsv"
  assert (tmp_path / path).read_text() == (folder / path).read_text()
  # What is given comes first.
  _, log = scripts.fork(
    "run_classifier.py", *command, "--text_a_column=theory", status=2
  )
  assert "--text_a_column=theory: " in log
  _, log = scripts.fork(
    "run_classifier.py", *command[:2], f"--output_dir={tmp_path}", status=2
  )
  assert "--task_name is required; pass custom for your own files" in log


def test_the_log_and_the_report_say_how_good_the_result_is(pairs):
  folder, log, dev = pairs
  accuracy = _results(folder)["eval_accuracy"]
  usual = max(np.bincount([[*PAIR_COUNTS].index(row[3]) for row in dev])) / 8
  (line,) = re.findall(r"dev set: (accuracy \d.*)", log)
  assert line.startswith(f"accuracy {accuracy:.2f} (95 % range ")
  assert line.endswith(f"gives {usual:.2f}")
  page = (folder / "report.html").read_text(encoding="utf-8")
  assert '<h1 dir="auto">Classification: pairs</h1>' in page
  assert page.index("95 % range") < page.index("Warnings about the data")
  assert "2 of the 8 development examples (25.0 %) are also in the" in page
  assert "Truncated 3 of 24 examples (12.5 %) to --max_seq_length=24" in log
  # 24 / (4 n), for n examples of each of the four labels.
  assert "Label weights: no 0.5, perhaps 0.75, rare 6, yes 2\n" in log


def test_a_report_of_an_evaluation_warns_of_its_data(pairs, tmp_path):
  path = tmp_path / "dev.csv"
  header = ["premise", "hypothesis", "verdict"]
  rows = [["with", "", "yes"], *([["that", "time", "yes"]] * 9)]
  _write_csv(path, [header, *rows])
  command = [f"--dev_file={path}", f"--init_checkpoint={pairs[0]}"]
  command += ["--do_eval", f"--output_dir={tmp_path}"]
  scripts.fork("run_classifier.py", *command)
  page = (tmp_path / "report.html").read_text(encoding="utf-8")
  page = page[page.index("Warnings about the data</h2>") :]
  assert "dev.csv: rows with an empty text (1 of 10): lines 2<" in page
  assert "dev set: 100.0% of the rows have the label &#x27;yes&#x27;" in page


def test_pairs_are_not_read_as_single_texts(pairs, files, tmp_path):
  model = tmp_path / "model"
  shutil.copytree(pairs[0], model)
  (model / "flags.json").unlink()  # Which names the columns.
  _, error = scripts.fork(
    "run_classifier.py",
    *("--task_name=custom", "--do_predict", "--text_a_column=premise"),
    *(f"--test_file={files}/pairs_test.csv", f"--output_dir={tmp_path}/out"),
    f"--init_checkpoint={model}",
    status=2,
  )
  assert "--text_b_column: the test set has single texts, but" in error
  assert error.endswith("; pass it\n")


def test_a_file_is_answered_as_the_test_set_was(pairs, tmp_path):
  folder, _, dev = pairs
  path = tmp_path / "pairs.txt.gz"
  lines = "".join(f"{row[1]}\t{row[2]}\n" for row in dev)
  path.write_bytes(gzip.compress(lines.encode()))
  out, log = scripts.fork(
    "run_classifier.py",
    *(f"--predict_file={path}", f"--output_dir={folder}"),
    "--max_seq_length=9",
  )
  text = (folder / "test_predictions.tsv").read_text(encoding="utf-8")
  wanted_header, wanted = _read_table(text)
  header, rows = _read_table(out)
  assert header == wanted_header[:-2]
  assert [row[0] for row in rows] == [*map(str, range(8))]
  assert [row[1] for row in rows] == [row[1] for row in wanted]
  np.testing.assert_allclose(
    np.array([row[2:] for row in rows], np.float64),
    np.loadtxt(folder / "test_results.tsv"),
    rtol=1e-4,
    atol=5.1e-7,
  )
  (line,) = log.splitlines()
  assert "--output_dir is used as trained: --max_seq_length" in line


# Several labels, from JSON Lines.


@pytest.fixture(scope="module")
def multilabel(files):
  """A folder trained on sets of labels, and the development set's objects."""
  colors = {"red": "first", "green": "after", "blue": "they"}
  rows = []
  for i in range(32):
    chosen = [c for place, c in enumerate(colors) if i >> place & 1]
    signs = [colors[color] for color in chosen]
    text = " ".join([WORDS[i % 7], WORDS[i // 7], *signs])
    rows.append({"key": i, "body": text, "tags": chosen})
  rows[5]["tags"] = "blue|red"
  dev = rows[20:]
  for name, part in (("train", rows[:20]), ("dev", dev), ("test", dev)):
    lines = "".join(json.dumps(row) + "\n" for row in part)
    path = files / f"colors_{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
  folder = files / "colors"
  _run(
    files,
    folder,
    "--do_train",
    "--do_eval",
    "--do_predict",
    "--multilabel",
    train_file="colors_train.jsonl.gz",
    dev_file="colors_dev.jsonl.gz",
    test_file="colors_test.jsonl.gz",
    data_dir=files,
    text_a_column="body",
    label_column="tags",
    id_column="key",
    num_train_epochs=12,
    **tiny_task.HEAD_ONLY,
  )
  return folder, dev


def test_several_labels_are_told_of_a_text(multilabel):
  folder, dev = multilabel
  names = ["blue", "green", "red"]
  assert _task_of(folder)["labels"] == names
  probabilities = np.loadtxt(folder / "test_results.tsv", delimiter="\t")
  predictions = probabilities > 0.5
  label_ids = np.array([[name in row["tags"] for name in names] for row in dev])
  header, rows = _read_table((folder / "test_predictions.tsv").read_text())
  assert header == ["id", "label", *names, "text"]
  assert [row[0] for row in rows] == [str(row["key"]) for row in dev]
  assert [row[1] for row in rows] == [
    "|".join(np.array(names)[given]) for given in predictions
  ]
  losses = -np.log(np.where(label_ids, probabilities, 1 - probabilities))
  scores = {
    f"eval_f1_{average}": pytest.approx(
      metrics.f1_score(label_ids, predictions, average=average, zero_division=0)
    )
    for average in ("micro", "macro")
  }
  assert _results(folder) == {
    **scores,
    "eval_accuracy": pytest.approx(np.mean((predictions == label_ids).all(1))),
    "eval_loss": pytest.approx(losses.mean(), rel=1e-4),
    "loss": pytest.approx(losses.mean(), rel=1e-4),
    "global_step": 30,
  }
  assert len({row[1] for row in rows}) > 1


# Numbers, from TSV without a header, a share of which is evaluated.

NUMBERS = [round(0.1 * i - 0.4, 1) for i in range(20)]


@pytest.fixture(scope="module")
def numbers(files):
  """A folder trained on numbers."""
  lines = [
    f"{number}\t{WORDS[i % 8]} {WORDS[i // 8]}"
    for i, number in enumerate(NUMBERS)
  ]
  tiny_task.write_lines(files / "numbers.tsv", lines)
  folder = files / "numbers"
  changes = {**_number_flags(files), **tiny_task.HEAD_ONLY}
  _run(files, folder, "--do_train", "--do_predict", **changes)
  return folder


def _number_flags(files, **changes):
  return {
    "train_file": files / "numbers.tsv",
    "test_file": files / "numbers.tsv",
    "header": False,
    "text_a_column": 1,
    "label_column": 0,
    "dev_fraction": 0.23,  # Of 20 rows, rounded up: 5.
    "regression": True,
    "num_train_epochs": 8,
    "train_batch_size": 5,
    "do_eval": True,
    **changes,
  }


def _places(folder, name):
  """The places of a file's labels among NUMBERS, in order."""
  settings = _task_of(folder)
  spec = {"label_ids": tf.io.FixedLenFeature([], tf.float32)}
  places = []
  for row in tf.data.TFRecordDataset(str(folder / f"{name}.tf_record")):
    scaled = float(tf.io.parse_single_example(row, spec)["label_ids"])
    number = scaled * settings["deviation"] + settings["mean"]
    places.append(NUMBERS.index(round(number, 1)))
  return places


def test_numbers_are_measured_by_correlations(numbers):
  header, rows = _read_table((numbers / "test_predictions.tsv").read_text())
  assert header == ["id", "number", "text"]
  assert [row[0] for row in rows] == [*map(str, range(20))]
  predictions = np.loadtxt(numbers / "test_results.tsv")
  np.testing.assert_allclose(
    [float(row[1]) for row in rows], predictions, atol=6e-5
  )
  dev = _places(numbers, "eval")
  wanted, found = np.array(NUMBERS)[dev], predictions[dev]
  error = np.mean(np.square(wanted - found))
  trained = np.array(NUMBERS)[_places(numbers, "train")]
  # The model learns numbers in deviations from the mean, and so is its loss.
  loss = pytest.approx(error / np.var(trained), rel=1e-3)
  assert _results(numbers) == {
    "eval_pearson": pytest.approx(stats.pearsonr(wanted, found)[0], rel=1e-3),
    "eval_spearman": pytest.approx(stats.spearmanr(wanted, found)[0]),
    "eval_mse": pytest.approx(error, rel=1e-3),
    "eval_loss": loss,
    "loss": loss,
    "global_step": 24,
  }
  assert _task_of(numbers)["labels"] == []


def test_a_share_is_evaluated_that_was_not_trained_on(numbers, files, tmp_path):
  dev, train = _places(numbers, "eval"), _places(numbers, "train")
  assert len(dev) == 5
  assert sorted(dev + train) == [*range(20)]
  out = tmp_path / "out"
  changes = _number_flags(files, init_checkpoint=numbers, seed=2)
  _, log = _run(files, out, **changes)
  shutil.copy(numbers / "task.json", out)
  assert _places(out, "eval") == dev
  assert "5 for evaluation, because there is no" in log
  ours, theirs = _results(out), _results(numbers)
  assert ours["eval_mse"] == pytest.approx(theirs["eval_mse"], rel=1e-4)
  assert "5 of them were held out before" in log
