"""Few-shot training: its pairs, its draws, its head, and what it learns."""

import csv
import json

import numpy as np
import pytest
import scripts
import tensorflow as tf
import threadpoolctl
import tiny_task
from scipy import special
from sklearn import linear_model

import bert
from bert.engine import inputs
from bert.tasks.classification import few_shot

# Words of the golden vocabulary. A text has two words of its label and none of
# the other, so a linear function of words is always right.
WORDS = {"place": ["city", "north", "river"], "war": ["army", "king", "battle"]}


# The draws.


def draws(groups, size, seed, count, first=0):
  parts = inputs.balanced_batches(groups, size, seed)
  each = (batch for _, batches in parts for batch in batches)
  return [next(each).tolist() for _ in range(first + count)][first:]


def test_labels_are_drawn_equally_often_and_their_rows_in_turn():
  groups = [np.arange(3), np.arange(3, 50), np.array([50])]
  drawn = np.ravel(draws(groups, 12, 7, 47))  # 47 * 12 = 3 * 188 draws.
  counts = np.bincount(drawn, minlength=51)
  # 188 draws of a group: 62 or 63 of each of 3 rows, 4 of each of 47, 188 of 1.
  assert set(counts[:3]) == {62, 63}
  assert counts[3:].tolist() == [4] * 47 + [188]


def test_a_batch_has_pairs_of_rows_of_a_label():
  groups = [np.arange(10 * i, 10 * i + 10) for i in range(9)]
  for batch in draws(groups, 8, 1, 50):
    one, two = np.array(batch[::2]), np.array(batch[1::2])
    assert np.array_equal(one // 10, two // 10)
    assert np.all(one != two)


def test_draws_are_a_function_of_seed_and_step():
  groups = [np.arange(5), np.arange(5, 9)]
  for step in (1, 31, 32, 100):  # A part has 32 batches.
    assert draws(groups, 6, 3, 4, step) == draws(groups, 6, 3, step + 4)[step:]
  assert draws(groups, 6, 3, 4) != draws(groups, 6, 4, 4)


@pytest.mark.parametrize(
  ("label_ids", "groups"),
  [
    ([2, 0, 2, 0, 0], [[1, 3, 4], [0, 2], [5, 6]]),
    # A row of both labels is in both groups; the third has no label.
    ([[1, 0], [1, 1], [0, 0]], [[0, 1], [1], [2], [3, 4, 5, 6]]),
  ],
)
def test_groups_are_labels_no_label_and_unknown_labels(label_ids, groups):
  found = few_shot.row_groups(label_ids, 7)
  assert [rows.tolist() for rows in found] == groups


# The loss.


def test_equal_labels_have_cosine_1_and_others_0():
  vectors = np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0]], np.float32)
  labels = np.eye(2, dtype=np.float32)[[0, 0, 1, 1]]
  # Of the first row: (1 - 0.6)^2 with its partner, (0^2 + 1^2) / 2 with others.
  wanted = [0.16 + 0.5, 0.16 + (0.8**2 + 0.6**2) / 2]
  wanted += [1 + (0 + 0.8**2) / 2, 1 + (1 + 0.6**2) / 2]
  found = few_shot.pair_losses(tf.constant(vectors), tf.constant(labels))
  np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_some_labels_in_common_are_a_cosine_between():
  vectors = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
  labels = np.array([[1, 1], [1, 0], [0, 0]], np.float32)
  # The first two rows agree by 1 / sqrt(2): that is the weight of (1 - 0)^2,
  # beside which the third row has none. Rows without a label agree with none.
  found = few_shot.pair_losses(tf.constant(vectors), tf.constant(labels))
  rest = 1 - np.sqrt(0.5)
  wanted = [1 + 1 / (rest + 1), 1.0, 1 / 2]
  np.testing.assert_allclose(found, wanted, rtol=1e-5)


# The head.


@pytest.fixture(scope="module")
def cloud():
  """Vectors of three groups [60, 8], of length 1, and the groups."""
  draw = np.random.default_rng(5)
  ids = np.arange(60) % 3
  vectors = draw.normal(size=[60, 8]) + 1.5 * np.eye(8)[ids]
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors.astype(np.float32), ids


def test_the_head_is_scikit_learns_logistic_regression(cloud):
  vectors, ids = cloud
  weights = np.array([1.0, 3.0, 0.5])
  found = few_shot.fit(vectors, np.eye(3)[ids], weights, False)
  model = linear_model.LogisticRegression(
    C=few_shot.C, tol=1e-8, max_iter=1000, class_weight=dict(enumerate(weights))
  ).fit(vectors, ids)
  probabilities = special.softmax(vectors @ found[0].T + found[1], axis=1)
  wanted = model.predict_proba(vectors)
  np.testing.assert_allclose(probabilities, wanted, atol=2e-3)


def test_the_head_does_not_depend_on_the_number_of_threads():
  rng = np.random.default_rng(1)
  vectors = rng.standard_normal((100, 384))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  targets = np.eye(77)[rng.integers(0, 77, 100)]
  kernels = []
  for count in (1, 2, 4):
    with threadpoolctl.threadpool_limits(count):
      kernel, _ = few_shot.fit(vectors, targets, np.ones(77), False)
      kernels.append(kernel.tobytes())
  assert kernels[0] == kernels[1] == kernels[2]


def test_several_labels_have_a_regression_each(cloud):
  vectors, ids = cloud
  given = np.stack([ids == 0, ids > 0, np.zeros_like(ids)], axis=1)
  kernel, bias = few_shot.fit(vectors, given * 1.0, np.ones(3), True)
  model = linear_model.LogisticRegression(C=few_shot.C, tol=1e-8, max_iter=1000)
  probabilities = special.expit(vectors @ kernel.T + bias)
  for label in (0, 1):
    wanted = model.fit(vectors, given[:, label]).predict_proba(vectors)[:, 1]
    np.testing.assert_allclose(probabilities[:, label], wanted, atol=2e-3)
  assert np.all(probabilities[:, 2] < 0.1)  # No row has it.


# The script.


def write_texts(path, *labels, seed=1, rows=8):
  """Rows of a text with two words of each of its labels."""
  draw = np.random.default_rng(seed)
  lines = ["text,label"]
  for label in labels * rows:
    parts = filter(None, label.split("|"))
    words = [w for part in parts for w in draw.choice(WORDS[part], 2, False)]
    lines.append(f"{' '.join(['the', *words])},{label}")
  tiny_task.write_lines(path, lines)


def flags(release, folder, **changes):
  """The command of a training in a folder, whose tables it names."""
  return [
    f"--{name}={value}"
    for name, value in {
      "task_name": "custom",
      "few_shot": True,
      "init_checkpoint": release,
      "train_file": folder / "train.csv",
      "dev_file": folder / "dev.csv",
      "max_seq_length": 16,
      "output_dir": folder / "out",
      **changes,
    }.items()
    if value is not None
  ]


ACTIONS = ("--do_train", "--do_eval")


@pytest.fixture(scope="module")
def trained(release, tmp_path_factory):
  """A folder with tables, and the log of the training in its `out`."""
  folder = tmp_path_factory.mktemp("few_shot")
  write_texts(folder / "train.csv", *WORDS)
  write_texts(folder / "dev.csv", *WORDS, seed=2, rows=20)
  command = flags(release, folder, learning_rate=1e-3)
  return folder, scripts.fork("run_classifier.py", *command, *ACTIONS)[1]


def test_eight_rows_a_label_teach_words_of_two_topics(trained):
  folder, log = trained
  assert tiny_task.results(folder / "out")["eval_accuracy"] == 1
  assert "Training for 10 steps of 32 rows" in log
  assert json.loads((folder / "out" / "task.json").read_text())["pooling"]


def test_vectors_of_a_label_are_close(trained):
  """The encoder has learnt, not the head alone."""
  folder, _ = trained
  with open(folder / "dev.csv", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
  texts = [row["text"] for row in rows]
  is_war = np.array([row["label"] == "war" for row in rows])

  def gap(model):
    answers = bert.load(model, "vectors")(texts)
    vectors = np.array([answer["vector"] for answer in answers])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, same_label = vectors @ vectors.T, is_war[:, np.newaxis] == is_war
    return cosines[same_label].mean() - cosines[~same_label].mean()

  out = folder / "encoder"
  out.mkdir(exist_ok=True)
  for path in (folder / "out").iterdir():
    if path.name.startswith(("bert_", "vocab")):
      (out / path.name).write_bytes(path.read_bytes())
  assert gap(str(out)) > 0.3


def test_several_labels(release, tmp_path):
  labels = (*WORDS, "|".join(WORDS), "")
  write_texts(tmp_path / "train.csv", *labels)
  write_texts(tmp_path / "dev.csv", *labels, seed=2)
  given = {"multilabel": True, "learning_rate": 1e-3, "num_train_epochs": 60}
  command = flags(release, tmp_path, **given)
  scripts.fork("run_classifier.py", *command, *ACTIONS)
  assert tiny_task.results(tmp_path / "out")["eval_f1_micro"] > 0.9
  model = bert.load(tmp_path / "out")
  assert model("the city king").keys() == {"label", "labels", "probabilities"}


def test_a_teacher_teaches_rows_without_labels(trained, release, tmp_path):
  """A label is on one row each; what else is known comes from the teacher."""
  folder, _ = trained
  write_texts(tmp_path / "train.csv", *WORDS, rows=1)
  write_texts(tmp_path / "texts.csv", *WORDS, seed=3)
  with open(tmp_path / "texts.csv", encoding="utf-8") as file:
    texts = [row["text"] for row in csv.DictReader(file)]
  tiny_task.write_lines(tmp_path / "texts.txt", texts)
  command = flags(
    release,
    tmp_path,
    teacher=folder / "out",
    unlabeled_file=tmp_path / "texts.txt",
    dev_file=folder / "dev.csv",
    learning_rate=1e-3,
  )
  scripts.fork("run_classifier.py", *command, *ACTIONS)
  assert tiny_task.results(tmp_path / "out")["eval_accuracy"] == 1


def test_further_training_starts_from_a_few_shot_model(trained, tmp_path):
  """Its pooling is kept, and the head is fitted anew to more labels."""
  folder, _ = trained
  write_texts(tmp_path / "train.csv", *WORDS, "place|war")
  given = {"num_train_epochs": 2, "dev_file": folder / "dev.csv"}
  command = flags(folder / "out", tmp_path, **given)
  _, log = scripts.fork("run_classifier.py", *command, *ACTIONS)
  assert "output layer" not in log
  task = json.loads((tmp_path / "out" / "task.json").read_text())
  assert len(task["labels"]) == 3
  assert task["pooling"] == "mean"


def test_a_training_of_few_rows_advises_it(release, tmp_path):
  for name in ("train", "dev"):
    write_texts(tmp_path / f"{name}.csv", *WORDS)
  _, log = scripts.fork(
    "run_classifier.py",
    *flags(release, tmp_path, few_shot=False, freeze_layers=2),
    *ACTIONS,
  )
  assert "rows a label, --few_shot and a model of vectors" in log
  report = (tmp_path / "out" / "report.html").read_text("utf-8")
  assert "--few_shot" in report
