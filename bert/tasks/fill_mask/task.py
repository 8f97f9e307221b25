"""The predictions of a pre-trained model: masked words and next sentences.

    model = bert.load("uncased_L-12_H-768_A-12", task="fill_mask")
    model("The capital of France is [MASK].")["text"]

The inputs are those of pre-training (Devlin et al. 2019, section 3.1). Whole
texts are scored as in Salazar et al. (2020), "Masked Language Model Scoring".
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

import modeling
from bert.contract.ops import TensorOps
from bert.contract.task import Field, Settings, Task
from bert.data import instances, masked_text, records, sequences, text_files
from bert.data.masked_text import MASK, Filled, Row
from bert.data.text_words import check_has_words
from bert.engine import onnx_graph
from bert.errors import UserError
from bert.models import checkpoints, task_file
from bert.models.resolve import Model
from bert.tasks.pretraining import task


# Number of pieces that an ONNX file lists, unless `top_k` is larger.
_MOST_PIECES = 100


@dataclasses.dataclass(frozen=True)
class MaskSettings(Settings):
  """The number of predictions to list, and what the model predicts."""

  top_k: int = 5  # number of pieces for each [MASK]
  # Whether the model tells if B follows A; an ONNX folder records it.
  next_sentence: bool = False
  fixed = ("next_sentence",)


class MaskTask(Task):
  """Masked words, and scores of texts, by a pre-trained model."""

  kind = "fill_mask"
  Settings = MaskSettings
  inputs = (Field("text"), Field("text_b", default=""))
  output_types = (("text", "DT_STRING"), ("masks", "DT_VARIANT"))

  def __init__(self, settings=None, tokenizer=None):
    super().__init__(settings, tokenizer)
    self._continuations = instances.word_continuations(tokenizer)

  @classmethod
  def default_settings(cls, config: modeling.BertConfig) -> MaskSettings:
    return MaskSettings(config.max_position_embeddings)

  def prepare(self, model: Model) -> None:
    special = self.tokenizer.special
    if checkpoints.is_graph(model.checkpoint):
      if task_file.read(model.folder)[0] != self.kind:
        raise UserError(
          f"{model.checkpoint} has no masked words; export the model again, by "
          f"export_model.py --format=onnx --part=fill_mask"
        )
      self._is_paired = model.settings(type(self)).next_sentence
    else:
      self._is_paired = _check_heads(model)
    self.settings = dataclasses.replace(
      self.settings, next_sentence=self._is_paired
    )
    self.needs_pooler = self._is_paired
    self._mask_id = self.tokenizer.vocab[special.mask]
    self._ends = special[:2]
    self._config = model.config

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    return task.variable_shapes(config, self._is_paired)

  def feature_spec(self, is_training: bool) -> records.Spec:
    return {
      **records.sequence_spec(self.settings.max_seq_length),
      "masked_lm_positions": records.Feature((1,)),
      "masked_lm_ids": records.Feature((1,)),
    }

  def output_axes(self) -> dict[str, Sequence[int | None]]:
    axes = {"ids": (None,), "probabilities": (None,), "log_prob": ()}
    return axes | ({"next_sentence": ()} if self._is_paired else {})

  def head(self, ops, bert, features: Mapping) -> dict:
    if not isinstance(ops, TensorOps):
      return self._graph_head(ops, bert, features)
    label_ids = features["masked_lm_ids"]
    _, losses, log_probs = task.get_masked_lm_output(
      self._config,
      bert.get_sequence_output(),
      bert.get_embedding_table(),
      features["masked_lm_positions"],
      label_ids,
      tf.ones_like(label_ids),
    )
    best = tf.math.top_k(log_probs, self._count(self.settings.top_k))
    outputs = {
      "ids": best.indices,
      "probabilities": tf.exp(best.values),
      "log_prob": -losses,
    }
    if self._is_paired:
      _, _, log_probs = task.get_next_sentence_output(
        self._config, bert.get_pooled_output(), label_ids * 0
      )
      outputs["next_sentence"] = tf.exp(log_probs[:, 0])
    return outputs

  def _count(self, most):
    return min(most, len(self.tokenizer.vocab))

  def _graph_head(self, ops, bert, features):
    count = self._count(max(self.settings.top_k, _MOST_PIECES))
    outputs = onnx_graph.masked_words(ops, bert, features, self._config, count)
    if self._is_paired:
      pooled = bert.get_pooled_output()
      logits = ops.output_layer(pooled, 2, "cls/seq_relationship/")
      outputs["next_sentence"] = ops.take(ops.softmax(logits), 0)
    return outputs

  def example(
    self, text: str, text_b: str = "", where: str = "the text"
  ) -> Row:
    special = self.tokenizer.special
    parts = [text, text_b] if text_b else [text]
    parts = [part.replace(MASK, special.mask) for part in parts]
    pieces, segment_ids = sequences.join_texts(
      special, *map(self.tokenizer.tokenize_masked, parts)
    )
    length = self.settings.max_seq_length
    if len(pieces) > length:
      raise UserError(
        f"{where} has {len(pieces)} pieces, more than the {length} "
        f"positions of the model; split it"
      )
    check_has_words(self.tokenizer, " ".join(parts), where)
    ids = self.tokenizer.convert_tokens_to_ids(pieces)
    masks = [i for i, piece in enumerate(pieces) if piece == special.mask]
    return Row(
      text_files.SEPARATOR.join(parts),
      pieces,
      ids,
      segment_ids,
      masks,
      bool(text_b),
    )

  def answers(self, examples: Sequence[Row], compute: Callable) -> list[Filled]:
    """The predictions for texts.

    Several masks are filled one after another, the most certain first, so each
    piece takes earlier ones into account. The listed pieces are predicted
    before any mask is filled.
    """
    first = self._ask(examples, compute)
    filled = []
    for row, at_positions in zip(examples, first, strict=True):
      masks, words = [], []
      if row.masks:
        masks = [self._candidates(answer) for answer in at_positions]
      else:
        words = masked_text.scored_words(
          (piece for piece in row.pieces if piece not in self._ends),
          (float(answer["log_prob"]) for answer in at_positions[1:]),
          self.tokenizer,
          self._continuations,
        )
      count = len(row.ids) - self.tokenizer.special.count(1 + row.is_pair)
      follows = None
      if self._is_paired and row.is_pair:
        follows = float(at_positions[0]["next_sentence"])
      filled.append(Filled(row.text, masks, words, count, follows))
    self._fill(filled, examples, first, compute)
    return filled

  def public(self, answer: Filled) -> dict:
    return answer.to_dict()

  def describe(self, answer: Filled) -> str:
    lines = [answer.text]
    for number, candidates in enumerate(answer.masks, 1):
      shown = ", ".join(f"{piece} {p:.1%}" for piece, p in candidates)
      lines.append(f"  [MASK] {number}: {shown}")
    if answer.words:
      lines += [f"  {score:8.2f}  {word}" for word, score in answer.words]
      lines.append(
        f"  pseudo-log-likelihood {answer.pseudo_log_likelihood:.2f}, "
        f"pseudo-perplexity {answer.pseudo_perplexity:.2f}"
      )
    if answer.next_sentence_probability is not None:
      lines.append(f"  B follows A: {answer.next_sentence_probability:.1%}")
    return "\n".join(lines)

  def _piece(self, index):
    return self.tokenizer.inv_vocab.get(index, "?")

  def _ask(self, rows, compute):
    """The outputs at each row's masks; without any, at [CLS] and all pieces."""
    positions = [
      row.masks
      or [0, *(i for i, p in enumerate(row.pieces) if p not in self._ends)]
      for row in rows
    ]
    flat = [
      row.features(position, self._mask_id)
      for row, chosen in zip(rows, positions, strict=True)
      for position in chosen
    ]
    return list(sequences.groups_of(compute(flat), map(len, positions)))

  def _fill(self, filled, rows, answers, compute):
    """Fills the masks of all rows, one mask per row at a time."""
    pieces = {i: {} for i, row in enumerate(rows) if row.masks}
    answers = dict(enumerate(answers))
    while open_rows := [i for i in pieces if rows[i].masks]:
      if not answers:
        again = self._ask([rows[i] for i in open_rows], compute)
        answers = dict(zip(open_rows, again, strict=True))
      for i in open_rows:
        row, outputs = rows[i], answers[i]
        best = max(
          range(len(outputs)), key=lambda k: outputs[k]["probabilities"][0]
        )
        position = row.masks.pop(best)
        row.ids[position] = int(outputs[best]["ids"][0])
        pieces[i][position] = self._piece(row.ids[position])
      answers = {}
    for i, by_position in pieces.items():
      words = [piece for _, piece in sorted(by_position.items())]
      filled[i].text = masked_text.replaced(
        filled[i].text, words, self.tokenizer, self._continuations
      )

  def _candidates(self, answer):
    best = slice(self.settings.top_k)  # A graph may list more.
    pieces = map(self._piece, map(int, answer["ids"][best]))
    shares = map(float, answer["probabilities"][best])
    return list(zip(pieces, shares, strict=True))


def _check_heads(model):
  """Whether the checkpoint also has the next-sentence head."""
  prefix = checkpoints.find_checkpoint(model.checkpoint)
  checkpoint = checkpoints.Checkpoint(prefix, weights_only=True)
  shapes = task.variable_shapes(model.config)
  missing = [name for name in shapes if name not in checkpoint]
  if any(name.startswith("cls/predictions") for name in missing):
    raise UserError(
      f"{prefix} has no {missing[0]}: it is not a pre-trained model with its "
      f"heads; pass a released model, or the --output_dir of run_pretraining.py"
    )
  return not missing
