"""The classification task: its model, its metrics, its files."""

import functools
import json

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

import modeling
import run_classifier
from bert import layers, variables
from bert.contract.ops import TensorOps
from bert.contract.task import RowSet
from bert.models import checkpoints
from bert.tasks.classification import (
  glue,
  label_types,
  portable,
  task as classification,
)
from bert.tasks.classification.examples import (
  DataProcessor,
  InputExample,
  InputFeatures,
)
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
  Prediction,
)
from bert.training import estimator

LABEL_IDS = {
  "classification": [0, 2, 1, 1],
  "multilabel": [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]],
  "regression": [0.5, -1.0, 2.0, 0.0],
}


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


def make_task(kind="classification", tokenizer=None, **kwargs):
  label_type = LABEL_TYPES[kind]
  settings = ClassifierSettings(
    kwargs.pop("max_seq_length", 128), long_text=kwargs.pop("long_text", "head")
  )
  return ClassificationTask(
    settings.with_label_type(label_type),
    tokenizer,
    "T",
    metric_names=label_type.default_metrics,
    **kwargs,
  )


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
  def outputs(self, golden, values, task, kind):
    """What the head returns, and the losses."""
    features = {"label_ids": tf.constant(LABEL_IDS[kind])}
    with variables.VariableStore(initial_values=values):
      bert = modeling.BertModel(golden.config, False, *sequences(golden))
      outputs = task.head(TensorOps(), bert, features)
      return outputs, task.loss(outputs, features)

  @pytest.mark.parametrize("kind", LABEL_TYPES)
  def test_by_definition(self, golden, kind):
    values = golden_values(golden, LABEL_TYPES[kind].num_outputs)
    found, losses = self.outputs(golden, values, make_task(kind), kind)
    logits = found["logits"].numpy()
    expected = logits_of(golden, values, *sequences(golden))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    by_hand = losses_by_hand(kind, logits)
    np.testing.assert_allclose(losses, by_hand, rtol=1e-4)
    functions = {
      "classification": functools.partial(special.softmax, axis=1),
      "multilabel": special.expit,
      "regression": np.asarray,
    }
    probabilities = found["probabilities"]
    np.testing.assert_allclose(probabilities, functions[kind](logits), 1e-5)

  def test_label_weights_count_in_training_only(self, golden, no_dropout):
    task, values = balanced_task(), golden_values(golden, 3)
    losses = losses_by_hand(
      "classification", logits_of(golden, values, *sequences(golden))
    )
    outputs, found = self.outputs(golden, values, task, "classification")
    np.testing.assert_allclose(found, losses * BALANCED, 1e-4)
    label_ids = LABEL_IDS["classification"]
    answers = map(Prediction, outputs["logits"].numpy(), label_ids)
    rows = RowSet("dev", "", None, 4)
    results = task.score(rows, answers).results
    assert results["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-4)

  def test_each_window_of_a_text_has_a_weight(self, tokenizer, caplog):
    """Two windows are red, and one each green and blue."""
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
      max_seq_length=4,
      long_text="mean_windows",
      balances_labels=True,
    )
    (examples,) = task.examples("train").values()
    counts = list(map(len, task.features(examples, True)))
    assert counts == [2, 1, 1]
    with caplog.at_level("INFO", logger="absl"):
      task.log_data({"train": [RowSet("train", "", examples, 4)]})
    # 4 rows / (3 labels * rows of the label).
    assert "Label weights: red 0.667, green 1.33, blue 1.33\n" in caplog.text


class TestCreateModel:
  def test_the_originals_arguments_give_the_originals_loss(self, golden):
    with golden.store("classifier") as store:
      loss, losses, logits, probabilities = run_classifier.create_model(
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
      run_classifier.create_model(
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


def test_a_program_without_v2_behavior(golden, goldens, tmp_path):
  script = tmp_path / "v1.py"
  script.write_text(
    V1_PROGRAM.format(
      tests=str(scripts.ROOT / "tests"),
      goldens=str(goldens),
      labels=LABEL_IDS["classification"],
    )
  )
  losses, still = json.loads(scripts.fork(script)[0].splitlines()[-1])
  np.testing.assert_allclose(
    losses, golden.arrays["classifier/losses"], rtol=1e-4
  )
  assert still == []


@pytest.fixture
def no_dropout(monkeypatch):
  """Switches dropout off, as in the goldens."""
  monkeypatch.setattr(layers, "dropout", lambda x, *_: x)


def golden_input_fn(golden, is_training=False):
  rows = zip(*sequences(golden), LABEL_IDS["classification"], strict=True)
  features = [InputFeatures(*map(np.ndarray.tolist, r), y) for *r, y in rows]
  return run_classifier.input_fn_builder(features, 32, is_training, False)


class TestModelFn:
  def test_twelve_updates_are_the_originals(self, golden, tmp_path, no_dropout):
    start = str(tmp_path / "start" / "bert_model.ckpt")
    (tmp_path / "start").mkdir()
    with golden.store("classifier") as store:
      checkpoints.write_checkpoint(start, store.initial_values)
    model_fn = run_classifier.model_fn_builder(
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


class TestScore:
  @pytest.mark.parametrize("kind", LABEL_TYPES)
  def test_metrics_of_logits(self, kind):
    label_type = LABEL_TYPES[kind]
    logits = np.array([[2, 0, 1], [0, 1, 2], [1, 2, 0], [2, 0, 0]], np.float32)
    logits = logits[:, : label_type.num_outputs] - np.float32(0.5)
    task = make_task(kind)
    label_ids = np.array(LABEL_IDS[kind])
    answers = (
      task.answer(None, [{"logits": row, "label_ids": ids}])
      for row, ids in zip(logits, label_ids, strict=True)
    )
    results = task.score(RowSet("dev", "", None, 4), answers).results
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

  @pytest.mark.parametrize(("count", "wanted"), [(10, True), (9, False)])
  def test_few_rows_of_a_label_are_not_to_be_balanced(self, count, wanted):
    names = [*LABELS, *LABELS[:-1]] * 5 + LABELS[-1:] * (count - 5)
    train = [InputExample("", "a", None, name) for name in names]
    task = make_task()
    task.log_data({"train": [RowSet("train", "", train, 0)]})
    row = {"logits": np.zeros(len(LABELS), np.float32), "label_ids": 0}
    answers = iter([task.answer(None, [row])])
    dev = task.score(RowSet("dev", "", None, 1), answers)
    assert dev.can_balance == wanted


def write(task, folder, logits):
  """Writes what a task predicts for a text from its logits."""
  example = InputExample("a", "text")
  rows = RowSet("test", "", [example], 1)
  row = {"logits": np.array(logits, np.float32), "label_ids": 0}
  task.write(str(folder), rows, iter([task.answer(example, [row])]))


class TestWrite:
  def make_task(self, folder, processor, labels=("0", "1")):
    return ClassificationTask(
      ClassifierSettings(labels=labels),
      processor=processor,
      submission_dir=str(folder / "glue_submission"),
    )

  @pytest.mark.parametrize("labels", [("0", "1"), ("0", "1", "2")])
  def test_a_submission_has_the_labels_of_the_task(self, tmp_path, labels):
    class Own(glue.MrpcProcessor):
      def get_labels(self):
        return list(labels)

    # The last label is the likeliest.
    task = self.make_task(tmp_path, Own(), labels)
    write(task, tmp_path, np.arange(len(labels)))
    table = (tmp_path / "test_predictions.tsv").read_text().splitlines()
    assert table[1].split("\t")[:2] == ["a", labels[-1]]
    submission = tmp_path / "glue_submission" / "MRPC.tsv"
    if labels == ("0", "1"):
      assert submission.read_text() == "index\tprediction\n0\t1\n"
    else:
      assert not submission.parent.exists()

  def test_no_new_file_beside_an_old_submission(self, tmp_path, monkeypatch):
    """The process is killed when one of three files has its name."""
    task = self.make_task(tmp_path, glue.MrpcProcessor())
    write(task, tmp_path, [0, 1])
    old = {p: p.read_text() for p in tmp_path.rglob("*.tsv")}
    assert len(old) == 3
    rename = classification.files.rename

    def rename_one(*paths):
      rename(*paths)
      raise KeyboardInterrupt

    monkeypatch.setattr(classification.files, "rename", rename_one)
    with pytest.raises(KeyboardInterrupt):
      write(task, tmp_path, [1, 0])
    (left,) = tmp_path.rglob("*.tsv")
    assert left.read_text() != old[left]


@pytest.mark.parametrize(
  ("mean", "deviation", "is_warned"),
  [
    (3.0, 1.0, False),
    # float32 has steps of 1/128 at 1e5, and of 8 at 1e8.
    (1e5, 100.0, False),
    (1e5, 10.0, True),
    (-1e8, 1000.0, True),
  ],
)
def test_digits_that_float32_loses(mean, deviation, is_warned, caplog):
  settings = ClassifierSettings().with_label_type(
    label_types.Regression(mean, deviation)
  )
  weights = {"output_weights": np.ones([1, 2]), "output_bias": np.zeros([1])}
  portable.fold(settings, weights)
  assert ("In Hugging Face's format they are float32" in caplog.text) == (
    is_warned
  )
