"""What a pre-trained model predicts: masked words, and next sentences.

    filler = MaskFiller("uncased_L-12_H-768_A-12")
    filler(["The capital of France is [MASK]."])[0].text

The model is asked as it was trained (Devlin et al. 2019, section 3.1). Scores
of whole texts are those of Salazar et al. (2020), "Masked Language Model
Scoring".
"""

import numbers
import os
from collections.abc import Callable, Iterable

import tensorflow as tf

from bert.errors import UserError
from bert.data import instances, records, sequences
from bert.tasks import masked_text, pretraining
from bert.tasks.masked_text import MASK, Filled, Row, Text
from bert.training import checkpoints, model_folder
from bert.training.predictor import Predictor

_ENDS = instances.SPECIALS[:2]


class MaskFiller:
  """A pre-trained model, loaded once.

  Args:
    model: the folder of a pre-trained model, see `model_folder.find_model`, or
      a Model.
    top_k: number of pieces listed for each [MASK].
    batch_size: masked positions per batch.
    precision, runtime: see `predictor.Predictor`.

  Raises:
    UserError: the folder holds no model, or its checkpoint no pre-training
      heads; or `top_k` is not a positive integer.
  """

  def __init__(
    self,
    model: str | os.PathLike | model_folder.Model,
    top_k: int = 5,
    batch_size: int = 32,
    precision: str | None = None,
    runtime: str = "tensorflow",
  ):
    if not isinstance(model, model_folder.Model):
      model = model_folder.find_model(os.fspath(model))
    self._tokenizer = model.tokenizer
    self._continuations = instances.word_continuations(model.tokenizer)
    vocab = model.tokenizer.vocab
    if not isinstance(top_k, numbers.Integral) or top_k < 1:
      raise UserError(f"top_k={top_k} is not a whole number of at least 1")
    if MASK not in vocab:
      raise UserError(
        f"the vocabulary beside {model.checkpoint} has no {MASK}; pass a model "
        f"that was trained on masked words"
      )
    self._mask_id = vocab[MASK]
    self._length = model.config.max_position_embeddings
    self._is_paired = _check_heads(model)
    count = min(top_k, len(vocab))

    def compute(bert, features):
      return _compute(model.config, bert, features, count, self._is_paired)

    self._predictor = Predictor(
      model,
      compute,
      pretraining.variable_shapes(model.config, self._is_paired),
      optional=() if self._is_paired else checkpoints.POOLER,
      spec={
        **records.sequence_spec(self._length),
        "masked_lm_positions": records.Feature((1,)),
        "masked_lm_ids": records.Feature((1,)),
      },
      batch_size=batch_size,
      precision=precision,
      runtime=runtime,
    )

  def __call__(
    self, texts: Iterable[Text], where: Callable[[int], str] = "text {}".format
  ) -> list[Filled]:
    """What the model says about each text, or pair of texts.

    Several masks are filled one after another, the surest first, so that each
    piece takes those before into account; the listed pieces are predicted
    before any is filled.

    Args:
      texts: texts or pairs.
      where: from the number of a text, from 1, to its name in messages.

    Raises:
      UserError: a text is too long, has no words, or is no text or pair.
    """
    if isinstance(texts, str):
      raise UserError("pass a list of texts, not a single text")
    texts = list(texts)
    rows = [self._read(text, where(i)) for i, text in enumerate(texts, 1)]
    first = self._ask(rows)
    filled = []
    for text, row, found in zip(texts, rows, first, strict=True):
      masks, words = [], []
      if row.masks:
        masks = [self._candidates(answer) for answer in found]
      else:
        words = masked_text.scored_words(
          (piece for piece in row.pieces if piece not in _ENDS),
          (float(answer["log_prob"]) for answer in found[1:]),
          self._continuations,
        )
      count = len(row.ids) - 2 - row.segment_ids[-1]
      follows = None
      if self._is_paired and not isinstance(text, str) and len(text) == 2:
        follows = float(found[0]["next_sentence"])
      filled.append(
        Filled(masked_text.joined(text), masks, words, count, follows)
      )
    self._fill(filled, rows, first)
    return filled

  def check(self, text: Text, where: str) -> None:
    """Raises UserError, which names `where`, if a text cannot be read."""
    self._read(text, where)

  def _read(self, text, where):
    """A text or pair as the model reads it."""
    parts = text if isinstance(text, (tuple, list)) else [text]
    if len(parts) not in (1, 2) or not all(isinstance(p, str) for p in parts):
      raise UserError(f"{where} is not a text or a pair of texts; pass one")
    pieces, segment_ids = sequences.join_texts(
      *(masked_text.tokenize(part, self._tokenizer) for part in parts)
    )
    if len(pieces) > self._length:
      raise UserError(
        f"{where} has {len(pieces)} pieces, more than the {self._length} "
        f"positions of the model; split it"
      )
    if len(pieces) == 1 + len(parts):
      raise UserError(f"{where} has no words; pass some, or omit it")
    ids = self._tokenizer.convert_tokens_to_ids(pieces)
    masks = [i for i, piece in enumerate(pieces) if piece == MASK]
    return Row(pieces, ids, segment_ids, masks)

  def _piece(self, index):
    return self._tokenizer.inv_vocab.get(index, "?")

  def _ask(self, rows):
    """For each row, the outputs at its masks.

    Without masks, those at [CLS], where the text is left as it is, and at all
    pieces, each masked in turn.
    """
    positions = [
      row.masks or [0, *(i for i, p in enumerate(row.pieces) if p not in _ENDS)]
      for row in rows
    ]
    flat = [
      row.features(position, self._mask_id)
      for row, chosen in zip(rows, positions, strict=True)
      for position in chosen
    ]
    answers = sequences.rows_of(self._predictor(flat))
    return list(sequences.groups_of(answers, map(len, positions)))

  def _fill(self, filled, rows, answers):
    """Fills the masks of all rows, one of each at a time."""
    open_rows = [i for i, row in enumerate(rows) if row.masks]
    pieces = {i: {} for i in open_rows}
    while open_rows:
      for i in open_rows:
        row, found = rows[i], answers[i]
        best = max(
          range(len(found)), key=lambda k: found[k]["probabilities"][0]
        )
        position = row.masks.pop(best)
        row.ids[position] = int(found[best]["ids"][0])
        pieces[i][position] = self._piece(row.ids[position])
      open_rows = [i for i in open_rows if rows[i].masks]
      again = self._ask([rows[i] for i in open_rows]) if open_rows else []
      answers = dict(zip(open_rows, again, strict=True))
    for i, by_position in pieces.items():
      found = [piece for _, piece in sorted(by_position.items())]
      filled[i].text = masked_text.replaced(
        filled[i].text, found, self._continuations
      )

  def _candidates(self, answer):
    """The likeliest pieces at a mask, and their probabilities."""
    pieces = map(self._piece, map(int, answer["ids"]))
    return list(zip(pieces, map(float, answer["probabilities"]), strict=True))


def _check_heads(model):
  """Whether the checkpoint has the next-sentence head, too.

  Raises:
    UserError: it lacks the head of masked words.
  """
  prefix = checkpoints.find_checkpoint(model.checkpoint)
  known = checkpoints.Checkpoint(prefix, weights_only=True)
  shapes = pretraining.variable_shapes(model.config)
  missing = [name for name in shapes if name not in known]
  if any(name.startswith("cls/predictions") for name in missing):
    raise UserError(
      f"{prefix} has no {missing[0]}: it is not a pre-trained model with its "
      f"heads; pass a released model, or the --output_dir of run_pretraining.py"
    )
  return not missing


def _compute(config, bert, features, count, is_paired):
  """The likeliest pieces at each row's position, and other probabilities."""
  _, losses, log_probs = pretraining.get_masked_lm_output(
    config,
    bert.get_sequence_output(),
    bert.get_embedding_table(),
    features["masked_lm_positions"],
    features["masked_lm_ids"],
    tf.ones_like(features["masked_lm_ids"]),
  )
  best = tf.math.top_k(log_probs, count)
  outputs = {
    "ids": best.indices,
    "probabilities": tf.exp(best.values),
    "log_prob": -losses,
  }
  if is_paired:
    _, _, log_probs = pretraining.get_next_sentence_output(
      config, bert.get_pooled_output(), features["masked_lm_ids"] * 0
    )
    outputs["next_sentence"] = tf.exp(log_probs[:, 0])
  return outputs
