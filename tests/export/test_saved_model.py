"""Encoder and preprocessing have TF-Hub's interface and our numbers."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tokenization
from bert.export import saved_model, text_graph

SEQUENCES = ("input_word_ids", "input_mask", "input_type_ids")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, goldens):
  """The golden model with dropout, saved and loaded."""
  folder = tmp_path_factory.mktemp("model")
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, folder)
  shutil.copy(goldens / "vocab.txt", folder)
  fields = json.loads((goldens / "bert_config.json").read_text())
  assert fields["hidden_dropout_prob"] > 0
  fields["do_lower_case"] = False
  (folder / "bert_config.json").write_text(json.dumps(fields))
  module = saved_model.Encoder(str(folder))
  tf.saved_model.save(module, str(folder / "saved"), module.serving())
  return tf.saved_model.load(str(folder / "saved"))


@pytest.fixture(scope="module")
def inputs(golden):
  names = ("input_ids", "input_mask", "segment_ids")
  return {
    name: tf.constant(golden.inputs[of], tf.int32)
    for name, of in zip(SEQUENCES, names, strict=True)
  }


def test_the_encoders_numbers_are_the_originals(encoder, inputs, golden):
  known = golden.arrays
  for outputs in (encoder(inputs), encoder(inputs, training=False)):
    for name, of in (
      ("pooled_output", "forward/pooled_output"),
      ("default", "forward/pooled_output"),
      ("sequence_output", "forward/sequence_output"),
    ):
      np.testing.assert_allclose(outputs[name], known[of], rtol=0, atol=1e-5)
    layers = outputs["encoder_outputs"]
    assert len(layers) == 2
    np.testing.assert_array_equal(layers[-1], outputs["sequence_output"])
  signature = encoder.signatures["serving_default"]
  assert signature(**inputs).keys() == {"pooled_output", "sequence_output"}


def test_training_drops_other_units_each_time(encoder, inputs):
  first = encoder(inputs, training=True)["pooled_output"]
  second = encoder(inputs, training=True)["pooled_output"]
  assert np.abs(first - second).max() > 1e-3


def test_variables_and_assets(encoder, goldens):
  names = [variable.name for variable in encoder.trainable_variables]
  assert "bert/embeddings/word_embeddings:0" in names
  assert all(name.startswith("bert/") for name in names)
  assert not encoder.do_lower_case.numpy()
  path = encoder.vocab_file.asset_path.numpy().decode()
  with open(path, "rb") as reader:
    assert reader.read() == (goldens / "vocab.txt").read_bytes()


def test_word_pieces_in_json_become_a_list(tmp_path, golden, goldens):
  pieces = (goldens / "vocab.txt").read_text("utf-8").split()
  vocab = {piece: index for index, piece in enumerate(pieces)}
  content = {"model": {"type": "WordPiece", "vocab": vocab}}
  (tmp_path / "tokenizer.json").write_text(json.dumps(content))
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, tmp_path)
  shutil.copy(goldens / "bert_config.json", tmp_path)
  vocab_file = saved_model.Encoder(str(tmp_path)).vocab_file
  with open(vocab_file.asset_path.numpy(), encoding="utf-8") as reader:
    assert reader.read().split() == pieces


def test_masked_words(encoder, inputs, golden):
  positions = tf.constant(golden.inputs["masked_lm_positions"], tf.int32)
  outputs = encoder.mlm({**inputs, "masked_lm_positions": positions})
  logits = tf.reshape(outputs["mlm_logits"], [-1, golden.config.vocab_size])
  ids = golden.inputs["masked_lm_ids"].reshape(-1)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
  known = golden.arrays["forward/masked_lm_example_loss"]
  np.testing.assert_allclose(losses, known, rtol=0, atol=1e-4)
  assert outputs["pooled_output"].shape == [len(positions), 32]
  assert len(encoder.mlm.trainable_variables) > len(encoder.trainable_variables)


@pytest.fixture(scope="module")
def preprocess(tmp_path_factory, goldens):
  """The tokenizer and the preprocessing of its vocabulary, loaded."""
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  graph = text_graph.GraphTokenizer(tokenizer)
  module = saved_model.Preprocessor(graph, 16)
  folder = str(tmp_path_factory.mktemp("preprocess"))
  tf.saved_model.save(module, folder, module.serving())
  return tokenizer, tf.saved_model.load(folder)


def test_rows_of_preprocess(preprocess):
  tokenizer, loaded = preprocess
  texts = ["The city", "", "many years , before this " * 8]
  known = []
  for text in texts:
    pieces = ["[CLS]", *tokenizer.tokenize(text)[:14], "[SEP]"]
    known.append(tokenizer.convert_tokens_to_ids(pieces))
  mask = [[1] * len(ids) + [0] * (16 - len(ids)) for ids in known]
  known = [ids + [0] * (16 - len(ids)) for ids in known]
  signature = loaded.signatures["serving_default"]
  for found in (loaded(texts), signature(text=tf.constant(texts))):
    assert found["input_word_ids"].numpy().tolist() == known
    assert found["input_mask"].numpy().tolist() == mask
    assert not found["input_type_ids"].numpy().any()


def test_pairs_of_tokens(preprocess):
  tokenizer, loaded = preprocess
  first = loaded.tokenize(tf.constant(["the city was", "of"]))
  second = loaded.tokenize(tf.constant(["state", "time time time time time"]))
  assert first.shape.rank == 3
  found = loaded.bert_pack_inputs([first, second], seq_length=8)
  rows = [
    "[CLS] the city was [SEP] state [SEP] [PAD]",
    "[CLS] of [SEP] time time time time [SEP]",
  ]
  ids = [tokenizer.convert_tokens_to_ids(row.split()) for row in rows]
  assert found["input_word_ids"].numpy().tolist() == ids
  assert found["input_type_ids"].numpy().tolist() == [
    [0, 0, 0, 0, 0, 1, 1, 0],
    [0, 0, 0, 1, 1, 1, 1, 1],
  ]
  single = loaded.bert_pack_inputs([first.merge_dims(1, 2)], tf.constant(5))
  assert single["input_mask"].numpy().tolist() == [[1] * 5, [1, 1, 1, 0, 0]]


def test_special_tokens(preprocess):
  tokenizer, loaded = preprocess
  found = loaded.tokenize.get_special_tokens_dict()
  assert {name: int(value) for name, value in found.items()} == {
    "padding_id": tokenizer.vocab["[PAD]"],
    "start_of_sequence_id": tokenizer.vocab["[CLS]"],
    "end_of_segment_id": tokenizer.vocab["[SEP]"],
    "mask_id": tokenizer.vocab["[MASK]"],
    "vocab_size": len(tokenizer.vocab),
  }


def test_the_size_of_a_vocabulary_that_repeats_a_piece(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("[UNK]\n[CLS]\n[SEP]\nhe\nshe\nhe\n")
  graph = text_graph.GraphTokenizer(tokenization.FullTokenizer(str(path)))
  module = saved_model.Preprocessor(graph, 8)
  found = module.tokenize.get_special_tokens_dict()
  assert int(found["vocab_size"]) == 6
