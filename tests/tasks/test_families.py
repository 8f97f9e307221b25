"""BERT's family: DistilBERT, RoBERTa, XLM-R, ELECTRA, ALBERT.

What transformers computes of tiny random models is in goldens/variants.
"""

import numpy as np
import pytest
import tensorflow as tf

import bert
import families
import modeling
from bert import variables
from bert.contract import ops
from bert.data import instances, sequences
from bert.engine import loaded_model
from bert.layers import POOLER
from bert.models import checkpoints
from bert.models.resolve import resolve
from bert.tasks.pretraining import task as pretraining
from bert.tasks.squad import data as squad

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
      if POOLER[0] in weights:
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
  tokenizer = resolve(folder).tokenizer
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


def _squad_rows(family, question, context, answer):
  """The task for SQuAD of a family, and the windows of a question."""
  folder = families.path(family, "ForQuestionAnswering")
  tokenizer = resolve(folder).tokenizer
  reading = squad.ReadingSettings(40, 8, 12)
  start = context.index(answer)
  paragraph = squad.Paragraph.of(context)
  words = [
    max(i for i, first in enumerate(paragraph.char_starts) if first <= offset)
    for offset in (start, start + len(answer) - 1)
  ]
  example = squad.SquadExample(
    "id",
    question,
    paragraph.doc_tokens,
    answer,
    *words,
    paragraph=paragraph,
    answers=[answer],
    answer_starts=[start],
  )
  windows = squad.WindowMaker(tokenizer, reading)(example, True)
  return tokenizer, windows


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize(
  ("context", "answer"),
  [
    ("The old bridge over the river was closed in 1998 by the city.", "1998"),
    ("  The  old bridge, closed (in 1998). It was old.", "1998"),
    ("Who wrote it? The café – Ünïcödé.", "The café"),
    ("东京 and 北京", "北京"),
    ("The old bridge", "The"),
  ],
)
def test_an_answer_is_found_and_cut_out(family, context, answer):
  tokenizer, windows = _squad_rows(family, "Who wrote it?", context, answer)
  question = tokenizer.tokenize("Who wrote it?")
  special = tokenizer.special
  found = set()
  for window in windows:
    ids = tokenizer.convert_tokens_to_ids(window.tokens)
    assert window.input_ids[: len(ids)] == ids
    begin = [special.cls, *question, *[special.sep] * special.between]
    assert window.tokens[: len(begin)] == begin
    assert set(window.segment_ids) <= {0, int(special.has_segments)}
    if window.start_position:
      span = window.char_span(window.start_position, window.end_position)
      found.add(context[slice(*span)])
  (text,) = found
  assert answer in text
  assert len(text) <= len(answer) + 2  # A piece may have more characters.


def test_an_answer_has_no_blanks_around_it():
  """A blank before another is a piece of byte-level BPE."""
  model = bert.load(families.path("roberta", "ForQuestionAnswering"))
  words = ["The", "old", "bridge", "over", "the"]
  for context, wanted in (("The  old  ", "old"), ("    ".join(words), "the")):
    answer = model(("Who?", context))
    assert answer["answer"] == wanted
    assert context[answer["start"] : answer["end"]] == wanted


@pytest.mark.parametrize("family", ["xlm-roberta", "albert"])
def test_an_unknown_character_is_a_part_of_its_word(family):
  tokenizer = resolve(families.path(family)).tokenizer
  first, *others = tokenizer.tokenize("old\u2603bridge")
  words = instances.whole_words(tokenizer)
  assert tokenizer.unk_token in others
  assert words.continuations.issuperset(others)
  assert first not in words.continuations


@pytest.mark.parametrize("family", families.FAMILIES)
def test_words_are_labeled_at_their_first_pieces(family):
  folder = families.path(family, "ForTokenClassification")
  model = bert.load(folder)
  text = "The old bridge, over the river."
  (row,) = model.task.features([model.task.example(text)], False)
  ids = np.array(row[0]["input_ids"])
  tokenizer = model.task.tokenizer
  pieces = tokenizer.convert_ids_to_tokens(ids[ids > 0])
  marked = np.flatnonzero(row[0]["label_ids"])
  words = ["The", "old", "bridge", ",", "over", "the", "river", "."]
  assert len(marked) == len(words)
  for position, word in zip(marked, words, strict=True):
    first = tokenizer.tokenize_behind_blank(word)[0]
    assert tokenizer.vocab[first] == ids[position]
  assert tokenizer.special.sep in pieces
