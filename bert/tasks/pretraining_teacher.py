"""The teacher of a pre-training: it computes in each step, on its batch.

Sanh et al. (2019), "DistilBERT": the student learns the teacher's probabilities
of masked words, and the directions of its hidden states. Masks may differ from
epoch to epoch, so nothing is computed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

import modeling
import tokenization
from bert import variables
from bert.data import downloads, records
from bert.errors import UserError
from bert.tasks import pretraining
from bert.training import checkpoints, distillation, model_folder, run_record

# Keeps the length of a vector from being 0.
_EPSILON = 1e-6


class PretrainingTeacher:
  """A pre-trained model that a student of the same vocabulary learns from.

  Args:
    model_dir: its folder, or its name; see `downloads.local_path`.
    config: the student's BertConfig.
    tokenizer: the student's, or None if it is not known.
    layers: pairs of a layer of the student and one of the teacher, whose hidden
      states become alike.
    distillation: the weight and the temperature of the soft targets.
    precision: see BertModel.

  Attributes:
    hash: identifies the teacher's weights.

  Raises:
    UserError: the folder has no such model, or a layer does not exist.
  """

  def __init__(
    self,
    model_dir: str,
    config: modeling.BertConfig,
    tokenizer: tokenization.FullTokenizer | None,
    layers: Sequence[tuple[int, int]],
    distillation: distillation.Distillation,
    precision: str = "float32",
  ):
    model = model_folder.find_model(downloads.local_path(model_dir))
    self.config, self.layers = model.config, layers
    self.distillation, self._precision = distillation, precision
    self._check(model_dir, config, tokenizer, model)
    shapes = modeling.variable_shapes(model.config)
    shapes |= pretraining.variable_shapes(model.config, False)
    weights = checkpoints.load_weights(
      model.checkpoint, shapes, checkpoints.POOLER
    )
    self.hash = run_record.hash_of_weights(model.checkpoint)
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
      known = config.num_hidden_layers, own.num_hidden_layers
      if not (0 <= index < known[0] and 0 <= other < known[1]):
        raise UserError(
          f"--distill_layers={index}:{other}: the student has the layers 0 to "
          f"{known[0] - 1}, and the teacher 0 to {known[1] - 1}"
        )
    if self.layers and config.hidden_size != own.hidden_size:
      raise UserError(
        f"--distill_layers: the hidden states of {flag} have the size "
        f"{own.hidden_size}, and those of the student {config.hidden_size}; "
        f"omit it"
      )

  def soft_losses(
    self,
    bert: modeling.BertModel,
    logits: tf.Tensor,
    positions: tf.Tensor,
    features: Mapping[str, tf.Tensor],
  ) -> tf.Tensor:
    """The soft loss of each masked position, [B, P].

    It is the divergence of the probabilities, and for each pair of layers one
    minus the mean cosine of their hidden states in the row.

    Args:
      bert: the student's BertModel.
      logits: its logits of masked words, [B * P, V].
      positions: the masked positions, integer [B, P].
      features: the features of the batch.
    """
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
      hidden = [self._layer(teacher, other) for _, other in self.layers]
    losses = distillation.divergence(
      logits, tf.stop_gradient(targets), self.distillation.temperature
    )
    losses = tf.reshape(losses, tf.shape(positions))
    for (index, _), wanted in zip(self.layers, hidden, strict=True):
      found = self._layer(bert, index)
      distance = cosine_distance(found, wanted, features["input_mask"])
      losses += distance[:, tf.newaxis]
    return losses

  @staticmethod
  def _layer(bert, index):
    return tf.cast(bert.get_all_encoder_layers()[index], tf.float32)


def cosine_distance(x: tf.Tensor, y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """One minus the mean cosine of the vectors of each row, float [B].

  Args:
    x, y: float [B, S, H]; y has no gradient.
    mask: integer [B, S], 0 at padding.
  """
  y = tf.stop_gradient(y)
  x, y = (tf.math.l2_normalize(vectors, -1, _EPSILON) for vectors in (x, y))
  mask = tf.cast(mask, tf.float32)
  cosines = tf.reduce_sum(x * y, axis=-1) * mask
  return 1.0 - tf.reduce_sum(cosines, axis=1) / tf.reduce_sum(mask, axis=1)


def parse_layers(pairs: Sequence[str]) -> list[tuple[int, int]]:
  """The pairs of layers in the values of --distill_layers, such as "0:1".

  Raises:
    UserError: one is no pair of numbers.
  """
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
