"""BERT's family: DistilBERT, RoBERTa, XLM-R, ELECTRA, ALBERT.

What transformers computes of tiny random models is in goldens/variants.
"""

import numpy as np
import pytest
import tensorflow as tf

import families
import modeling
from bert import variables
from bert.data import sequences
from bert.tasks import loaded_model, pretraining
from bert.training import checkpoints, model_folder, ops

TOLERANCE = 1e-5


def _our_outputs(folder, features):
  """The outputs of a model, by their names in transformers."""
  kind = "fill_mask" if "MaskedLM" in folder else None
  task, model = loaded_model.find_task(folder, kind)
  config = model.config
  wanted = modeling.variable_shapes(config) | task.head_shapes(config)
  weights = checkpoints.load_weights(
    model.checkpoint, wanted, task.optional_variables()
  )
  with variables.VariableStore(initial_values=weights):
    rows = {n: v.reshape(-1, v.shape[-1]) for n, v in features.items()}
    bert = modeling.BertModel(config, False, *rows.values())
    if kind:
      x = bert.get_sequence_output()[:2, :8]
      logits = pretraining.masked_lm_logits(
        config, modeling.reshape_to_matrix(x), bert.get_embedding_table()
      )
      return {"logits": tf.reshape(logits, [2, 8, config.vocab_size])}
    if task.kind == "vectors":
      outputs = {"last_hidden_state": bert.get_sequence_output()}
      if checkpoints.POOLER[0] in weights:
        outputs["pooler_output"] = bert.get_pooled_output()
      return outputs
    return task.head(ops.TensorOps(), bert, features)


def _check(family, head, kind):
  """Our outputs are those of transformers, except at padding."""
  features, wanted = families.outputs(family, head, kind)
  mask = features["input_mask"]
  if head == "ForMultipleChoice":
    features = {name: value[np.newaxis] for name, value in features.items()}
  ours = _our_outputs(families.path(family, head), features)
  for name, theirs in wanted.items():
    found = np.asarray(ours[name])
    if theirs.shape[:2] == mask.shape and head != "ForMultipleChoice":
      found, theirs = found[mask > 0], theirs[mask > 0]
    if head == "ForMaskedLM":
      real = mask[:2, :8] > 0
      found, theirs = found[real], theirs[real]
    np.testing.assert_allclose(found, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_model_computes_what_transformers_does(family):
  _check(family, "ForSequenceClassification", "pair")


@pytest.mark.families
@pytest.mark.parametrize("kind", ["single", "pair"])
@pytest.mark.parametrize("head", families.HEADS)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_all_heads_compute_what_transformers_does(family, head, kind):
  _check(family, head, kind)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_tokens_are_those_of_transformers(family):
  folder = families.path(family)
  tokenizer = model_folder.find_model(folder).tokenizer
  for row in families.texts(family):
    texts = [row["text"], *([row["pair"]] if "pair" in row else [])]
    parts = [tokenizer.tokenize(text) for text in texts]
    tokens, _ = sequences.join_texts(tokenizer.special, *parts)
    assert tokens == row["tokens"]
    assert tokenizer.convert_tokens_to_ids(tokens) == row["ids"]
    offsets = [span for text in texts for span in tokenizer.offsets(text)]
    specials = tokenizer.special[:2]
    theirs = [
      tuple(span)
      for token, span in zip(tokens, row["offsets"], strict=True)
      if token not in specials
    ]
    found = iter(zip(theirs, offsets, strict=True))
    for text, pieces in zip(texts, parts, strict=True):
      for _, ((start, end), ours) in zip(pieces, found, strict=False):
        if text[start:end].isspace():
          assert ours == (end, end)
        else:  # Ours do not begin with the blank before a word.
          start += len(text[start:end]) - len(text[start:end].lstrip())
          assert ours == (start, end)
