"""Exported parts work with tensorflow-hub and Keras."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tokenization
from bert.export import saved_model, text_graph

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
hub = pytest.importorskip("tensorflow_hub")
tf_keras = pytest.importorskip("tf_keras")


@pytest.fixture(scope="module")
def parts(tmp_path_factory, goldens):
  """The folders of an encoder and its preprocessing."""
  folder = tmp_path_factory.mktemp("model")
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, folder)
  shutil.copy(goldens / "vocab.txt", folder)
  fields = json.loads((goldens / "bert_config.json").read_text())
  (folder / "bert_config.json").write_text(json.dumps(fields))
  tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))
  graph = text_graph.GraphTokenizer(tokenizer)
  paths = []
  for name, module in (
    ("encoder", saved_model.Encoder(str(folder))),
    ("preprocess", saved_model.Preprocessor(graph, 16)),
  ):
    paths.append(str(folder / name))
    tf.saved_model.save(module, paths[-1], module.serving())
  return paths


def test_load(parts):
  encoder, preprocess = map(hub.load, parts)
  outputs = encoder(preprocess(tf.constant(["the city"])), training=False)
  assert outputs["pooled_output"].shape == (1, 32)
  positions = {"masked_lm_positions": tf.constant([[1, 2]])}
  rows = preprocess(tf.constant(["the city"]))
  logits = encoder.mlm({**rows, **positions}, training=True)["mlm_logits"]
  assert logits.shape == (1, 2, 1001)


def test_fine_tuning_by_keras(parts):
  """A classifier of pairs learns which text comes first."""
  encoder_path, preprocess_path = parts
  preprocess = hub.load(preprocess_path)
  tokenize = hub.KerasLayer(preprocess.tokenize)
  pack = hub.KerasLayer(
    preprocess.bert_pack_inputs, arguments={"seq_length": 12}
  )
  encoder = hub.KerasLayer(encoder_path, trainable=True)
  texts = [tf_keras.Input([], dtype=tf.string) for _ in range(2)]
  rows = pack([tokenize(text) for text in texts])
  pooled = encoder(rows)["pooled_output"]
  model = tf_keras.Model(texts, tf_keras.layers.Dense(1)(pooled))
  model.compile(
    tf_keras.optimizers.Adam(1e-3),
    tf_keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[tf_keras.metrics.BinaryAccuracy(threshold=0.0)],
  )
  before = [np.array(v) for v in encoder.trainable_weights]
  assert len(before) == 39
  pairs = [("the city", "many years"), ("many years", "the city")] * 8
  columns = [tf.constant(column) for column in zip(*pairs, strict=True)]
  labels = tf.constant([[1.0], [0.0]] * 8)
  model.fit(columns, labels, epochs=40, batch_size=16, verbose=0)
  _, accuracy = model.evaluate(columns, labels, verbose=0)
  assert accuracy == 1
  moved = [
    np.abs(np.array(v) - old).max()
    for v, old in zip(encoder.trainable_weights, before, strict=True)
  ]
  assert np.mean(np.array(moved) > 0) > 0.9


def test_a_layer_of_texts(parts):
  encoder_path, preprocess_path = parts
  text = tf_keras.Input([], dtype=tf.string)
  rows = hub.KerasLayer(preprocess_path)(text)
  outputs = hub.KerasLayer(encoder_path)(rows)
  model = tf_keras.Model(text, outputs["sequence_output"])
  assert model(tf.constant(["the city", "a"])).shape == (2, 16, 32)
