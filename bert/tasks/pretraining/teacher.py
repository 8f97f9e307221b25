"""The teacher of a pre-training, which computes its targets in each step.

The student learns the teacher's probabilities of masked words. From pairs of
layers, it may also learn hidden states (Sanh et al. 2019, "DistilBERT"; for
another width, Jiao et al. 2020, "TinyBERT"), attention scores (TinyBERT), or
relations (Wang et al. 2020, "MiniLM"). Masks may differ between epochs, so
nothing is computed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

import modeling
import tokenization
from bert import variables
from bert.contract import distillation
from bert.data import records
from bert.errors import UserError, check_known
from bert.layers import POOLER
from bert.models import checkpoints
from bert.models.resolve import resolve
from bert.tasks.pretraining import task as pretraining

# What a layer of the student can learn from a layer of the teacher.
TARGETS = ("hidden", "attention", "relations")

# Projects hidden states of the student to the width of the teacher. By its
# name, the variable is not part of the trained model.
PROJECTION = "distillation/projection"

# Avoids a division by zero.
_EPSILON = 1e-6


class PretrainingTeacher(distillation.Distillation):
  """A pre-trained model that a student of the same vocabulary learns from.

  `hash` identifies its weights.

  Args:
    model_dir: its folder or its name; see `downloads.local_path`.
    config, tokenizer: the student's.
    layers: pairs of a student layer and the teacher layer from which it learns
      the `targets`.
    weight, temperature: see Distillation.
    precision: see BertModel.
  """

  def __init__(
    self,
    model_dir: str,
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer | None,
    layers: Sequence[tuple[int, int]],
    weight: float = 0.5,
    temperature: float = 2.0,
    precision: str = "float32",
    targets: Sequence[str] = TARGETS[:1],
  ):
    super().__init__(weight, temperature)
    model = resolve(model_dir)
    self.config, self.layers, self._targets = model.config, layers, targets
    self._precision = precision
    self._check(model_dir, config, tokenizer, model)
    shapes = modeling.variable_shapes(model.config)
    shapes |= pretraining.variable_shapes(model.config, False)
    weights = checkpoints.load_weights(model.checkpoint, shapes, POOLER)
    self.hash = checkpoints.hash_of_weights(model.checkpoint)
    self._store = variables.VariableStore(
      initial_values=weights, is_for_inference=True
    )

  def _check(self, model_dir, config, tokenizer, model):
    """Raises UserError unless the student can learn from the model."""
    flag, own = f"--teacher={model_dir}", model.config
    same = config.vocab_size == own.vocab_size
    if tokenizer:
      same &= list(tokenizer.vocab) == list(model.tokenizer.vocab)
    if not same:
      raise UserError(
        f"{flag} has another vocabulary than the student; pass a teacher with "
        f"the same"
      )
    for index, other in self.layers:
      counts = config.num_hidden_layers, own.num_hidden_layers
      if not (0 <= index < counts[0] and 0 <= other < counts[1]):
        raise UserError(
          f"--distill_layers={index}:{other}: the student has the layers 0 to "
          f"{counts[0] - 1}, and the teacher 0 to {counts[1] - 1}"
        )
    if self.layers:
      self._check_targets(flag, config)

  def _check_targets(self, flag, config):
    """Raises UserError unless the layers of both models can be compared."""
    heads = self.config.num_attention_heads
    for target in self._targets:
      check_known(f"--distill_targets={target}", target, TARGETS)
    problem = None
    if "attention" in self._targets and config.num_attention_heads != heads:
      problem = (
        f"attention: {flag} has {heads} heads, and the student "
        f"{config.num_attention_heads}; pass relations"
      )
    elif "relations" in self._targets and config.hidden_size % heads:
      problem = (
        f"relations: the size {config.hidden_size} of the student is not a "
        f"multiple of the {heads} heads of {flag}; pass hidden"
      )
    if problem:
      raise UserError(f"--distill_targets={problem}")

  def soft_loss(
    self,
    task: pretraining.PretrainingTask,
    bert: modeling.BertModel,
    outputs: Mapping[str, tf.Tensor],
    features: Mapping[str, tf.Tensor],
  ) -> tf.Tensor:
    """The soft loss of each masked position, [B, P].

    It is the divergence of the probabilities, plus the distance of each pair of
    layers in the row. `bert` and `outputs` are the student's.
    """
    del task
    positions = outputs["masked_lm_positions"]
    with self._store:
      teacher = modeling.BertModel(
        self.config,
        False,
        *(features[name] for name in records.SEQUENCES),
        precision=self._precision,
      )
      masked = teacher.sequence_output_at(positions)
      targets = pretraining.masked_lm_logits(
        self.config,
        modeling.reshape_to_matrix(masked),
        teacher.get_embedding_table(),
      )
    losses = distillation.divergence(
      outputs["masked_lm_logits"], tf.stop_gradient(targets), self.temperature
    )
    losses = tf.reshape(losses, tf.shape(positions))
    for distance in self._distances(bert, teacher, features["input_mask"]):
      losses += distance[:, tf.newaxis]
    return losses

  def _distances(self, bert, teacher, mask):
    """Yields the distance of each pair of layers in each target, float [B]."""
    heads = self.config.num_attention_heads
    for pair in self.layers:
      both = list(zip((bert, teacher), pair, strict=True))
      if "hidden" in self._targets:
        hidden = (model.get_all_encoder_layers()[i] for model, i in both)
        yield hidden_distance(*hidden, mask)
      if set(self._targets) == {"hidden"}:
        continue
      parts = [projections(*of_model, heads) for of_model in both]
      if "attention" in self._targets:
        yield score_distance(*parts, mask)
      if "relations" in self._targets:
        yield relation_distance(*parts, mask)


def hidden_distance(x: tf.Tensor, y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """The distance of the hidden states of each row, float [B].

  With equal width, it is one minus their mean cosine. Otherwise, it is the mean
  squared difference of x W and y, where W is trained with the student and
  shared by all pairs of layers (Jiao et al. 2020, equation 8).

  Args:
    x, y: float [B, S, H], where H may differ; y has no gradient.
    mask: integer [B, S], 0 at padding.
  """
  y = tf.stop_gradient(y)
  if x.shape[-1] == y.shape[-1]:
    x, y = (tf.math.l2_normalize(states, -1, _EPSILON) for states in (x, y))
    return 1.0 - _mean_of_row(tf.reduce_sum(x * y, axis=-1), mask)
  shape, initializer = [x.shape[-1], y.shape[-1]], modeling.create_initializer()
  w = variables.get_variable(PROJECTION, shape, initializer)
  squares = tf.math.squared_difference(tf.tensordot(x, w, 1), y)
  return _mean_of_row(tf.reduce_mean(squares, axis=-1), mask)


def _mean_of_row(values, mask):
  """The mean of values [B, S] where a mask is not 0, float [B]."""
  mask = tf.cast(mask, tf.float32)
  return tf.reduce_sum(values * mask, axis=1) / tf.reduce_sum(mask, axis=1)


def projections(
  model: modeling.BertModel, layer: int, num_heads: int
) -> list[tf.Tensor]:
  """Queries, keys and values of a layer, each float [B, N, S, D].

  `num_heads`, N, may differ from the model's.
  """
  x, weights = model.inputs[layer], model.blocks[layer][0].attention
  parts = modeling.projections(x, x, weights, num_heads)
  return [tf.cast(y, tf.float32) for y in parts]


def score_distance(
  x: Sequence[tf.Tensor], y: Sequence[tf.Tensor], mask: tf.Tensor
) -> tf.Tensor:
  """The mean squared difference of attention scores of each row, float [B].

  Jiao et al. (2020), equation 7: of scores before the softmax, over the heads
  and all pairs of positions.

  Args:
    x, y: queries, keys and values, each float [B, N, S, D], where D may
      differ; y has no gradient.
    mask: integer [B, S], 0 at padding.
  """
  student, teacher = (_products(query, key) for query, key, _ in (x, y))
  squares = tf.reduce_mean(
    tf.square(student - tf.stop_gradient(teacher)), axis=1
  )
  mask = tf.cast(mask, tf.float32)
  pairs = mask[:, :, tf.newaxis] * mask[:, tf.newaxis]
  return tf.reduce_sum(squares * pairs, [1, 2]) / tf.reduce_sum(pairs, [1, 2])


def relation_distance(
  x: Sequence[tf.Tensor], y: Sequence[tf.Tensor], mask: tf.Tensor
) -> tf.Tensor:
  """The distance of the relations between positions in each row, float [B].

  Wang et al. (2020), equations 5 to 8: KL(y, x) of the attention distributions,
  and of the value relations, each averaged over heads and positions. See
  `score_distance` for x, y and the mask.
  """
  losses, keys = 0.0, mask[:, tf.newaxis, tf.newaxis]
  for i, j in ((0, 1), (2, 2)):
    student, teacher = (_products(part[i], part[j]) for part in (x, y))
    teacher = tf.stop_gradient(teacher)
    losses += distillation.divergence(student, teacher, 1.0, keys)
  return _mean_of_row(tf.reduce_mean(losses, axis=1), mask)


def _products(x, y):
  """x y' / sqrt(D), float [B, N, S, S]."""
  return tf.matmul(x, y, transpose_b=True) / math.sqrt(x.shape[-1])


def parse_layers(pairs: Sequence[str]) -> list[tuple[int, int]]:
  """The pairs of layers in the values of --distill_layers, such as "0:1"."""
  try:
    return [
      tuple(map(int, pair.split(":", 1))) if ":" in pair else (int(pair),) * 2
      for pair in pairs
    ]
  except ValueError as error:
    raise UserError(
      f"--distill_layers={','.join(pairs)} is not a list of pairs; pass one "
      f"such as 0:1,1:3,2:5, a layer of the student and one of the teacher"
    ) from error
