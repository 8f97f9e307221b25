"""The classifier: its model_fn, and its use in Python."""

import functools
import json
import re
import threading

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import modeling
import tokenization
import variables
from tasks import classification
from tasks import labels as label_types
from tasks.examples import InputFeatures, input_fn_builder
from training import checkpoints, estimator

THREE = ["red", "green", "blue"]
HEADS = {
  head.kind: head
  for head in (
    label_types.Classification(THREE),
    label_types.Multilabel(THREE),
    label_types.Regression(),
  )
}
LABEL_IDS = {
  "classification": [0, 2, 1, 1],
  "multilabel": [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]],
  "regression": [0.5, -1.0, 2.0, 0.0],
}
# Words of the golden vocabulary, each a single piece.
WORDS = re.findall(
  r"\w+",
  "that with from were which this their also first after they been have during"
  " into time when city would more north other three over",
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


def head_values(num_outputs, seed=5):
  """Weights of a head that tells texts apart."""
  draw = np.random.default_rng(seed).normal
  return {
    "output_weights": draw(size=[num_outputs, 32]).astype(np.float32),
    "output_bias": draw(size=[num_outputs]).astype(np.float32),
  }


def golden_values(golden, num_outputs, seed=5):
  weights = checkpoints.Checkpoint(golden.checkpoint)
  values = {name: weights[name] for name in weights.shapes}
  return {**values, **head_values(num_outputs, seed)}


def sequences(golden):
  names = ("input_ids", "input_mask", "segment_ids")
  return [golden.inputs[name] for name in names]


def logits_of(golden, values, *batch):
  """What the definition gives: the pooled output times the head."""
  with variables.VariableStore(initial_values=values):
    model = modeling.BertModel(golden.config, False, *batch)
  pooled = model.get_pooled_output().numpy()
  return pooled @ values["output_weights"].T + values["output_bias"]


class TestCreateModel:
  def create(self, golden, values, kind, *extra):
    with variables.VariableStore(initial_values=values):
      return classification.create_model(
        golden.config,
        False,
        *sequences(golden),
        tf.constant(LABEL_IDS[kind]),
        HEADS[kind].num_outputs,
        False,
        *extra,
      )

  @pytest.mark.parametrize("kind", HEADS)
  def test_outputs(self, golden, kind):
    head = HEADS[kind]
    values = golden_values(golden, head.num_outputs)
    loss, losses, logits, probabilities = self.create(
      golden, values, kind, head
    )
    expected = logits_of(golden, values, *sequences(golden))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    by_hand = losses_by_hand(kind, logits)
    np.testing.assert_allclose(losses, by_hand, rtol=1e-4)
    assert loss.shape == []
    np.testing.assert_allclose(loss, np.mean(by_hand), rtol=1e-4)
    functions = {
      "classification": functools.partial(special.softmax, axis=1),
      "multilabel": special.expit,
      "regression": np.asarray,
    }
    np.testing.assert_allclose(
      probabilities, functions[kind](logits.numpy()), rtol=1e-5
    )

  def test_weighted_labels_by_hand(self, golden):
    values = golden_values(golden, 3)
    head = HEADS["classification"]
    weights = [3.0, 0.5, 2.0]
    loss, losses, logits, _ = self.create(
      golden, values, head.kind, head, weights
    )
    # The labels are 0, 2, 1, 1.
    expected = losses_by_hand(head.kind, logits) * [3.0, 2.0, 0.5, 0.5]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-4)

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
    assert [t.shape for t in (losses, logits, probabilities)] == [
      [4],
      [4, 3],
      [4, 3],
    ]
    assert store["output_weights"].shape == [3, 32]

  def test_a_fresh_head(self, golden):
    with variables.VariableStore() as store:
      classification.create_model(
        golden.config, False, *sequences(golden), [0] * 4, 2, False
      )
    made = {name: v.shape.as_list() for name, v in store.items()}
    shapes = classification.head_shapes(golden.config, 2)
    assert made == {**modeling.variable_shapes(golden.config), **shapes}
    # Normal of deviation 0.02, redrawn beyond two of them; the bias is 0.
    weights = store["output_weights"].numpy()
    assert 0.005 < np.std(weights) < np.max(np.abs(weights)) < 0.04
    assert not np.any(store["output_bias"])


@pytest.fixture
def no_dropout(monkeypatch):
  """The goldens were made without any."""
  monkeypatch.setattr(modeling, "dropout", lambda x, prob: x)


def features_of(golden, kind):
  rows = zip(*sequences(golden), LABEL_IDS[kind], strict=True)
  return [InputFeatures(*map(np.ndarray.tolist, r), y) for *r, y in rows]


def golden_input_fn(golden, kind="classification", is_training=False):
  features = features_of(golden, kind)
  return input_fn_builder(features, 32, is_training, False, HEADS[kind])


class TestModelFn:
  def build(self, golden, *args, **kwargs):
    return classification.model_fn_builder(
      golden.config,
      *args,
      use_tpu=False,
      use_one_hot_embeddings=False,
      **kwargs,
    )

  def test_twelve_updates_are_the_originals(self, golden, tmp_path, no_dropout):
    start = str(tmp_path / "start" / "bert_model.ckpt")
    (tmp_path / "start").mkdir()
    with golden.store("classifier") as store:
      checkpoints.write_checkpoint(start, store.initial_values)
    model_fn = self.build(golden, 3, start, 1e-3, 12, 4)
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
    # A batch of three and one that is filled up.
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
    assert [set(row) for row in rows] == [{"logits", "probabilities"}] * 4
    np.testing.assert_allclose(
      [row["logits"] for row in rows], logits, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
      [row["probabilities"] for row in rows],
      special.softmax(logits, axis=1),
      rtol=1e-4,
    )

  @pytest.mark.parametrize("kind", ["multilabel", "regression"])
  def test_other_heads(self, golden, tmp_path, kind):
    head = HEADS[kind]
    model_fn = self.build(
      golden,
      head.num_outputs,
      golden.checkpoint,
      *(1e-3, 2, 0),
      head=head,
      metric_names=head.default_metrics,
    )
    model = estimator.Estimator(model_fn, estimator.RunConfig(str(tmp_path)))
    model.train(golden_input_fn(golden, kind, True), 4, 2)
    results = model.evaluate(golden_input_fn(golden, kind), 4)
    values = {name: np.asarray(v) for name, v in model.weights.items()}
    logits = logits_of(golden, values, *sequences(golden))
    loss = np.mean(losses_by_hand(kind, logits))
    assert results["eval_loss"] == pytest.approx(loss, rel=1e-4)
    assert results["loss"] == pytest.approx(loss, rel=1e-4)
    metric_names = {f"eval_{name}" for name in head.default_metrics}
    assert metric_names < set(results)

  def test_label_weights_count_in_training_only(self, golden, no_dropout):
    weights = [3.0, 0.5, 2.0]
    model_fn = self.build(golden, 3, None, 1e-3, 10, 5, label_weights=weights)
    names = ("input_ids", "input_mask", "segment_ids", "label_ids")
    features = {name: tf.constant(golden.inputs[name]) for name in names}
    features["is_real_example"] = tf.ones([4], tf.int32)
    values = golden_values(golden, 3)
    store = variables.VariableStore(initial_values=values)

    @tf.function(autograph=False)
    def run(mode):
      with store:
        spec = model_fn(features, None, mode, {})
      return {"loss": spec.loss, **spec.logged}

    losses = losses_by_hand(
      "classification", logits_of(golden, values, *sequences(golden))
    )
    evaluated, trained = run("eval"), run("train")
    np.testing.assert_allclose(evaluated["loss"], np.mean(losses), rtol=1e-4)
    weighted = losses * [3.0, 2.0, 0.5, 0.5]
    np.testing.assert_allclose(trained["loss"], np.mean(weighted), rtol=1e-4)
    # The second update of five that warm up.
    logged = run("train")
    np.testing.assert_allclose(logged["learning rate"], 1e-3 / 5, rtol=1e-6)
    assert logged["gradient norm"].numpy() > 0

  @pytest.mark.parametrize("kind", HEADS)
  def test_metrics_of_logits(self, kind):
    head = HEADS[kind]
    logits = np.array([[2, 0, 1], [0, 1, 2], [1, 2, 0], [2, 0, 0]], np.float32)
    logits = logits[:, : head.num_outputs] - np.float32(0.5)
    results = classification.evaluate_logits(
      head,
      ["mse" if kind == "regression" else "accuracy"],
      np.array(LABEL_IDS[kind]),
      logits,
    )
    loss = np.mean(losses_by_hand(kind, logits))
    # Of sets of labels, 101 011 110 100 are given for 101 000 111 010.
    expected = {
      "classification": {"eval_accuracy": 3 / 4},
      "multilabel": {"eval_accuracy": 1 / 4},
      "regression": {"eval_mse": loss},
    }
    assert results == pytest.approx({**expected[kind], "eval_loss": loss})


SETTINGS = {"max_seq_length": 12, "long_text": "head", "is_pair": False}


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory, golden, goldens):
  """Makes the folder that a training leaves; returns it and its weights."""

  def make(kind="classification", seed=5, **settings):
    head = HEADS[kind]
    folder = tmp_path_factory.mktemp(kind)
    values = golden_values(golden, head.num_outputs, seed)
    checkpoints.write_release(
      str(folder),
      values,
      {
        "bert_config.json": golden.config.to_json_string(),
        "vocab.txt": (goldens / "vocab.txt").read_bytes(),
        **classification.release_files(head, {**SETTINGS, **settings}),
      },
    )
    return folder, values

  return make


@pytest.fixture(scope="module")
def trained(make_folder):
  """A folder, its weights and its Classifier."""
  folder, values = make_folder()
  return folder, values, classification.Classifier(str(folder))


@pytest.fixture(scope="module")
def ids_of(goldens):
  """The function of words that gives their pieces' ids, [CLS] and all."""
  vocab = tokenization.load_vocab(str(goldens / "vocab.txt"))

  def ids(*texts):
    pieces = [
      ["[CLS]", *texts[0], "[SEP]"],
      *([*t, "[SEP]"] for t in texts[1:]),
    ]
    flat = [vocab[piece] for text in pieces for piece in text]
    segments = [i for i, text in enumerate(pieces) for _ in text]
    return [np.array([row]) for row in (flat, [1] * len(flat), segments)]

  return ids


def texts_of_all_lengths(seed=0):
  draw = np.random.default_rng(seed)
  return [" ".join(draw.choice(WORDS, size)) for size in draw.permutation(12)]


class TestClassifier:
  def test_probabilities_by_definition(self, golden, trained, ids_of):
    _, values, model = trained
    texts = texts_of_all_lengths()
    # A text of more than 10 pieces loses its end.
    logits = [
      logits_of(golden, values, *ids_of(text.split()[:10]))[0] for text in texts
    ]
    expected = special.softmax(logits, axis=1)
    assert np.ptp(expected, axis=0).min() > 0.01
    found = model.probabilities(texts)
    assert (found.shape, found.dtype) == ((12, 3), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-4)

  def test_answers(self, trained):
    _, _, model = trained
    texts = texts_of_all_lengths()
    predictions = model(texts)
    found = model.probabilities(texts)
    for row, prediction in zip(found, predictions, strict=True):
      assert list(prediction.probabilities) == THREE
      assert list(prediction.probabilities.values()) == row.tolist()
      assert prediction.label == THREE[np.argmax(row)]

  @pytest.mark.parametrize("batch_size", [1, 5, 100])
  def test_whatever_the_batch_and_the_neighbours(self, trained, batch_size):
    folder, _, model = trained
    texts = texts_of_all_lengths()
    other = classification.Classifier(str(folder), batch_size)
    expected = model.probabilities(texts)
    np.testing.assert_allclose(other.probabilities(texts), expected, rtol=1e-5)
    np.testing.assert_allclose(
      other.probabilities(texts[::-1] + texts[3:5]),
      np.concatenate([expected[::-1], expected[3:5]]),
      rtol=1e-5,
    )
    alone = model.probabilities(texts[4:5])
    np.testing.assert_allclose(alone, expected[4:5], rtol=1e-5)

  def test_nothing(self, trained):
    _, _, model = trained
    assert model([]) == []
    assert model.probabilities([]).shape == (0, 3)

  def test_a_text_without_words(self, golden, trained, ids_of):
    _, values, model = trained
    logits = logits_of(golden, values, *ids_of([]))
    np.testing.assert_allclose(
      model.probabilities(["", " \t"]),
      special.softmax(np.repeat(logits, 2, axis=0), axis=1),
      rtol=1e-4,
    )

  def test_one_trace_serves_all(self, trained, monkeypatch):
    folder, _, _ = trained
    traces = []
    create_model = classification.create_model

    def counted(*args, **kwargs):
      traces.append(args)
      return create_model(*args, **kwargs)

    monkeypatch.setattr(classification, "create_model", counted)
    model = classification.Classifier(str(folder), batch_size=3)
    for text in texts_of_all_lengths():
      model([text])
    model(texts_of_all_lengths())
    assert len(traces) == 1

  def test_pairs(self, golden, make_folder, ids_of):
    folder, values = make_folder(is_pair=True)
    model = classification.Classifier(str(folder))
    assert model.is_pair
    pairs = [(WORDS[:2], WORDS[2:7]), (WORDS[:1], WORDS[1:2])]
    # Of 9 pieces, each text has its half, and what the other leaves of its.
    cut = [*pairs, (WORDS[:2], WORDS[2:9])]
    pairs.append((WORDS[:2], WORDS[2:20]))
    logits = [logits_of(golden, values, *ids_of(*pair))[0] for pair in cut]
    found = model.probabilities([tuple(map(" ".join, pair)) for pair in pairs])
    np.testing.assert_allclose(
      found, special.softmax(logits, axis=1), rtol=1e-4
    )

  def test_long_texts_in_windows(self, golden, make_folder, ids_of):
    folder, values = make_folder(long_text="mean_windows")
    model = classification.Classifier(str(folder), batch_size=2)
    # 24 pieces, where 10 find room: three windows of 8.
    windows = [WORDS[:8], WORDS[8:16], WORDS[16:24]]
    rows = [logits_of(golden, values, *ids_of(words)) for words in windows]
    short = logits_of(golden, values, *ids_of(WORDS[:3]))
    logits = np.concatenate([short, np.mean(rows, axis=0), short])
    texts = [" ".join(words) for words in (WORDS[:3], WORDS[:24], WORDS[:3])]
    np.testing.assert_allclose(
      model.probabilities(texts), special.softmax(logits, axis=1), rtol=1e-4
    )

  def test_several_labels(self, golden, make_folder, ids_of):
    folder, values = make_folder("multilabel")
    model = classification.Classifier(str(folder))
    (prediction,) = model([" ".join(WORDS[:4])])
    expected = special.expit(logits_of(golden, values, *ids_of(WORDS[:4]))[0])
    found = list(prediction.probabilities.values())
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    likely = [name for name, p in zip(THREE, expected, strict=True) if p > 0.5]
    assert prediction.label == "|".join(likely)

  def test_a_number(self, golden, make_folder, ids_of):
    folder, values = make_folder("regression")
    model = classification.Classifier(str(folder))
    (prediction,) = model([" ".join(WORDS[:4])])
    expected = logits_of(golden, values, *ids_of(WORDS[:4]))[0, 0]
    assert prediction.label == pytest.approx(expected, rel=1e-4)
    assert prediction.probabilities == {}

  def test_bfloat16_is_near(self, trained):
    folder, _, model = trained
    rough = classification.Classifier(str(folder), precision="bfloat16")
    texts = texts_of_all_lengths()
    found, expected = rough.probabilities(texts), model.probabilities(texts)
    assert found.dtype == np.float32
    assert np.any(found != expected)
    np.testing.assert_allclose(found, expected, atol=0.1)

  def test_two_side_by_side(self, trained, make_folder):
    _, _, first = trained
    folder, _ = make_folder(seed=6)
    texts = texts_of_all_lengths()
    before = first.probabilities(texts)
    second = classification.Classifier(str(folder))
    found = second.probabilities(texts)
    assert np.abs(found - before).max() > 0.01
    np.testing.assert_array_equal(first.probabilities(texts), before)
    np.testing.assert_array_equal(second.probabilities(texts), found)

  @pytest.mark.parametrize("shared", [True, False])
  def test_two_threads(self, trained, shared):
    folder, _, model = trained
    fresh = [
      classification.Classifier(str(folder)) for _ in range(1 + (not shared))
    ]
    texts = [texts_of_all_lengths(seed) for seed in range(2)]
    start = threading.Barrier(2)
    found = [None, None]

    def ask(i):
      start.wait(20)
      found[i] = [fresh[-i].probabilities(texts[i]) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=[i]) for i in range(2)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(60)
    for rows, own in zip(found, texts, strict=True):
      for again in rows:
        np.testing.assert_allclose(again, model.probabilities(own), rtol=1e-5)


class TestRelease:
  @pytest.mark.parametrize("kind", HEADS)
  def test_round_trip(self, tmp_path, kind):
    settings = {"max_seq_length": 7, "long_text": "head_tail", "is_pair": True}
    for name, text in classification.release_files(
      HEADS[kind], settings
    ).items():
      (tmp_path / name).write_text(text)
    head, found = classification.read_release(str(tmp_path))
    assert type(head) is type(HEADS[kind])
    assert list(head.labels) == list(HEADS[kind].labels)
    assert found == {"kind": kind, **settings}

  def test_without_settings_they_are_the_originals(self, tmp_path):
    head, settings = classification.read_release(str(tmp_path))
    assert head is None
    assert settings == {
      "kind": "classification",
      "max_seq_length": 128,
      "long_text": "head",
      "is_pair": False,
    }
    (tmp_path / "labels.json").write_text('["nein", "être"]', "utf-8")
    head, _ = classification.read_release(str(tmp_path))
    assert isinstance(head, label_types.Classification)
    assert head.labels == ["nein", "être"]

  @pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
      ("labels.json", "", "invalid JSON"),
      ("labels.json", '["a"', "invalid JSON"),
      ("labels.json", '{"a": 1}', "expected a JSON array"),
      ("labels.json", '"ab"', "expected a JSON array"),
      ("classifier.json", "\xff", "invalid JSON"),
      ("classifier.json", "[]", "expected a JSON object"),
      ("classifier.json", "null", "expected a JSON object"),
      ("classifier.json", '{"kind": "x"}', "kind='x' is none of classific"),
      ("classifier.json", '{"kind": 1}', "kind=1"),
      ("classifier.json", '{"max_seq_length": "9"}', "max_seq_length='9'"),
      ("classifier.json", '{"is_pair": 1}', "is_pair=1"),
    ],
  )
  def test_damaged(self, make_folder, name, text, reason):
    folder, _ = make_folder()
    (folder / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"{reason}.*; train again") as error:
      classification.Classifier(str(folder))
    assert "\n" not in str(error.value)
    if name == "classifier.json":
      assert str(folder / name) in str(error.value)

  @pytest.mark.parametrize(
    "name", ["labels.json", "bert_config.json", "bert_model.ckpt.index"]
  )
  def test_no_classifier_there(self, make_folder, name):
    folder, _ = make_folder()
    (folder / name).unlink()
    with pytest.raises(ValueError, match="does not hold a trained classifier"):
      classification.Classifier(str(folder))

  @pytest.mark.parametrize("name", ["", "nowhere"])
  def test_no_folder(self, tmp_path, name):
    with pytest.raises(ValueError, match="does not hold a trained classifier"):
      classification.Classifier(str(tmp_path / name))

  def test_no_vocabulary(self, make_folder):
    folder, _ = make_folder()
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"neither vocab.txt nor one Sentence"):
      classification.Classifier(str(folder))

  def test_labels_of_another_model(self, make_folder):
    folder, _ = make_folder()
    (folder / "labels.json").write_text('["a", "b"]')
    with pytest.raises(ValueError, match=r"output_weights has shape \[3, 32\]"):
      classification.Classifier(str(folder))

  def test_case_counts_where_it_did_in_training(self, make_folder, trained):
    folder, _ = make_folder()
    config = json.loads((folder / "bert_config.json").read_text())
    config["do_lower_case"] = False
    (folder / "bert_config.json").write_text(json.dumps(config))
    cased = classification.Classifier(str(folder))
    _, _, uncased = trained
    lower, upper = uncased.probabilities(["river year", "River YEAR"])
    np.testing.assert_allclose(lower, upper, rtol=1e-6)
    same, other = cased.probabilities(["river year", "River YEAR"])
    np.testing.assert_allclose(same, lower, rtol=1e-5)
    assert np.abs(same - other).max() > 1e-3
