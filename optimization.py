"""BERT's optimizer: Adam with decoupled weight decay, and its schedule.

Unlike in Adam (Kingma & Ba 2015), the moments are not bias-corrected. Weight
decay is decoupled from the moments (Loshchilov & Hutter 2019).
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

import variables  # First: it loads TensorFlow without its start-up messages.
import tensorflow as tf


def learning_rate_schedule(
  step: tf.Tensor | tf.Variable,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int | None,
) -> tf.Tensor:
  """The learning rate of one update: linear warmup, then linear decay to 0.

  The decay counts from step 0. So when warmup ends, the rate falls from almost
  `init_lr` to `init_lr * (1 - num_warmup_steps / num_train_steps)`.

  Args:
    step: integer scalar, the number of updates made before this one.
    init_lr: peak of the warmup, and start of the decay at step 0.
    num_train_steps: number of updates after which the rate is 0.
    num_warmup_steps: number of warmup updates; None or 0 for no warmup.
  """
  step = tf.cast(step, tf.float32)
  # The original multiplies by the reciprocal, which rounds differently.
  progress = tf.minimum(step, float(num_train_steps)) * (1.0 / num_train_steps)
  rate = init_lr * (1.0 - progress)
  if num_warmup_steps:
    warmup_rate = init_lr * (step * (1.0 / num_warmup_steps))
    rate = tf.where(step < float(num_warmup_steps), warmup_rate, rate)
  return rate


@dataclasses.dataclass(frozen=True)
class LayerRates:
  """Multiples of the learning rate, by variable name.

  The pooler and the task's own layers have the full rate. Each layer below has
  `decay` times the rate of the one above, and the embeddings have the lowest
  (Howard & Ruder 2018, section 3.2).

  Attributes:
    num_layers: L, number of layers of the encoder.
    decay: 1 for equal rates.
    frozen_layers: the embeddings and so many of the lowest layers are not
      trained; None to train all.
  """

  num_layers: int
  decay: float = 1.0
  frozen_layers: int | None = None

  def __call__(self, name: str) -> float:
    """The multiple for a variable; 0 if it is frozen."""
    layer = re.match(r"bert/encoder/layer_(\d+)/", name)
    if not layer and not name.startswith("bert/embeddings/"):
      return 1.0
    # Embeddings count as the layer below layer 0.
    index = int(layer[1]) if layer else -1
    if self.frozen_layers is not None and index < self.frozen_layers:
      return 0.0
    return self.decay ** (self.num_layers - index)


def create_optimizer(
  loss: tf.Tensor,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int | None,
  use_tpu: bool,
) -> tf.Operation:
  """Builds the update that minimizes `loss`, with the paper's settings (A.2).

  Inside `tf.function`, the update happens in place. In a v1 graph, it happens
  when the returned operation is run. Gradients are averaged over replicas, then
  clipped to a global norm of 1.

  Args:
    loss: scalar.
    init_lr, num_train_steps, num_warmup_steps: see `learning_rate_schedule`.
    use_tpu: has no effect; `tf.distribute` knows the device.

  Returns:
    An operation that ends after the update.

  Raises:
    RuntimeError: called in eager mode, which cannot differentiate a loss.
  """
  del use_tpu
  train_op, _ = minimize(loss, init_lr, num_train_steps, num_warmup_steps)
  return train_op


def minimize(
  loss: tf.Tensor,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int | None,
  layer_rates: Callable[[str], float] = lambda name: 1.0,
) -> tuple[tf.Operation, dict[str, tf.Tensor]]:
  """`create_optimizer` that also returns values for the log.

  Args:
    loss, init_lr, num_train_steps, num_warmup_steps: see `create_optimizer`.
    layer_rates: from a variable's name to its multiple of the learning rate; a
      variable with 0 is not trained.

  Returns:
    The operation, and a dict of scalars: `learning rate`, and `gradient norm`
    before clipping.
  """
  if tf.executing_eagerly():
    raise RuntimeError("call create_optimizer inside tf.function")
  step = variables.global_step()
  # In a v1 graph, only data dependencies put this read before the update.
  rate = learning_rate_schedule(
    tf.identity(step), init_lr, num_train_steps, num_warmup_steps
  )
  tvars = [
    variable
    for variable in variables.trainable_variables()
    if layer_rates(variables.name_of(variable))
  ]
  grads = tf.gradients(loss, tvars)
  pairs = [(g, v) for g, v in zip(grads, tvars, strict=True) if g is not None]
  if not pairs:
    raise ValueError("no trainable variable contributes to the loss")
  grads, tvars = zip(*pairs, strict=True)
  norm = _clip_and_apply(grads, tvars, rate, layer_rates)
  with tf.control_dependencies([norm]):
    train_op = tf.group(step.assign_add(1), name="train_op")
  return train_op, {"learning rate": rate, "gradient norm": norm}


def _clip_and_apply(grads, tvars, rate, layer_rates):
  """Averages and clips gradients, updates variables; returns the norm."""
  # The gradient of a gather has one row for each token. The original computes
  # the norm of these rows before it sums the rows of repeated words.
  gathered = [isinstance(g, tf.IndexedSlices) for g in grads]
  row_norms = [
    tf.norm(g.values) for g, rows in zip(grads, gathered, strict=True) if rows
  ]
  dense = [tf.convert_to_tensor(g) for g in grads]
  replica = tf.distribute.get_replica_context()
  several = replica is not None and replica.num_replicas_in_sync > 1
  if several:
    dense, row_norms = _average_over_replicas(replica, dense, row_norms)

  def clip_and_apply(dense, row_norms, rate):
    tables = [g for g, rows in zip(dense, gathered, strict=True) if not rows]
    norm = tf.linalg.global_norm([*tables, *row_norms])
    clipped, _ = tf.clip_by_global_norm(dense, 1.0, use_norm=norm)
    optimizer = AdamWeightDecayOptimizer(
      rate,
      weight_decay_rate=0.01,
      exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
      layer_rates=layer_rates,
    )
    update = optimizer.apply_gradients(zip(clipped, tvars, strict=True))
    with tf.control_dependencies([update]):
      return tf.identity(norm)

  if variables.in_v1_graph() or several:
    return clip_and_apply(dense, row_norms, rate)
  # Compiled as one program, the update passes over each weight once, not ten
  # times.
  compiled = tf.function(clip_and_apply, jit_compile=True, autograph=False)
  return compiled(dense, row_norms, rate)


def _average_over_replicas(replica, dense, row_norms):
  """Gradients of the mean loss, and norms of the rows of all replicas."""
  op = tf.distribute.ReduceOp
  dense = replica.all_reduce(op.MEAN, dense)
  if row_norms:
    squares = replica.all_reduce(op.SUM, [tf.square(n) for n in row_norms])
    row_norms = [tf.sqrt(s) / replica.num_replicas_in_sync for s in squares]
  return dense, row_norms


def adam_direction(
  grad: tf.Tensor,
  m: tf.Tensor | tf.Variable,
  v: tf.Tensor | tf.Variable,
  beta_1: float,
  beta_2: float,
  epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Adam's direction without bias correction, and the new moments."""
  m = beta_1 * m + (1.0 - beta_1) * grad
  v = beta_2 * v + (1.0 - beta_2) * tf.square(grad)
  return m / (tf.sqrt(v) + epsilon), m, v


class AdamWeightDecayOptimizer:
  """Adam without bias correction, with decoupled weight decay.

  Args:
    learning_rate: float or scalar tensor.
    weight_decay_rate: multiple of each weight added to its direction.
    beta_1, beta_2: decay rates of the moments.
    epsilon: added to the square root of the second moment.
    exclude_from_weight_decay: regular expressions; a variable whose name
      matches one of them is not decayed.
    name: name of the update.
    layer_rates: from a variable's name to its multiple of the learning rate.
  """

  def __init__(
    self,
    learning_rate: float | tf.Tensor,
    weight_decay_rate: float = 0.0,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    exclude_from_weight_decay: Sequence[str] | None = None,
    name: str = "AdamWeightDecayOptimizer",
    layer_rates: Callable[[str], float] = lambda name: 1.0,
  ):
    self.learning_rate = learning_rate
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay
    self.name = name
    self.layer_rates = layer_rates

  def apply_gradients(
    self,
    grads_and_vars: Iterable[
      tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]
    ],
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Updates each variable that has a gradient, and its moments.

    Args:
      grads_and_vars: (gradient, variable) pairs; a variable with gradient None
        is not changed and gets no moments.
      global_step: has no effect; the caller increments it.
      name: name of the update.

    Returns:
      An operation that ends after all updates.
    """
    del global_step
    updates = []
    for grad, variable in grads_and_vars:
      if grad is not None:
        updates += self._update(tf.convert_to_tensor(grad), variable)
    return tf.group(*updates, name=name or self.name)

  def _update(self, grad, variable):
    m = variables.get_slot(variable, "adam_m")
    v = variables.get_slot(variable, "adam_v")
    direction, next_m, next_v = adam_direction(
      grad, m, v, self.beta_1, self.beta_2, self.epsilon
    )
    name = variables.name_of(variable)
    excluded = self.exclude_from_weight_decay or []
    if not any(re.search(pattern, name) for pattern in excluded):
      direction += self.weight_decay_rate * variable
    multiple = self.layer_rates(name)
    if multiple != 1.0:
      direction *= multiple
    return [
      variable.assign_sub(self.learning_rate * direction),
      m.assign(next_m),
      v.assign(next_v),
    ]
