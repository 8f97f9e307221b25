"""The compiled programs of a `model_fn`, one for each mode and shape of batch.

A program runs on all replicas and merges their results.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert import kernels, variables
from bert.engine import devices


class ModeKeys:
  """What a `model_fn` is called for."""

  TRAIN = "train"
  EVAL = "eval"
  PREDICT = "infer"


@dataclasses.dataclass
class EstimatorSpec:
  """What a `model_fn` returns."""

  mode: str  # a ModeKeys value
  # For TRAIN, and for EVAL if there are labels: the mean over the rows of the
  # batch, a scalar; in EVAL over the real rows.
  loss: tf.Tensor | None = None
  # Result of `create_optimizer`; for TRAIN. Nothing needs to run it: in a
  # tf.function, the control dependencies of the update suffice.
  train_op: object = None
  # Scalars for the log line and TensorBoard; for TRAIN.
  logged: dict = dataclasses.field(default_factory=dict)
  # (metric_fn, tensors), optional; for EVAL. `metric_fn` takes each tensor
  # [B, ...], of a dict by keyword and of a list by position, as an array over
  # all real rows in input order, and returns a dict of numbers.
  eval_metrics: tuple[Callable[..., dict], dict | Sequence] | None = None
  predictions: dict | None = None  # tensors [B, ...]; for EVAL and PREDICT
  # (sum, weight) pairs of scalars, for EVAL, if the loss is the sum of their
  # quotients. Each number is summed over replicas first, so that the loss is
  # that of the whole batch.
  loss_terms: Sequence[tuple[tf.Tensor, tf.Tensor]] = ()

  def __post_init__(self):
    if not isinstance(self.predictions, Mapping | None):
      raise TypeError(
        "`predictions` of an EstimatorSpec must be a dict of tensors by name, "
        f"not a {type(self.predictions).__name__}"
      )


ModelFn = Callable[..., EstimatorSpec]


class Programs:
  """Compiles a `model_fn`, and keeps the programs."""

  def __init__(
    self,
    model_fn: ModelFn,
    params: Mapping,
    store: variables.VariableStore,
    strategy: tf.distribute.Strategy,
    use_xla: bool | None,
  ):
    self._model_fn, self._params = model_fn, params
    self._store, self._strategy = store, strategy
    self._use_xla = use_xla
    self._programs = {}
    # Of the `eval_metrics` of the last EVAL program.
    self.metric_fn, self.metric_names = None, ()

  def get(
    self, mode: str, element_spec: Mapping, fuses: bool = True
  ) -> Callable[..., dict]:
    """The program of a mode, from a batch of a spec to a dict of tensors.

    If a length varies in the spec, one trace serves all lengths. `fuses` allows
    activations to be compiled as separate programs.
    """
    key = (mode, tuple(sorted(element_spec.items())), fuses)
    if key not in self._programs:
      self._programs[key] = self._compile(mode, element_spec, fuses)
    return self._programs[key]

  def run_once(self, features: Mapping[str, tf.Tensor]) -> dict:
    """The outputs of an EVAL step for a batch, computed eagerly."""
    return self._step(ModeKeys.EVAL, False)(features)

  def clear(self) -> None:
    """Drops all programs, because the `model_fn` has changed."""
    self._programs.clear()

  def _compile(self, mode, element_spec, fuses):
    # An evaluation has too few batches of each shape to repay compilation.
    fuses &= mode != ModeKeys.EVAL and devices.is_one_cpu(self._strategy)
    fuses &= not self.uses_xla(mode, element_spec)
    compute = self._step(mode, fuses)
    # A batch that is already divided among replicas has other specs.
    is_whole = all(isinstance(s, tf.TensorSpec) for s in element_spec.values())
    if self.uses_xla(mode, element_spec):
      compute = tf.function(compute, jit_compile=True, autograph=False)

    def replica_step(features):
      if is_whole:
        features = devices.share(features)
      # Given `compute` itself, a strategy would compile all replicas as one.
      return devices.gather(compute(features))

    @tf.function(autograph=False, input_signature=[element_spec])
    def run(features):
      results = self._strategy.run(replica_step, args=(features,))
      return _add_up_loss(devices.merge(self._strategy, results))

    with self._strategy.scope():
      # TensorFlow would take calls of `run` itself, by one model after another,
      # for repeated tracing, and warn.
      return run.get_concrete_function()

  def _step(self, mode, fuses):
    """A function from a replica's features to the results of a mode."""
    trains = mode == ModeKeys.TRAIN

    def step(features):
      compiled, is_forward = kernels.enabled(fuses), not trains
      with self._store, compiled, kernels.forward_only(is_forward):
        spec = self._model_fn(features, None, mode, self._params)
      if trains:
        return {"loss": spec.loss, **spec.logged}
      row = {name: features[name] for name in ("row_index", "is_real_example")}
      if mode == ModeKeys.EVAL:
        self.metric_fn, evaluated = spec.eval_metrics or (None, {})
        if not isinstance(evaluated, Mapping):
          self.metric_fn = _by_position(self.metric_fn)
          evaluated = {f"metric_{i}": x for i, x in enumerate(evaluated)}
        self.metric_names = tuple(evaluated)
        if spec.loss is not None:
          row["batch_loss"] = tf.fill(tf.shape(row["row_index"]), spec.loss)
        for index, pair in enumerate(spec.loss_terms):
          row |= zip(_names_of_term(index), pair, strict=True)
        row |= evaluated
      return {**(spec.predictions or {}), **row}

    return step

  def uses_xla(self, mode: str, element_spec: Mapping) -> bool:
    """Whether XLA compiles a mode's step."""
    if devices.is_tpu(self._strategy):
      return False  # It compiles every step by itself.
    if mode == ModeKeys.TRAIN and self._strategy.num_replicas_in_sync > 1:
      return False  # XLA cannot compile the sum over replicas.
    if self._use_xla is not None:
      return self._use_xla
    specs = tf.nest.flatten(element_spec, expand_composites=True)
    is_static = all(spec.shape.is_fully_defined() for spec in specs)
    return is_static and bool(tf.config.list_logical_devices("GPU"))

  def loop(self, dataset: tf.data.Dataset) -> Callable[[int], dict]:
    """A function that makes n updates in one call, and returns scalars [n]."""
    step = self.get(ModeKeys.TRAIN, dataset.element_spec)
    batches = iter(dataset)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def run(count):
      def body(index, scalars):
        results = step(next(batches))
        return index + 1, {
          n: scalars[n].write(index, results[n]) for n in results
        }

      scalars = {
        name: tf.TensorArray(spec.dtype, count, element_shape=[])
        for name, spec in step.structured_outputs.items()
      }
      _, scalars = tf.while_loop(
        lambda index, _: index < count,
        body,
        (tf.constant(0), scalars),
        parallel_iterations=1,
      )
      return {name: array.stack() for name, array in scalars.items()}

    with self._strategy.scope():
      compiled = run.get_concrete_function()
    return lambda count: compiled(tf.constant(count))


def _by_position(metric_fn):
  """`metric_fn` with its arguments in order, by keywords of any names."""
  return lambda **arrays: metric_fn(*arrays.values())


def _names_of_term(index):
  """The names of the two numbers of a loss term in a step's results."""
  return f"loss sum {index}", f"loss weight {index}"


def _add_up_loss(results):
  """Replaces the loss terms in results, summed over replicas, by their loss."""
  total = 0.0
  for index in itertools.count():
    terms = [results.pop(n) for n in _names_of_term(index) if n in results]
    if not terms:
      break
    total += tf.math.divide_no_nan(*terms)
    shape = tf.shape(results["row_index"])
    results["batch_loss"] = tf.fill(shape, total)
  return results
