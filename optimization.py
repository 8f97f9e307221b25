"""BERT's optimizer: Adam with decoupled weight decay, and its schedule.

Unlike in Adam (Kingma & Ba 2015), the moments are not bias-corrected by
default. Weight decay is decoupled from the moments (Loshchilov & Hutter 2019).
LAMB (You et al. 2020), for large batches, scales the update of each variable.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bert import variables  # First: `bert` makes TensorFlow load late.
import tensorflow as tf
from absl import logging

from bert import loss_scale
from bert.errors import UserError, listing
from bert.optimizer_settings import LayerRates as LayerRates, Optimization


def learning_rate_schedule(
  step: tf.Tensor | tf.Variable,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int | None,
  schedule: str = "linear",
) -> tf.Tensor:
  """The learning rate of one update: linear warmup, then one of three courses.

  "linear", that of the original, falls to 0 and counts from step 0. So when
  warmup ends, the rate falls from almost `init_lr` to
  `init_lr * (1 - num_warmup_steps / num_train_steps)`. "cosine" falls from
  `init_lr`, at the end of the warmup, to 0 along half a cosine (Loshchilov &
  Hutter 2017, equation 5, without restarts). "constant" stays at `init_lr`.

  Args:
    step: integer scalar, the number of updates made before this one.
    init_lr: peak of the rate.
    num_train_steps: number of updates after which a falling rate is 0.
    num_warmup_steps: number of warmup updates; None or 0 for no warmup.
    schedule: "linear", "cosine" or "constant".

  Raises:
    ValueError: there is no such schedule.
  """
  step = tf.cast(step, tf.float32)
  if schedule == "linear":
    # The original multiplies by the reciprocal, which rounds differently.
    done = tf.minimum(step, float(num_train_steps)) * (1.0 / num_train_steps)
    rate = init_lr * (1.0 - done)
  elif schedule == "cosine":
    warmup = num_warmup_steps or 0
    done = (step - warmup) / max(num_train_steps - warmup, 1)
    rate = init_lr * (0.5 + 0.5 * tf.cos(math.pi * tf.minimum(done, 1.0)))
  elif schedule == "constant":
    rate = init_lr * tf.ones_like(step)
  else:
    raise ValueError(f"schedule={schedule!r} is not linear, cosine or constant")
  if num_warmup_steps:
    warmup_rate = init_lr * (step * (1.0 / num_warmup_steps))
    rate = tf.where(step < float(num_warmup_steps), warmup_rate, rate)
  return rate


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

  Raises:
    RuntimeError: called in eager mode, which cannot differentiate a loss.
    ValueError: two variables have the same name.
  """
  del use_tpu
  update = Optimization(init_lr, num_train_steps, num_warmup_steps)
  train_op, _ = minimize(loss, update)
  return train_op


class Gradients(NamedTuple):
  """Gradients of a loss, before replicas average theirs.

  Attributes:
    variables: the n variables that contribute to the loss.
    dense: n tensors, each shaped like its variable. With `loss_scaling` they
      and the norms are multiplied by the scale.
    row_norms: by name, for variables that are only read by gathers, the norm of
      the rows of the gradient: one row for each that was read. The original
      computes it before it sums the rows of repeated words; `dense` has sums.
  """

  variables: list[tf.Variable]
  dense: list[tf.Tensor]
  row_norms: dict[str, tf.Tensor]

  @property
  def names(self) -> list[str]:
    """The names of the variables."""
    return [variables.name_of(variable) for variable in self.variables]


def trained_variables(update: Optimization) -> list[tf.Variable]:
  """The trainable variables whose multiple of the learning rate is not 0."""
  return [
    variable
    for variable in variables.trainable_variables()
    if update.layer_rates(variables.name_of(variable))
  ]


def compute_gradients(loss: tf.Tensor, update: Optimization) -> Gradients:
  """The Gradients of a scalar; see `minimize` for the arguments.

  Raises:
    RuntimeError: called in eager mode, which cannot differentiate a loss.
    ValueError: no trained variable contributes to the loss.
  """
  if tf.executing_eagerly():
    raise RuntimeError("call create_optimizer inside tf.function")
  if update.loss_scaling:
    loss *= loss_scale.current()
  tvars = trained_variables(update)
  others = variables.reads_of_other_variables()
  grads = tf.gradients(loss, [*tvars, *others.values()])
  _warn_of_untrained(dict(zip(others, grads[len(tvars) :], strict=True)))
  grads = grads[: len(tvars)]
  pairs = [(g, v) for g, v in zip(grads, tvars, strict=True) if g is not None]
  if not pairs:
    raise UserError(
      "no trainable variable contributes to the loss; lower --freeze_layers"
    )
  grads, tvars = zip(*pairs, strict=True)
  return Gradients(
    variables=list(tvars),
    dense=[tf.convert_to_tensor(g) for g in grads],
    row_norms={
      variables.name_of(variable): tf.norm(g.values)
      for g, variable in zip(grads, tvars, strict=True)
      if isinstance(g, tf.IndexedSlices)
    },
  )


def _warn_of_untrained(gradients):
  """Warns once if the loss depends on variables outside the stores.

  `gradients` are those of such variables, or None, by the operations that read
  them. The operations have names; the variables do not. Nor do their handles
  tell whether they are trainable.
  """
  reads = [name for name, gradient in gradients.items() if gradient is not None]
  if reads:
    logging.log_first_n(
      logging.WARNING,
      "create_optimizer does not train the variables that %s read, because "
      "they are in no VariableStore; create them with variables.get_variable, "
      "or apply tf.stop_gradient to their values",
      1,
      listing(reads),
    )


def minimize(
  loss: tf.Tensor | Gradients, update: Optimization
) -> tuple[tf.Operation, dict[str, tf.Tensor]]:
  """`create_optimizer` of a loss, or its Gradients, that also returns values.

  Returns:
    The operation, and a dict of scalars: `learning rate`, and `gradient norm`
    before clipping; with `loss_scaling` those of `loss_scale`, too.
  """
  grads = loss
  if not isinstance(loss, Gradients):
    grads = compute_gradients(loss, update)
  step = variables.global_step()
  # In a v1 graph, only data dependencies put this read before the update.
  steps_before = tf.identity(step)
  rate = learning_rate_schedule(
    steps_before,
    update.learning_rate,
    update.num_train_steps,
    update.num_warmup_steps,
    update.lr_schedule,
  )
  count = steps_before + 1 if update.adam_bias_correction else None
  if count is not None and update.loss_scaling:
    # A skipped step does not change the moments.
    count -= tf.identity(loss_scale.skipped_steps())
  norm, logged = _average_and_apply(grads, rate, count, update)
  with tf.control_dependencies([norm]):
    train_op = tf.group(step.assign_add(1), name="train_op")
  return train_op, {"learning rate": rate, "gradient norm": norm, **logged}


def _average_and_apply(grads, rate, count, update):
  """Averages gradients over replicas, and updates the variables.

  `rate` is that of this update, and `count` its number for the correction of
  the moments' bias, or None. Returns the norm, and scalars for the log.
  """
  row_norms = list(grads.row_norms.values())
  dense = grads.dense
  replica = tf.distribute.get_replica_context()
  several = replica is not None and replica.num_replicas_in_sync > 1
  if several:
    dense, row_norms = _average_over_replicas(replica, dense, row_norms)
  is_gathered = [name in grads.row_norms for name in grads.names]

  def clip_and_apply(dense, row_norms):
    # Of a gathered variable, the norm of the rows counts.
    others = [
      gradient
      for gradient, gathered in zip(dense, is_gathered, strict=True)
      if not gathered
    ]
    norm = tf.linalg.global_norm([*others, *row_norms])
    optimizer = _OPTIMIZERS[update.optimizer](
      rate,
      weight_decay_rate=update.weight_decay,
      exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
      layer_rates=update.layer_rates,
      count=count,
      gradient_scale=clip_scale(norm, update.max_grad_norm),
      is_compiled=not variables.in_v1_graph(),
    )
    applied = optimizer.apply_gradients(
      zip(dense, grads.variables, strict=True)
    )
    with tf.control_dependencies([applied]):
      return tf.identity(norm)

  if not update.loss_scaling:
    return clip_and_apply(dense, row_norms), {}

  def apply_unscaled(scale):
    return clip_and_apply(
      [gradient / scale for gradient in dense],
      [norm / scale for norm in row_norms],
    )

  return loss_scale.apply_if_finite(dense, apply_unscaled)


def _average_over_replicas(replica, dense, row_norms):
  """Gradients of the mean loss, and norms of the rows of all replicas."""
  op = tf.distribute.ReduceOp
  # On several hosts, TensorFlow asks for the device of each gradient.
  dense = replica.all_reduce(op.MEAN, list(map(tf.identity, dense)))
  if row_norms:
    squares = replica.all_reduce(op.SUM, [tf.square(n) for n in row_norms])
    row_norms = [tf.sqrt(s) / replica.num_replicas_in_sync for s in squares]
  return dense, row_norms


def clip_scale(norm: tf.Tensor, max_norm: float) -> tf.Tensor:
  """The factor that clips gradients of a global norm; NaN if not finite."""
  scale = max_norm * tf.minimum(1.0 / norm, 1.0 / max_norm)
  return tf.where(tf.math.is_finite(norm), scale, math.nan)


def adam_direction(
  grad: tf.Tensor,
  m: tf.Tensor | tf.Variable,
  v: tf.Tensor | tf.Variable,
  beta_1: float,
  beta_2: float,
  epsilon: float,
  count: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Adam's direction, and the new moments.

  `count` is the number of this update, from 1, to correct the bias of the
  moments (Kingma & Ba 2015, algorithm 1); None for no correction.
  """
  m = beta_1 * m + (1.0 - beta_1) * grad
  v = beta_2 * v + (1.0 - beta_2) * tf.square(grad)
  if count is None:
    return m / (tf.sqrt(v) + epsilon), m, v
  # 1 - beta^t, without the rounding error of a power that is close to 1.
  updates = tf.cast(count, tf.float32)
  rest_1, rest_2 = (
    -tf.math.expm1(updates * math.log(beta)) for beta in (beta_1, beta_2)
  )
  return (m / rest_1) / (tf.sqrt(v / rest_2) + epsilon), m, v


def trust_ratio(
  weight: tf.Tensor | tf.Variable, direction: tf.Tensor
) -> tf.Tensor:
  """LAMB's ||weight|| / ||direction||, a scalar; 1 if one of them is 0."""
  weight_norm, norm = tf.norm(weight), tf.norm(direction)
  ratio = tf.math.divide_no_nan(weight_norm, norm)
  return tf.where(ratio > 0, ratio, 1.0)


# Updates of variables with fewer elements are not compiled: compiling and
# starting a program would take longer than it saves.
_MIN_COMPILED = 2**15


class AdamWeightDecayOptimizer:
  """Adam with decoupled weight decay; by default without bias correction.

  Args:
    learning_rate: float or scalar tensor.
    weight_decay_rate: multiple of each weight added to its direction.
    beta_1, beta_2: decay rates of the moments.
    epsilon: added to the square root of the second moment.
    exclude_from_weight_decay: regular expressions; a variable whose name
      matches one of them is not decayed.
    name: name of the update.
    layer_rates: from a variable's name to its multiple of the learning rate.
    count: see `adam_direction`.
    gradient_scale: scalar tensor to multiply gradients by.
    is_compiled: compile the updates of large variables with XLA. Then they pass
      over each weight once, not ten times. Variables of equal shape share a
      program. Those of a MirroredStrategy are not compiled.
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
    count: tf.Tensor | None = None,
    gradient_scale: tf.Tensor | None = None,
    is_compiled: bool = False,
  ):
    self.learning_rate = learning_rate
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay
    self.name = name
    self.layer_rates = layer_rates
    self.count = count
    self.gradient_scale = gradient_scale
    self.is_compiled = is_compiled

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
      global_step: has no effect; the caller increments
        `variables.global_step()`, which selects the masks of dropout.

    Returns:
      An operation that ends after all updates.
    """
    del global_step

    @tf.function(jit_compile=True, autograph=False)
    def compiled(*arguments):
      self._update(*arguments)  # If it were returned, it would be copied.

    pairs = [(grad, v) for grad, v in grads_and_vars if grad is not None]
    moments = [
      [variables.get_slot(v, name) for name in ("adam_m", "adam_v")]
      for _, v in pairs
    ]
    updates = []
    vectors = collections.defaultdict(list)
    for (grad, variable), slots in zip(pairs, moments, strict=True):
      path = variables.name_of(variable)
      excluded = self.exclude_from_weight_decay or []
      is_decayed = not any(re.search(pattern, path) for pattern in excluded)
      layer_rate = self.layer_rates(path)
      grad = tf.convert_to_tensor(grad)
      if variable.shape.rank == 1 and not is_decayed:
        vectors[layer_rate].append((grad, variable, *slots))
        continue
      rate = self.learning_rate * layer_rate
      is_large = variable.shape.num_elements() >= _MIN_COMPILED
      # A compiled function would take each variable of a strategy, even one
      # with a single device, for the first of its shape.
      is_shared = isinstance(variable, tf.distribute.DistributedValues)
      compiles = self.is_compiled and is_large and not is_shared
      update = compiled if compiles else self._update
      m, v = slots
      updates += update(grad, variable, m, v, rate, is_decayed) or []
    for layer_rate, group in vectors.items():
      updates += self._update_vectors(group, self.learning_rate * layer_rate)
    return tf.group(*updates, name=name or self.name)

  def _update(self, grad, variable, m, v, rate, is_decayed):
    direction, next_m, next_v = self._direction(grad, m, v)
    if is_decayed:
      direction = self._decay(direction, variable)
    return [
      variable.assign_sub(rate * direction),
      m.assign(next_m),
      v.assign(next_v),
    ]

  def _update_vectors(self, group, rate):
    """`_update` for (grad, variable, m, v) of vectors that are not decayed.

    A model has many biases, so their operations would be a third of a step's.
    """
    grads, tvars, *moments = zip(*group, strict=True)
    joined = (tf.concat(parts, axis=0) for parts in (grads, *moments))
    direction, *moved = self._direction(*joined)
    # With v2 behavior disabled, shape[0] is no int.
    sizes = [variable.shape.as_list()[0] for variable in tvars]
    steps, *moved = (tf.split(x, sizes) for x in (rate * direction, *moved))
    updates = [x.assign_sub(s) for x, s in zip(tvars, steps, strict=True)]
    for slots, values in zip(moments, moved, strict=True):
      updates += [x.assign(y) for x, y in zip(slots, values, strict=True)]
    return updates

  def _direction(self, grad, m, v):
    """`adam_direction` of this optimizer."""
    if self.gradient_scale is not None:
      grad *= self.gradient_scale
    return adam_direction(
      grad, m, v, self.beta_1, self.beta_2, self.epsilon, self.count
    )

  def _decay(self, direction, variable):
    """The direction of a variable that is not excluded from weight decay."""
    return direction + self.weight_decay_rate * variable


class LambOptimizer(AdamWeightDecayOptimizer):
  """LAMB: each update has the norm of its variable (You et al. 2020, alg. 2).

  It has the arguments of AdamWeightDecayOptimizer. Variables that are excluded
  from weight decay have Adam's update, as in the authors' code. Algorithm 2
  corrects the bias of the moments; their code for BERT does not.
  """

  def _decay(self, direction, variable):
    direction = super()._decay(direction, variable)
    return trust_ratio(variable, direction) * direction


_OPTIMIZERS = {"adamw": AdamWeightDecayOptimizer, "lamb": LambOptimizer}
