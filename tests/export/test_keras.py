"""The Keras layers: our numbers, complete weights, and models that save."""

import subprocess
import sys

import golden_classifier
import keras
import numpy as np
import pytest
import scripts
import task_folders
import tensorflow as tf

import bert
import families
import modeling
from bert.errors import UserError
from bert.keras import Encoder, Preprocess, save_release

# Keras converts its own variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

TEXTS = ["Jim Henson made puppets.", "the mountains of the north", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden, goldens):
  """The golden model's folder; the model has no dropout."""
  path = tmp_path_factory.mktemp("keras") / "model"
  path.mkdir()
  return task_folders.write(path, "", golden, goldens)


def inputs_of(golden):
  names = ("input_word_ids", "input_mask", "input_type_ids")
  return dict(zip(names, golden_classifier.sequences(golden), strict=True))


def test_outputs_are_those_of_the_original(folder, golden):
  outputs = Encoder(folder)(inputs_of(golden))
  lowest, highest = outputs["encoder_outputs"]
  for name, found in (
    ("pooled_output", outputs["default"]),
    ("pooled_output", outputs["pooled_output"]),
    ("sequence_output", outputs["sequence_output"]),
    ("encoder_layer_0", lowest),
    ("encoder_layer_1", highest),
  ):
    wanted = golden.arrays[f"forward/{name}"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_other_models_of_the_family(family, caplog):
  features, wanted = families.outputs(family, "Model", "single")
  encoder = Encoder(families.path(family))
  names = ("input_word_ids", "input_mask", "input_type_ids")
  values = map(tf.constant, features.values())
  outputs = encoder(dict(zip(names, values, strict=True)))
  real = features["input_mask"] > 0
  found = outputs["sequence_output"].numpy()[real]
  theirs = wanted["last_hidden_state"][real]
  np.testing.assert_allclose(found, theirs, atol=1e-5, rtol=0)
  assert ("no pooler" in caplog.text) == ("pooler_output" not in wanted)


def test_texts_become_the_rows_of_the_tokenizer(folder):
  preprocess = Preprocess(folder, seq_length=8)
  rows = preprocess(tf.constant(TEXTS))
  task = bert.load(folder).task
  for text, ids, mask in zip(
    TEXTS, rows["input_word_ids"], rows["input_mask"], strict=True
  ):
    pieces = task.tokenizer.tokenize(text)[:6]
    tokens = ["[CLS]", *pieces, "[SEP]"]
    expected = task.tokenizer.convert_tokens_to_ids(tokens)
    assert ids.numpy().tolist() == expected + [0] * (8 - len(tokens))
    assert tf.reduce_sum(mask) == len(tokens)
  pairs = preprocess([tf.constant(TEXTS), tf.constant(TEXTS)])
  assert pairs["input_type_ids"].numpy().max() == 1


def classifier(folder, **options):
  """The model of the usual tutorial."""
  texts = keras.Input([], dtype="string")
  rows = Preprocess(folder, seq_length=12)(texts)
  outputs = Encoder(folder, name="encoder", **options)(rows)
  x = keras.layers.Dropout(0.1)(outputs["pooled_output"])
  return keras.Model(texts, keras.layers.Dense(2, name="logits")(x))


def test_the_usual_tutorial_trains_saves_and_returns(folder, golden, tmp_path):
  keras.utils.set_random_seed(1)  # Of the head and dropout.
  model = classifier(folder)
  encoder = model.get_layer("encoder")
  shapes = modeling.variable_shapes(golden.config)
  assert len(encoder.trainable_weights) == len(shapes)
  assert len(model.trainable_weights) == len(shapes) + 2
  before = {name: encoder.variable(name).numpy() for name in shapes}
  model.compile(
    keras.optimizers.AdamW(1e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    run_eagerly=True,  # docs/keras.md compiles it.
  )
  data = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 0])).batch(3)
  losses = model.fit(data, epochs=6, verbose=0, shuffle=False).history["loss"]
  assert losses[-1] < losses[0]
  # Every weight but those of positions without tokens gets a gradient.
  same = [
    n for n in shapes if np.array_equal(encoder.variable(n).numpy(), before[n])
  ]
  assert same == []

  path = str(tmp_path / "model.keras")
  model.save(path)
  loaded = keras.models.load_model(path)
  found, expected = (m(tf.constant(TEXTS)) for m in (loaded, model))
  np.testing.assert_allclose(found, expected, atol=1e-6)

  release = str(tmp_path / "release")
  preprocess = Preprocess(folder)
  save_release(release, loaded.get_layer("encoder"), preprocess)
  rows = Preprocess(release, seq_length=32)(tf.constant(TEXTS[:2]))
  hidden = encoder(rows)["sequence_output"]
  mask = tf.cast(rows["input_mask"], tf.float32)[..., tf.newaxis]
  mean = tf.reduce_sum(hidden * mask, 1) / tf.reduce_sum(mask, 1)
  vectors = bert.load(release)(TEXTS[:2])
  np.testing.assert_allclose(
    [answer["vector"] for answer in vectors], mean, atol=1e-5
  )
  with pytest.raises(UserError, match="not an empty folder"):
    save_release(release, encoder, preprocess)


def test_two_steps_draw_different_masks(golden, goldens):
  config = {**golden.config.to_dict(), "hidden_dropout_prob": 0.5}
  encoder, again = (Encoder(config=config, seed=7) for _ in range(2))
  for mine, other in zip(again.weights, encoder.weights, strict=True):
    mine.assign(other)
  inputs = inputs_of(golden)

  @tf.function
  def train(layer):
    return layer(inputs, training=True)["pooled_output"]

  first, second = train(encoder), train(encoder)
  assert np.abs(first - second).max() > 0.01
  # They are a function of the seed and the step.
  np.testing.assert_array_equal(train(again), first)
  quiet = [encoder(inputs)["pooled_output"] for _ in range(2)]
  np.testing.assert_array_equal(*quiet)


def test_keras_is_loaded_only_by_these_layers():
  code = (
    "import sys, bert, bert.engine.loaded_model, bert.export.saved_model;"
    "import tensorflow; assert 'keras' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", code], cwd=scripts.ROOT, check=True)


@pytest.fixture
def policy():
  """Sets the global dtype policy of Keras until the end of the test."""
  before = keras.config.dtype_policy()
  yield keras.config.set_dtype_policy
  keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("way", ["policy", "dtype", "precision"])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_mixed_precision_is_that_of_keras(folder, golden, policy, way, name):
  mixed, options = f"mixed_{name}", {}
  if way == "policy":
    policy(mixed)
  else:
    options[way] = mixed if way == "dtype" else name
  encoder = Encoder(folder, **options)
  assert (
    encoder.compute_dtype == keras.layers.Dense(2, dtype=mixed).compute_dtype
  )
  dtypes = {v.dtype for v in encoder.trainable_variables}
  assert dtypes == {keras.layers.Dense(2, dtype=mixed).variable_dtype}
  outputs = encoder(inputs_of(golden))
  assert {x.dtype.name for x in tf.nest.flatten(outputs)} == {name}
  for output in ("pooled_output", "sequence_output"):
    found = tf.cast(outputs[output], tf.float32)
    wanted = golden.arrays[f"forward/{output}"]
    np.testing.assert_allclose(found, wanted, atol=0.1)
  # Products have 16 bits: the exact numbers, rounded, differ.
  assert np.any(found != tf.cast(tf.cast(wanted, name), tf.float32))


@pytest.mark.parametrize("mixed", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_of_mixed_precision_trains_and_saves(
  folder, policy, tmp_path, mixed
):
  policy(mixed)
  keras.utils.set_random_seed(1)
  model = classifier(folder)
  encoder = model.get_layer("encoder")
  before = encoder.variable("bert/pooler/dense/kernel").numpy()
  model.compile(
    keras.optimizers.AdamW(1e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    run_eagerly=True,
  )
  data = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 0])).batch(3)
  losses = model.fit(data, epochs=6, verbose=0, shuffle=False).history["loss"]
  assert losses[-1] < losses[0]
  kernel = encoder.variable("bert/pooler/dense/kernel").numpy()
  assert kernel.dtype == np.float32
  # Updates are smaller than 16 bits can tell from a weight.
  assert 0 < np.abs(kernel - before).max() < 0.01

  path = str(tmp_path / "model.keras")
  model.save(path)
  loaded = keras.models.load_model(path)
  assert loaded.get_layer("encoder").dtype_policy.name == mixed
  found, expected = (m(tf.constant(TEXTS)) for m in (loaded, model))
  np.testing.assert_array_equal(found, expected)


def test_other_inputs_are_told_which_are_expected(folder, golden):
  encoder = Encoder(folder)
  ids, mask, segments = inputs_of(golden).values()
  names = ("input_ids", "attention_mask", "token_type_ids")
  theirs = dict(zip(names, (ids, mask, segments), strict=True))
  symbolic = keras.Input([None], dtype="int32")
  for given in (theirs, ids, symbolic, [ids, mask], {"input_word_ids": ids}):
    names = "input_word_ids, input_mask, input_type_ids"
    with pytest.raises(UserError, match=f"^an Encoder reads a dict of {names}"):
      encoder(given)
