"""Texts with masks: the input of a model, and its predictions."""

import dataclasses
import math
from collections.abc import Container, Iterable, Sequence

from tokenization import FullTokenizer

# A mask in a text; the vocabulary of a model may have another piece for it.
MASK = "[MASK]"

# A text, or a pair of texts.
Text = str | tuple[str, str]


@dataclasses.dataclass
class Filled:
  """The predictions for a text."""

  text: str  # with the likeliest pieces in place of [MASK]
  masks: list[list[tuple[str, float]]]  # likeliest pieces, with probabilities
  words: list[tuple[str, float]]  # without [MASK], with log-probabilities
  num_pieces: int  # without [CLS] and [SEP]
  # Probability that B follows A, if the model was trained on pairs.
  next_sentence_probability: float | None

  @property
  def pseudo_log_likelihood(self) -> float | None:
    """The sum of the words' log-probabilities; None for a text with [MASK]."""
    return None if self.masks else math.fsum(score for _, score in self.words)

  @property
  def pseudo_perplexity(self) -> float | None:
    """exp of the mean negative log-probability of a piece, or None."""
    if self.masks or not self.num_pieces:
      return None
    return math.exp(-self.pseudo_log_likelihood / self.num_pieces)

  def to_dict(self) -> dict:
    """The fields that are known, by name."""
    fields = dataclasses.asdict(self) | {
      "pseudo_log_likelihood": self.pseudo_log_likelihood,
      "pseudo_perplexity": self.pseudo_perplexity,
    }
    return {k: v for k, v in fields.items() if v is not None and v != []}


@dataclasses.dataclass
class Row:
  """A text as the model reads it; `ids` [n] change as masks are filled."""

  text: str  # The text, or both of a pair.
  pieces: list[str]
  ids: list[int]
  segment_ids: list[int]
  masks: list[int]  # Positions of [MASK].
  is_pair: bool

  def features(self, position, masked_id):
    """The row of the text with one position masked, unless it is [CLS]."""
    ids = list(self.ids)
    label = ids[position]
    if position:
      ids[position] = masked_id
    return {
      "input_ids": ids,
      "input_mask": [1] * len(ids),
      "segment_ids": self.segment_ids,
      "masked_lm_positions": [position],
      "masked_lm_ids": [label],
    }


def replaced(
  text: str,
  pieces: Sequence[str],
  tokenizer: FullTokenizer,
  continuations: Container[str],
) -> str:
  """The text with a piece in place of each mask.

  `continuations` are the pieces that continue the word before.
  """
  filled, *spans = text.split(tokenizer.special.mask)
  for piece, span in zip(pieces, spans, strict=True):
    if piece in continuations:
      filled = filled.rstrip()
    filled += tokenizer.text_of(piece) + span
  return filled


def scored_words(
  pieces: Iterable[str],
  scores: Iterable[float],
  tokenizer: FullTokenizer,
  continuations: Container[str],
) -> list[tuple[str, float]]:
  """The words of a text, each with the sum of its pieces' scores."""
  words = []
  for piece, score in zip(pieces, scores, strict=True):
    # SentencePiece marks an unknown word by a piece of its own.
    if words and (piece in continuations or not words[-1][0]):
      word, total = words[-1]
      words[-1] = (word + tokenizer.text_of(piece), total + score)
    else:
      words.append((tokenizer.text_of(piece), score))
  return words
