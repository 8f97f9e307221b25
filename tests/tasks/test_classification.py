"""The classification task: its model, its metrics, its files."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import scripts
import tensorflow as tf
from golden_classifier import (
  LABEL_TYPES,
  LABELS,
  golden_values,
  logits_of,
  sequences,
)
from scipy import special

from bert import layers
import modeling
import tokenization
from bert import variables
from bert.errors import UserError
from bert.tasks import classification, glue, tagging
from bert.tasks import labels as label_types
from bert.tasks.examples import (
  DataProcessor,
  InputExample,
  InputFeatures,
  input_fn_builder,
)
from bert.tasks.tagged_rows import Reading
from bert.training import checkpoints, estimator
from bert.training.task import RowSet, build_model_fn

LABEL_IDS = {
  "classification": [0, 2, 1, 1],
  "multilabel": [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]],
  "regression": [0.5, -1.0, 2.0, 0.0],
}

# A pair in windows needs [CLS], two [SEP] and a piece of each text.
WINDOWS_OF_4 = (
  '{"is_pair": true, "long_text": "mean_windows", "max_seq_length": 4}'
)


def losses_by_hand(kind, logits):
  """Each row's loss in float64."""
  logits = np.asarray(logits, np.float64)
  if kind == "regression":
    return (logits[:, 0] - LABEL_IDS[kind]) ** 2
  if kind == "multilabel":
    given = np.array(LABEL_IDS[kind])
    signed = np.where(given == 1, logits, -logits)
    return -np.log(special.expit(signed)).mean(axis=1)
  return -special.log_softmax(logits, axis=1)[range(4), LABEL_IDS[kind]]


class Examples(DataProcessor):
  """A processor of given examples."""

  def __init__(self, *examples):
    self._examples = examples

  def get_example_sets(self, data_dir, set_type):
    return {"": list(self._examples)}


def make_task(kind="classification", **kwargs):
  label_type = LABEL_TYPES[kind]
  return classification.ClassificationTask(
    "T",
    kwargs.pop("processor", None),
    label_type,
    metric_names=label_type.default_metrics,
    **kwargs,
  )


def test_labels_have_names_in_messages():
  names = [list(make_task(kind).labels) for kind in LABEL_TYPES]
  assert names == [[*LABELS], [*LABELS], []]


def balanced_task():
  """A task with labels 0, 2, 1, 1, whose weights are 4/3, 2/3 and 4/3."""
  processor = Examples(
    *(
      InputExample("g", "a", None, n) for n in ("red", "blue", "green", "green")
    )
  )
  task = make_task(processor=processor, balances_labels=True)
  task.examples("train")
  return task


BALANCED = np.array([4 / 3, 4 / 3, 2 / 3, 2 / 3])  # Of these four rows.


class TestOutputs:
  def outputs(self, golden, values, task, kind, mode="eval"):
    features = {"label_ids": tf.constant(LABEL_IDS[kind])}
    with variables.VariableStore(initial_values=values):
      bert = modeling.BertModel(golden.config, False, *sequences(golden))
      return task.outputs(bert, features, mode)

  @pytest.mark.parametrize("kind", LABEL_TYPES)
  def test_by_definition(self, golden, kind):
    values = golden_values(golden, LABEL_TYPES[kind].num_outputs)
    found = self.outputs(golden, values, make_task(kind), kind)
    logits = found.predictions["logits"].numpy()
    expected = logits_of(golden, values, *sequences(golden))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    by_hand = losses_by_hand(kind, logits)
    np.testing.assert_allclose(found.per_example_loss, by_hand, rtol=1e-4)
    functions = {
      "classification": functools.partial(special.softmax, axis=1),
      "multilabel": special.expit,
      "regression": np.asarray,
    }
    probabilities = found.predictions["probabilities"]
    np.testing.assert_allclose(probabilities, functions[kind](logits), 1e-5)
    assert found.loss is None

  def test_label_weights_count_in_training_only(self, golden, no_dropout):
    task, values = balanced_task(), golden_values(golden, 3)
    losses = losses_by_hand(
      "classification", logits_of(golden, values, *sequences(golden))
    )
    for mode, weights in (("train", BALANCED), ("eval", np.ones(4))):
      found = self.outputs(golden, values, task, "classification", mode)
      np.testing.assert_allclose(found.per_example_loss, losses * weights, 1e-4)

  def test_each_window_of_a_text_has_a_weight(self, goldens, caplog):
    """Two windows are red, and one each green and blue."""
    tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
    task = make_task(
      processor=Examples(
        *(
          InputExample("g", text, None, label)
          for text, label in zip(
            ("city " * 4, "was", "the"), LABELS, strict=True
          )
        )
      ),
      tokenizer=tokenizer,
      reading=classification.Reading(4, "mean_windows"),
      balances_labels=True,
    )
    (examples,) = task.examples("train").values()
    counts = list(map(len, task.features(examples, True)))
    assert counts == [2, 1, 1]
    with caplog.at_level("INFO", logger="absl"):
      task.log_data({"train": [RowSet("train", "", examples, None, 4)]})
    # 4 rows / (3 labels * rows of the label).
    assert "Label weights: red 0.667, green 1.33, blue 1.33\n" in caplog.text

  def test_numbers_cannot_be_balanced(self):
    processor = Examples(InputExample("g", "a", None, "1"))
    task = make_task("regression", processor=processor, balances_labels=True)
    with pytest.raises(
      UserError, match="--class_weights=balanced needs labels"
    ):
      task.examples("train")


class TestCreateModel:
  def test_the_originals_arguments_give_the_originals_loss(self, golden):
    with golden.store("classifier") as store:
      loss, losses, logits, probabilities = classification.create_model(
        golden.config,
        False,
        *sequences(golden),
        golden.inputs["label_ids"],
        3,
        False,
      )
    np.testing.assert_allclose(
      loss, golden.arrays["classifier/losses"][0], rtol=1e-5
    )
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-6)
    np.testing.assert_allclose(
      probabilities, special.softmax(logits, axis=1), rtol=1e-5
    )
    assert [t.shape for t in (losses, logits)] == [[4], [4, 3]]
    assert store["output_weights"].shape == [3, 32]

  def test_a_new_output_layer(self, golden):
    with variables.VariableStore() as store:
      classification.create_model(
        golden.config, False, *sequences(golden), [0] * 4, 2, False
      )
    made = {name: v.shape.as_list() for name, v in store.items()}
    shapes = layers.output_shapes(golden.config.hidden_size, 2)
    assert made == {**modeling.variable_shapes(golden.config), **shapes}
    # Normal of deviation 0.02, redrawn beyond two of them; the bias is 0.
    weights = store["output_weights"].numpy()
    assert 0.005 < np.std(weights) < np.max(np.abs(weights)) < 0.04
    assert not np.any(store["output_bias"])


# Trains like a program for TensorFlow 1 that runs on TensorFlow 2.
V1_PROGRAM = """
import json, pathlib, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
sys.path.insert(0, {tests!r})
import golden_model, modeling, optimization, run_classifier
from golden_classifier import sequences

golden = golden_model.GoldenModel(pathlib.Path({goldens!r}))
ids, mask, types = (tf.placeholder(tf.int32, [None, None]) for _ in range(3))
labels = tf.placeholder(tf.int32, [None])
loss, *_ = run_classifier.create_model(
    golden.config, False, ids, mask, types, labels, 3, False)
train_op = optimization.create_optimizer(loss, 1e-3, 12, 4, False)
tvars = tf.trainable_variables()
assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
    tvars, golden.checkpoint)
tf.train.init_from_checkpoint(golden.checkpoint, assignment_map)
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  for variable in tvars:
    name = f"classifier/init/{{variable.op.name}}"
    if name in golden.arrays:
      variable.load(golden.arrays[name], session)
  before = session.run(tvars)
  feed = dict(zip((ids, mask, types), sequences(golden)))
  feed[labels] = {labels}
  losses = [float(session.run([loss, train_op], feed)[0]) for _ in range(12)]
  still = [v.op.name for v, x, y in zip(tvars, before, session.run(tvars))
           if (x == y).all()]
print(json.dumps([losses, still]))
"""


def test_a_program_without_v2_behavior(golden, goldens):
  code = V1_PROGRAM.format(
    tests=str(scripts.ROOT / "tests"),
    goldens=str(goldens),
    labels=LABEL_IDS["classification"],
  )
  result = subprocess.run(
    [sys.executable, "-c", code],
    cwd=scripts.ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  losses, still = json.loads(result.stdout.splitlines()[-1])
  np.testing.assert_allclose(
    losses, golden.arrays["classifier/losses"], rtol=1e-4
  )
  assert still == []


@pytest.fixture
def no_dropout(monkeypatch):
  """Switches dropout off, as in the goldens."""
  monkeypatch.setattr(layers, "dropout", lambda x, *_: x)


def golden_input_fn(golden, kind="classification", is_training=False):
  rows = zip(*sequences(golden), LABEL_IDS[kind], strict=True)
  features = [InputFeatures(*map(np.ndarray.tolist, r), y) for *r, y in rows]
  return input_fn_builder(features, 32, is_training, False, LABEL_TYPES[kind])


class TestModelFn:
  def test_twelve_updates_are_the_originals(self, golden, tmp_path, no_dropout):
    start = str(tmp_path / "start" / "bert_model.ckpt")
    (tmp_path / "start").mkdir()
    with golden.store("classifier") as store:
      checkpoints.write_checkpoint(start, store.initial_values)
    model_fn = classification.model_fn_builder(
      golden.config, 3, start, 1e-3, 12, 4, False, False
    )
    config = estimator.RunConfig(str(tmp_path / "run"))
    model = estimator.Estimator(model_fn, config)
    train_input_fn = golden_input_fn(golden, is_training=True)
    model.train(train_input_fn, 4, 12)
    trained = checkpoints.Checkpoint(str(tmp_path / "run" / "model.ckpt-12"))
    names = [n for n in golden.arrays if n.startswith("classifier/final/")]
    assert len(names) == 12
    for name in names:
      value = trained[name.removeprefix("classifier/final/")]
      np.testing.assert_allclose(
        value, golden.arrays[name], rtol=1e-3, atol=1e-5, err_msg=name
      )
    values = {name: np.asarray(v) for name, v in model.weights.items()}
    self._check_evaluation(golden, model, values)
    self._check_prediction(golden, model, values)

  def _check_evaluation(self, golden, model, values):
    logits = logits_of(golden, values, *sequences(golden))
    losses = losses_by_hand("classification", logits)
    right = np.argmax(logits, axis=1) == LABEL_IDS["classification"]
    # A batch of three rows, and one of a single row.
    results = model.evaluate(golden_input_fn(golden), 3)
    assert results == pytest.approx(
      {
        "eval_accuracy": np.mean(right),
        "eval_loss": np.mean(losses),
        "loss": np.mean(losses),
        "global_step": 12,
      },
      rel=1e-4,
    )

  def _check_prediction(self, golden, model, values):
    logits = logits_of(golden, values, *sequences(golden))
    rows = list(model.predict(golden_input_fn(golden), 3))
    names = {"logits", "probabilities", "label_ids"}
    assert [set(row) for row in rows] == [names] * 4
    np.testing.assert_allclose(
      [row["logits"] for row in rows], logits, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
      [row["probabilities"] for row in rows],
      special.softmax(logits, axis=1),
      rtol=1e-4,
    )

  @pytest.mark.parametrize("kind", ["multilabel", "regression"])
  def test_other_label_types(self, golden, tmp_path, kind):
    model_fn = build_model_fn(
      make_task(kind), golden.config, golden.checkpoint, None
    )
    model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
    results = model.evaluate(golden_input_fn(golden, kind), 4)
    values = {name: np.asarray(v) for name, v in model.weights.items()}
    logits = logits_of(golden, values, *sequences(golden))
    loss = np.mean(losses_by_hand(kind, logits))
    assert results["eval_loss"] == pytest.approx(loss, rel=1e-4)
    assert results["loss"] == pytest.approx(loss, rel=1e-4)
    names = {f"eval_{name}" for name in LABEL_TYPES[kind].default_metrics}
    assert names < set(results)


class TestScore:
  @pytest.mark.parametrize("kind", LABEL_TYPES)
  def test_metrics_of_logits(self, kind):
    label_type = LABEL_TYPES[kind]
    logits = np.array([[2, 0, 1], [0, 1, 2], [1, 2, 0], [2, 0, 0]], np.float32)
    logits = logits[:, : label_type.num_outputs] - np.float32(0.5)
    task = make_task(kind)
    label_ids = np.array(LABEL_IDS[kind])
    rows = [
      [{"logits": row, "label_ids": ids}]
      for row, ids in zip(logits, label_ids, strict=True)
    ]
    results = task.score(RowSet("dev", "", None, None, 4), iter(rows)).results
    loss = np.mean(losses_by_hand(kind, logits))
    # Of sets of labels, 101 011 110 100 are given for 101 000 111 010.
    expected = {
      "classification": {"eval_accuracy": 3 / 4},
      "multilabel": {"eval_accuracy": 1 / 4},
      "regression": {"eval_mse": loss},
    }
    expected = {**expected[kind], "eval_loss": loss, "loss": loss}
    found = {name: results[name] for name in expected}
    assert found == pytest.approx(expected)

  def test_logits_of_windows_are_averaged(self):
    windows = [
      {"logits": np.array(row, np.float32), "label_ids": np.int32(1)}
      for row in ([4, 0, 0], [0, 3, 0], [0, 3, 0])
    ]
    rows = RowSet("dev", "", None, None, 3)
    (results,) = (make_task().score(rows, iter([windows])).results,)
    # The means are 4/3, 2 and 0.
    loss = np.log(np.exp(4 / 3) + np.exp(2) + 1) - 2
    expected = dict.fromkeys(("eval_accuracy", "eval_f1_macro"), 1.0)
    expected |= {"eval_loss": loss, "loss": loss}
    assert results == pytest.approx(expected)

  def test_no_example(self):
    rows = RowSet("dev", "_mm", None, None, 0)
    with pytest.raises(UserError, match="T: the mm dev set has no example"):
      make_task().score(rows, iter([]))


class TestWritePredictions:
  @pytest.mark.parametrize("labels", [["0", "1"], ["0", "1", "2"]])
  def test_a_submission_has_the_labels_of_the_task(self, tmp_path, labels):
    class Own(glue.MrpcProcessor):
      def get_labels(self):
        return labels

    task = classification.ClassificationTask(
      "own",
      Own(),
      label_types.Classification(labels),
      submission_dir=str(tmp_path / "glue_submission"),
    )
    # The last label is the likeliest.
    rows = RowSet("test", "", [InputExample("a", "text")], None, 1)
    logits = np.arange(len(labels), dtype=np.float32)
    task.write_predictions(str(tmp_path), rows, iter([[{"logits": logits}]]))
    table = (tmp_path / "test_predictions.tsv").read_text().splitlines()
    assert table[1].split("\t")[:2] == ["a", labels[-1]]
    submission = tmp_path / "glue_submission" / "MRPC.tsv"
    if labels == ["0", "1"]:
      assert submission.read_text() == "index\tprediction\n0\t1\n"
    else:
      assert not submission.parent.exists()

  def test_no_new_file_beside_an_old_submission(self, tmp_path, monkeypatch):
    """The process is killed when one of three files has its name."""
    task = classification.ClassificationTask(
      "MRPC",
      glue.MrpcProcessor(),
      label_types.Classification(["0", "1"]),
      submission_dir=str(tmp_path / "glue_submission"),
    )
    rows = RowSet("test", "", [InputExample("a", "text")], None, 1)
    first, second = (
      iter([[{"logits": np.array(row, np.float32)}]])
      for row in ([0, 1], [1, 0])
    )
    task.write_predictions(str(tmp_path), rows, first)
    old = {p: p.read_text() for p in tmp_path.rglob("*.tsv")}
    assert len(old) == 3
    rename = classification.files.rename

    def rename_one(*paths):
      rename(*paths)
      raise KeyboardInterrupt

    monkeypatch.setattr(classification.files, "rename", rename_one)
    with pytest.raises(KeyboardInterrupt):
      task.write_predictions(str(tmp_path), rows, second)
    (left,) = tmp_path.rglob("*.tsv")
    assert left.read_text() != old[left]


class TestAssets:
  @pytest.mark.parametrize("kind", LABEL_TYPES)
  def test_round_trip(self, tmp_path, kind):
    reading = classification.Reading(7, "head_tail", True)
    assets = classification.assets(LABEL_TYPES[kind], reading)
    for name, text in assets.items():
      (tmp_path / name).write_text(text)
    label_type, found = classification.read_assets(str(tmp_path))
    assert type(label_type) is type(LABEL_TYPES[kind])
    assert list(label_type.labels) == list(LABEL_TYPES[kind].labels)
    assert found == reading

  def test_the_scale_of_numbers(self, tmp_path):
    scaled = label_types.Regression(2.5, 0.5)
    assets = classification.assets(scaled, classification.Reading())
    for name, text in assets.items():
      (tmp_path / name).write_text(text)
    found, _ = classification.read_assets(str(tmp_path))
    assert (found.mean, found.deviation) == (2.5, 0.5)

  def test_without_settings_they_are_the_originals(self, tmp_path):
    label_type, reading = classification.read_assets(str(tmp_path))
    assert label_type is None
    assert reading == classification.Reading(128, "head", False)
    (tmp_path / "labels.json").write_text('["nein", "être"]', "utf-8")
    label_type, _ = classification.read_assets(str(tmp_path))
    assert isinstance(label_type, label_types.Classification)
    assert label_type.labels == ["nein", "être"]

  def test_settings_by_hand(self, tmp_path):
    (tmp_path / "labels.json").write_text("[]")
    settings = {"kind": "regression", "mean": 2, "max_seq_length": 5}
    settings |= {"is_pair": True, "long_text": "mean_windows"}
    (tmp_path / "classifier.json").write_text(json.dumps(settings))
    label_type, found = classification.read_assets(str(tmp_path))
    assert label_type.mean == 2
    assert found == classification.Reading(5, "mean_windows", True)

  def test_the_labels_of_a_tagger_are_not_for_texts(self, tmp_path):
    for name, text in tagging.assets(["O", "B-A"], "IOB2", Reading()).items():
      (tmp_path / name).write_text(text)
    assert classification.read_assets(str(tmp_path))[0] is None

  @pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
      ("labels.json", "", "invalid JSON"),
      ("labels.json", '["a"', "invalid JSON"),
      ("labels.json", '{"a": 1}', "expected a JSON array"),
      ("labels.json", '"ab"', "expected a JSON array"),
      ("labels.json", "[0, 1]", "the label 0 is not a string"),
      ("labels.json", '["a", ["b"]]', r"the label \['b'\] is not a string"),
      ("labels.json", '["a", null]', "the label None is not a string"),
      ("labels.json", '["a", "b", "a"]', "the label 'a' occurs 2 times"),
      ("classifier.json", '{"kind": "regression", "deviation": 0}', "not abov"),
      ("classifier.json", '{"kind": "regression", "mean": NaN}', "not finite"),
      ("classifier.json", "\xff", "invalid JSON"),
      ("classifier.json", "[]", "expected a JSON object"),
      ("classifier.json", "null", "expected a JSON object"),
      ("classifier.json", '{"kind": "x"}', "kind='x' is not one of classif"),
      ("classifier.json", '{"is_pair": "yes"}', 'is_pair is "yes", not true'),
      ("classifier.json", '{"is_pair": 1}', "is_pair is 1, not true or false"),
      ("classifier.json", '{"ispair": true}', "'ispair'; known .* 'is_pair'"),
      ("classifier.json", '{"long_text": "x"}', "long_text='x'; known .*'head"),
      ("classifier.json", '{"max_seq_length": true}', "not a whole number"),
      ("classifier.json", '{"max_seq_length": 2}', "is 2, not 3 or more"),
      ("classifier.json", WINDOWS_OF_4, "is 4, not 5 or more"),
      ("classifier.json", '{"mean": "a"}', 'mean is "a", not a number'),
    ],
  )
  def test_damaged(self, tmp_path, name, text, reason):
    (tmp_path / "labels.json").write_text('["a", "b"]')
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=f"{reason}.*; copy it again") as error:
      classification.read_assets(str(tmp_path))
    assert "\n" not in str(error.value)
    assert str(tmp_path / name) in str(error.value)
