"""Named variables: the only module that creates, finds and lists them.

A released checkpoint identifies a weight by its full name, for instance
`bert/encoder/layer_0/attention/self/query/kernel`. Model code requests a
variable by its name. The active `VariableStore` creates it on the first request
and returns the same one afterwards, so TensorFlow may trace a `model_fn` any
number of times. While a v1 graph is built, TensorFlow's own variable scopes
serve the requests instead.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf


class VariableStore:
  """The variables of one model by full name.

  As a context manager, it serves the requests of this thread. Enter it inside
  the function passed to `Strategy.run`: each replica has a thread. A default
  store serves requests outside any context.

  Args:
    seed: int, determines random initial values and dropout masks.
    initial_values: mapping from name to array, which replaces initializers, or
      to a function from the initialized array to another.
    is_for_inference: whether `storage_dtype` may be of 16 bits.
  """

  def __init__(
    self,
    seed: int = 1,
    initial_values: Mapping[str, object] | None = None,
    is_for_inference: bool = False,
  ):
    self.seed = seed
    self.is_for_inference = is_for_inference
    self.initial_values = {} if initial_values is None else initial_values
    self._variables = {}
    self._slot_owners = {}
    with _stores_lock:
      _stores.add(self)

  def __enter__(self) -> VariableStore:
    _local.stack.append(_Frame(self))
    return self

  def __exit__(self, *exc_info):
    _local.stack.pop()

  def __contains__(self, name: str) -> bool:
    return name in self._variables

  def __getitem__(self, name: str) -> tf.Variable:
    return self._variables[name]

  def items(self) -> list[tuple[str, tf.Variable]]:
    """(name, variable) pairs in order of creation."""
    return list(self._variables.items())

  def trainable(self) -> list[tf.Variable]:
    """The trainable variables in order of creation."""
    return [v for v in self._variables.values() if v.trainable]

  def get(
    self,
    name: str,
    shape: Sequence[int],
    initializer: Callable[..., tf.Tensor] | None,
    dtype: tf.DType | str = "float32",
    trainable: bool = True,
  ) -> tf.Variable:
    """The variable of that full name and shape, which is created if necessary.

    The initializer is a callable (shape, dtype) -> tensor, or None for zeros.
    """
    variable = self._variables.get(name)
    if variable is None:
      dtype = tf.as_dtype(dtype)
      variable = self._create(name, list(shape), initializer, dtype, trainable)
    if variable.shape.as_list() != list(shape):
      raise ValueError(
        f"variable {name} has shape {variable.shape.as_list()} in the "
        f"checkpoint or an earlier model, but {list(shape)} in this model; a "
        f"second model needs a VariableStore of its own"
      )
    self._variables[name] = variable
    return variable

  def check_owner(self, variable: tf.Variable) -> None:
    """Raises ValueError if another variable of that name has slots."""
    name = name_of(variable)
    if self._slot_owners.setdefault(name, variable) is not variable:
      raise ValueError(
        f"two variables named {name} would share the moments of Adam; pass "
        f"another name to tf.Variable, or use another VariableStore"
      )

  def free_with(self, owner: object) -> None:
    """Frees the memory of the variables when nothing holds the owner and them.

    TensorFlow keeps each graph with a gradient of our own until the process
    ends, and with it the values of the variables that it reads.
    """
    weakref.finalize(owner, _free_each, self._variables).atexit = False

  def _create(self, name, shape, initializer, dtype, trainable):
    # Variables outlive the trace that requests them first.
    with tf.init_scope():
      known = name in self.initial_values
      value = self.initial_values[name] if known else None
      if value is None or callable(value):
        fresh = self._initialized(name, shape, initializer, dtype)
        value = value(fresh) if value else fresh
      value = tf.cast(value, dtype)
      # Lifting is for uninitialized variables and costs a second trace.
      with tf.name_scope(""):
        return tf.Variable(
          value,
          trainable=trainable,
          name=name,
          experimental_enable_variable_lifting=False,
        )

  def _initialized(self, name, shape, initializer, dtype):
    if initializer is None:
      return tf.zeros(shape, dtype)
    _local.initial_seed = (self.seed, zlib.crc32(name.encode()))
    try:
      return initializer(shape, dtype)
    finally:
      _local.initial_seed = None


def _free_each(variables):
  for variable in variables.values():
    for part in getattr(variable, "values", (variable,)):  # Of each device.
      weakref.finalize(part, _free, part.handle, part.dtype).atexit = False
  variables.clear()


def _free(handle, dtype):
  with tf.init_scope():
    if tf.executing_eagerly():  # Not while a SavedModel is written.
      tf.raw_ops.AssignVariableOp(resource=handle, value=tf.zeros([0], dtype))


class _Frame:
  """One activation of a store; scopes are (prefix, count of unnamed sites)."""

  def __init__(self, store):
    self.store = store
    self.micro_batch = 0
    self.scopes = [("", itertools.count())]


class _Local(threading.local):
  """State of a thread; the replicas of a model are traced in several."""

  def __init__(self):
    self.stack = [_Frame(_default_store)]
    self.initial_seed = None


_stores = weakref.WeakSet()
_stores_lock = threading.Lock()
_default_store = VariableStore()
_local = _Local()


def in_v1_graph() -> bool:
  """Whether a v1 graph, to be run by a Session, is being built."""
  return not tf.compat.v1.executing_eagerly_outside_functions()


def check_eager() -> None:
  """Raises ValueError in a v1 graph, where no tensor has a value yet."""
  if in_v1_graph():
    raise ValueError(
      "Estimator and input functions do not work in a v1 graph; remove "
      "tf.compat.v1.disable_v2_behavior() or `with graph.as_default()`"
    )


def current_store() -> VariableStore:
  """The innermost active VariableStore of this thread."""
  return _local.stack[-1].store


@contextlib.contextmanager
def variable_scope(
  name: str | None, default_name: str | None = None
) -> Iterator[None]:
  """Prefixes `name/` to the names of the variables requested inside.

  `default_name` replaces a `name` of None; a v1 graph numbers its repetitions.
  """
  if in_v1_graph():
    with tf.compat.v1.variable_scope(name, default_name=default_name):
      yield
    return
  scopes = _local.stack[-1].scopes
  prefix = scopes[-1][0] + (default_name if name is None else name)
  prefix += "/" if prefix else ""  # In the root, an empty name adds nothing.
  scopes.append((prefix, itertools.count()))
  try:
    yield
  finally:
    scopes.pop()


def get_variable(
  name: str,
  shape: Sequence[int],
  initializer: Callable[..., tf.Tensor] | None = None,
  dtype: tf.DType | str = "float32",
  trainable: bool = True,
) -> tf.Variable:
  """The variable `name` of the current scope; see `VariableStore.get`."""
  if in_v1_graph():
    initializer = initializer or tf.compat.v1.zeros_initializer()
    return tf.compat.v1.get_variable(
      name, shape, tf.as_dtype(dtype), initializer, trainable=trainable
    )
  frame = _local.stack[-1]
  full_name = frame.scopes[-1][0] + name
  return frame.store.get(full_name, shape, initializer, dtype, trainable)


def storage_dtype(precision: tf.DType | str) -> tf.DType | str:
  """The dtype of variables that layers of that precision read.

  Small updates need float32. Without updates it is the precision, so that the
  layers need not cast large matrices for each batch.
  """
  is_trained = in_v1_graph() or not current_store().is_for_inference
  return "float32" if is_trained else precision


def get_slot(variable: tf.Variable, slot: str) -> tf.Variable:
  """The untrained variable `<variable>/<slot>`, such as a moment of Adam."""
  name, shape = f"{name_of(variable)}/{slot}", variable.shape.as_list()
  if not in_v1_graph():
    current_store().check_owner(variable)
    return current_store().get(name, shape, None, trainable=False)
  # As in the original, the caller's scope comes first: optimizers in scopes of
  # their own do not share moments. The variable may be part of a larger one.
  v1 = tf.compat.v1
  with v1.variable_scope(v1.get_variable_scope()) as scope:
    scope.set_partitioner(None)
    return get_variable(name, shape, trainable=False)


def name_of(variable: tf.Variable) -> str:
  """The full name of a variable, without the `:0` of its tensor."""
  return variable.name.removesuffix(":0")


def trainable_variables() -> list[tf.Variable]:
  """The trainable variables of the active store or v1 graph."""
  if in_v1_graph():
    return tf.compat.v1.trainable_variables()
  return current_store().trainable()


def reads_of_other_variables() -> dict[str, tf.Tensor]:
  """The handles of variables of no VariableStore, by operations that read them.

  Variables that a called function reads are not found, nor are any in a v1
  graph, or under a strategy, where a variable has several handles.
  """
  if in_v1_graph() or tf.executing_eagerly() or tf.distribute.has_strategy():
    return {}
  graph = tf.compat.v1.get_default_graph()
  with _stores_lock:  # Another thread may make one.
    stores = list(_stores)
  known = {v.handle.ref() for store in stores for _, v in store.items()}
  handles = [
    handle for outer, handle in graph.captures if outer.ref() not in known
  ]
  reads = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
  return {
    op.name: handle
    for handle in handles
    for op in handle.consumers()
    if op.type in reads
  }


def global_step() -> tf.Variable:
  """The number of updates so far, an int64 scalar."""
  if in_v1_graph():
    return tf.compat.v1.train.get_or_create_global_step()
  return current_store().get("global_step", [], None, tf.int64, False)


def initial_seed() -> tuple[int, int] | None:
  """(seed, hash of the name) for the variable being created, or None."""
  return _local.initial_seed


@contextlib.contextmanager
def micro_batch(index: int | tf.Tensor) -> Iterator[None]:
  """Gives the dropout masks drawn inside to micro-batch `index` of a step."""
  frame = _local.stack[-1]
  previous, frame.micro_batch = frame.micro_batch, index
  try:
    yield
  finally:
    frame.micro_batch = previous


def dropout_seed(site: str | None = None) -> tf.Tensor | None:
  """Seed of the dropout mask at one site of the model, int32 [2].

  It depends on the store's seed, the site's full name, global step, micro-batch
  and replica only. So a block that is computed again drops the same units.

  `site` is a name within the current scope. By default, sites are numbered from
  0 whenever a scope is entered. Returns None in a v1 graph, where TensorFlow
  seeds each operation.
  """
  if in_v1_graph():
    return None
  frame = _local.stack[-1]
  prefix, unnamed = frame.scopes[-1]
  if site is None:
    site = f"dropout_{next(unnamed)}"
  site_hash = zlib.crc32(f"{frame.store.seed}/{prefix}{site}".encode())
  draw = tf.cast(tf.convert_to_tensor(global_step()), tf.int32)
  replica = tf.distribute.get_replica_context()
  if replica is not None and replica.num_replicas_in_sync > 1:
    draw *= replica.num_replicas_in_sync
    draw += tf.cast(replica.replica_id_in_sync_group, tf.int32)
  # Multiples of 2**32 / 1.618 lie far from each other, modulo 2**32.
  offset = tf.cast(frame.micro_batch, tf.int32) * (0x9E3779B1 - 2**32)
  return tf.stack([offset + (site_hash - 2**31), draw])


def get_assignment_map_from_checkpoint(
  tvars: Iterable[tf.Variable], init_checkpoint: str
) -> tuple[dict[str, str], dict[str, int]]:
  """For v1's `init_from_checkpoint`: {name: name}, and {name: 1, name:0: 1}.

  Raises ValueError without variables, outside of a v1 graph.
  """
  tvars = list(tvars)
  if not (tvars or in_v1_graph()):  # Training would start from random weights.
    raise ValueError(
      "there are no variables of a v1 graph; before you build the model, call "
      "bert.models.checkpoints.initialize_from(init_checkpoint, wanted, "
      "optional) instead"
    )
  # The name of a variable may end in the number of its tensor.
  wanted = {re.sub(r":\d+$", "", v.name) for v in tvars}
  saved = [name for name, _ in tf.train.list_variables(init_checkpoint)]
  names = [name for name in saved if name in wanted]
  initialized = {key: 1 for name in names for key in (name, f"{name}:0")}
  return {name: name for name in names}, initialized
