"""Named variables: the only place that creates, finds or lists them.

A released checkpoint knows a weight by its full name alone, for instance
`bert/encoder/layer_0/attention/self/query/kernel`. Model code asks for a
variable by such a name, and the active `VariableStore` makes it at the first
request and finds it at every later one, so a `model_fn` stays a pure function
of its inputs however often TensorFlow traces it. While a v1 graph is being
built, requests go to TensorFlow's own v1 machinery instead.
"""

import contextlib
import itertools
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf


class VariableStore:
  """The variables of one model, each under its full name.

  Used as a context manager, it is the store that `get_variable` asks in this
  thread; enter it inside the function that `Strategy.run` is given, since each
  replica has a thread. Without one, a store that lives as long as the process
  is asked.

  Args:
    seed: int; with a variable's name it fixes that variable's random initial
      value, and with step and place every dropout mask.
    initial_values: mapping from name to array. A variable it holds starts from
      there and not from its initializer.
  """

  def __init__(self, seed: int = 1, initial_values=None):
    self.seed = seed
    self.initial_values = {} if initial_values is None else initial_values
    self._variables = {}

  def __enter__(self) -> "VariableStore":
    _local.stack.append(_Frame(self))
    return self

  def __exit__(self, *exc_info):
    _local.stack.pop()

  def __contains__(self, name: str) -> bool:
    return name in self._variables

  def __getitem__(self, name: str) -> tf.Variable:
    return self._variables[name]

  def items(self) -> list[tuple[str, tf.Variable]]:
    """(name, variable) pairs, in order of creation."""
    return list(self._variables.items())

  def trainable(self) -> list[tf.Variable]:
    """The trainable variables, in order of creation."""
    return [v for v in self._variables.values() if v.trainable]

  def get(
    self,
    name: str,
    shape: Sequence[int],
    initializer: Callable[..., tf.Tensor] | None,
    dtype: tf.DType = tf.float32,
    trainable: bool = True,
  ) -> tf.Variable:
    """The variable called `name`, created if there is none yet.

    Args:
      name: full name, scopes included.
      shape: list of ints.
      initializer: callable (shape, dtype) -> tensor, or None for zeros.
      dtype: dtype of a new variable.
      trainable: whether a new variable is one that the optimizer updates.

    Raises:
      ValueError: a variable or initial value of that name has another shape.
    """
    variable = self._variables.get(name)
    if variable is None:
      variable = self._create(name, list(shape), initializer, dtype, trainable)
      self._variables[name] = variable
    elif variable.shape.as_list() != list(shape):
      raise ValueError(
        f"variable {name} has shape {variable.shape.as_list()}, and "
        f"{list(shape)} was asked for; build a second model inside a "
        f"VariableStore of its own"
      )
    return variable

  def _create(self, name, shape, initializer, dtype, trainable):
    # A trace comes and goes; its variables stay, so they are made outside it.
    with tf.init_scope():
      if name in self.initial_values:
        value = tf.convert_to_tensor(self.initial_values[name], dtype)
        if value.shape.as_list() != shape:
          raise ValueError(
            f"variable {name} has shape {value.shape.as_list()} in the "
            f"checkpoint, and {shape} in the model"
          )
      elif initializer is None:
        value = tf.zeros(shape, dtype)
      else:
        _local.initial_seed = (self.seed, zlib.crc32(name.encode()))
        try:
          value = initializer(shape, dtype)
        finally:
          _local.initial_seed = None
      # An initialised variable needs no lifting; asking for none also spares
      # `tf.function` a second trace.
      with tf.name_scope(""):
        return tf.Variable(
          value,
          trainable=trainable,
          name=name,
          experimental_enable_variable_lifting=False,
        )


class _Frame:
  """One activation of a store: its scopes, and how many masks it has drawn."""

  def __init__(self, store):
    self.store = store
    self.scopes = []
    self.places = itertools.count()


class _Local(threading.local):
  """Per thread, since each replica of a mirrored model traces in its own."""

  def __init__(self):
    self.stack = [_Frame(_default_store)]
    self.initial_seed = None


_default_store = VariableStore()
_local = _Local()


def in_v1_graph() -> bool:
  """True while a v1 graph, to be run by a Session, is being built."""
  return not tf.compat.v1.executing_eagerly_outside_functions()


def current_store() -> VariableStore:
  """The innermost active VariableStore of this thread."""
  return _local.stack[-1].store


@contextlib.contextmanager
def variable_scope(
  name: str | None, default_name: str | None = None
) -> Iterator[None]:
  """Prefixes `name/` to the names of the variables requested inside.

  With `name=None`, `default_name` serves instead. In a v1 graph, and only
  there, a second use of a default name gets a number appended.
  """
  if in_v1_graph():
    with tf.compat.v1.variable_scope(name, default_name=default_name):
      yield
    return
  scopes = _local.stack[-1].scopes
  scopes.append(name or default_name)
  try:
    yield
  finally:
    scopes.pop()


def get_variable(
  name: str,
  shape: Sequence[int],
  initializer: Callable[..., tf.Tensor] | None = None,
  dtype: tf.DType = tf.float32,
  trainable: bool = True,
) -> tf.Variable:
  """The variable `name` of the current scope; see `VariableStore.get`."""
  if in_v1_graph():
    return tf.compat.v1.get_variable(
      name,
      shape,
      dtype,
      initializer or tf.compat.v1.zeros_initializer(),
      trainable=trainable,
    )
  frame = _local.stack[-1]
  full_name = "/".join([*frame.scopes, name])
  return frame.store.get(full_name, shape, initializer, dtype, trainable)


def get_slot(variable: tf.Variable, slot: str) -> tf.Variable:
  """A zero-initialised, untrained companion, named `<variable>/<slot>`.

  Adam keeps its moments under such names.
  """
  name = f"{name_of(variable)}/{slot}"
  if in_v1_graph():
    # Slots are asked for by full name, wherever the caller's scope stands.
    with tf.compat.v1.variable_scope(
      tf.compat.v1.VariableScope(reuse=tf.compat.v1.AUTO_REUSE)
    ):
      return tf.compat.v1.get_variable(
        name,
        variable.shape.as_list(),
        trainable=False,
        initializer=tf.compat.v1.zeros_initializer(),
      )
  return current_store().get(
    name, variable.shape.as_list(), None, trainable=False
  )


def name_of(variable: tf.Variable) -> str:
  """A variable's full name, without the `:0` of its tensor."""
  return variable.name.removesuffix(":0")


def trainable_variables() -> list[tf.Variable]:
  """The trainable variables of the active store, or of the v1 graph."""
  if in_v1_graph():
    return tf.compat.v1.trainable_variables()
  return current_store().trainable()


def global_step() -> tf.Variable:
  """The scalar int64 variable that counts updates."""
  if in_v1_graph():
    return tf.compat.v1.train.get_or_create_global_step()
  return current_store().get("global_step", [], None, tf.int64, False)


def initial_seed() -> tuple[int, int] | None:
  """(seed, hash of the name) of the variable now being created, or None."""
  return _local.initial_seed


def dropout_seed() -> tf.Tensor:
  """A [2] int32 seed that differs for every mask a run ever draws.

  It is a function of the store's seed, the global step, the replica and the
  place in the model: how many seeds were drawn since the store was entered.
  So a step drawn again, after an interruption, drops the same units.
  """
  frame = _local.stack[-1]
  place = next(frame.places)
  step = tf.convert_to_tensor(global_step())
  replica = tf.distribute.get_replica_context()
  if replica is not None and replica.num_replicas_in_sync > 1:
    step = step * replica.num_replicas_in_sync + tf.cast(
      replica.replica_id_in_sync_group, tf.int64
    )
  place_hash = zlib.crc32(f"{frame.store.seed}/{place}".encode()) >> 1
  return tf.stack([place_hash, tf.cast(step, tf.int32)])
