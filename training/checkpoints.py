"""Name-based TensorFlow checkpoints: find, read, audit, write.

A checkpoint is a prefix: `PREFIX.index` and `PREFIX.data-?????-of-?????`. It
holds each variable under its full name, which is the format of the released
models and of the original code, so files go both ways.
"""

import glob
import json
import os
import re
from collections.abc import Container, Mapping, Sequence

import tensorflow as tf
from absl import logging

import variables
from errors import UserError
from pipeline import files

try:
  import fcntl
except ImportError:  # Windows has none.
  fcntl = None

# Where a run keeps its weights, Adam's moments and its step while it trains,
# and, at its end, the weights alone, under the name that releases have.
TRAINING_NAME = "model.ckpt"
RELEASE_NAME = "bert_model.ckpt"

# The weights of a run's best evaluation, and the history that names them.
BEST_NAME = "best_model.ckpt"
HISTORY_NAME = "best.json"

# What TensorFlow's reader raises for files that are cut short or altered.
_READ_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)


def find_checkpoint(path: str) -> str:
  """The prefix that `path` means: itself, or, of a directory, what is in it.

  That is the best, where a run has kept it, or else the newest.

  Raises:
    ValueError: there is no checkpoint there, or `path` is one of its files.
  """
  part = re.fullmatch(r"(.+)\.(index|meta|data-\d{5}-of-\d{5})", path)
  if part and tf.io.gfile.exists(part[1] + ".index"):
    raise UserError(
      f"{path} is one file of a checkpoint; pass its prefix {part[1]}"
    )
  if tf.io.gfile.isdir(path):
    best = best_checkpoint(path)
    if best:
      return best
    trained = training_checkpoints(path)
    newest = trained[-1] if trained else tf.train.latest_checkpoint(path)
    if newest:
      return newest
    path = os.path.join(path, RELEASE_NAME)
  if not tf.io.gfile.exists(path + ".index"):
    raise UserError(
      f"no checkpoint {path}: there is no file {path}.index; pass the "
      f"files' common prefix, such as .../{RELEASE_NAME}, or their folder"
    )
  return path


def checkpoint_files(path: str) -> list[str]:
  """The files of the checkpoint that `path` means, see `find_checkpoint`."""
  prefix = find_checkpoint(path)
  data = tf.io.gfile.glob(glob.escape(prefix) + ".data-*")
  return [prefix + ".index", *data]


def best_checkpoint(model_dir: str) -> str | None:
  """Prefix of the weights of a run's best evaluation, or None."""
  prefix = os.path.join(model_dir, BEST_NAME)
  needed = (prefix + ".index", os.path.join(model_dir, HISTORY_NAME))
  return prefix if all(map(tf.io.gfile.exists, needed)) else None


def training_checkpoints(model_dir: str) -> list[str]:
  """Prefixes of a run's whole checkpoints, oldest first.

  The index is renamed into place last, so what has one is whole.
  """
  if not tf.io.gfile.isdir(model_dir):
    return []
  steps = [
    re.fullmatch(rf"{re.escape(TRAINING_NAME)}-(\d+)\.index", name)
    for name in tf.io.gfile.listdir(model_dir)
  ]
  return [
    os.path.join(model_dir, f"{TRAINING_NAME}-{step}")
    for step in sorted(int(match[1]) for match in steps if match)
  ]


def newest_whole(model_dir: str) -> "Checkpoint | None":
  """The newest Checkpoint of a run that reads without fault, or None."""
  for prefix in reversed(training_checkpoints(model_dir)):
    try:
      return Checkpoint(prefix).verify()
    except ValueError as error:
      logging.warning("%s; passing it over", error)
  return None


class Checkpoint:
  """A checkpoint as a read-only mapping from variable name to array.

  Args:
    prefix: as `find_checkpoint` returns it.
    weights_only: leave out what only training needs, the step and Adam's
      moments.

  Attributes:
    shapes: dict from the name of each variable to its shape.
    withheld: names that a lookup passes over.

  Raises:
    ValueError: the files cannot be read.
  """

  def __init__(self, prefix: str, weights_only: bool = False):
    self.prefix = prefix
    self.withheld = frozenset()
    try:
      self._reader = tf.train.load_checkpoint(prefix)
    except _READ_ERRORS as error:
      raise UserError(_unreadable(prefix)) from error
    self.shapes = {
      name: shape
      for name, shape in self._reader.get_variable_to_shape_map().items()
      if not (weights_only and is_training_state(name))
    }

  def __contains__(self, name: str) -> bool:
    return name in self.shapes and name not in self.withheld

  def __getitem__(self, name: str):
    try:
      return self._reader.get_tensor(name)
    except _READ_ERRORS as error:
      raise UserError(_unreadable(self.prefix)) from error

  def verify(self) -> "Checkpoint":
    """Reads it all once; ValueError if a checksum or a file does not agree."""
    for name in self.shapes:
      self[name]
    return self


def _unreadable(prefix):
  return (
    f"checkpoint {prefix} is damaged or incomplete; copy or download "
    f"its .index and .data files again"
  )


def is_training_state(name: str) -> bool:
  """Whether a variable matters to training alone."""
  return name == "global_step" or name.endswith(("/adam_m", "/adam_v"))


def audit(
  checkpoint: Checkpoint,
  wanted: Mapping[str, Sequence[int]],
  fresh: Container[str] = (),
) -> tuple[list[str], list[str], list[str]]:
  """Compares a checkpoint with what a model wants from it.

  Args:
    checkpoint: a Checkpoint.
    wanted: dict from the name of each variable of the model to its shape.
    fresh: names that may be missing or of another shape, and then start from
      their initializers: the head of a task that the checkpoint never saw.

  Returns:
    loaded, fresh, ignored: sorted names of what starts from the checkpoint,
    of what does not, and of what the model has no use for.

  Raises:
    ValueError: a variable beyond `fresh` is missing or has another shape.
  """
  for name, shape in wanted.items():
    if name in fresh or checkpoint.shapes.get(name) == list(shape):
      continue
    if name in checkpoint:
      raise UserError(
        f"checkpoint {checkpoint.prefix} does not fit the configuration: "
        f"{name} has shape {checkpoint.shapes[name]} there, and "
        f"{list(shape)} in the model; pass the bert_config.json that came "
        f"with the checkpoint"
      )
    missing = [n for n in wanted if n not in checkpoint and n not in fresh]
    raise UserError(
      f"checkpoint {checkpoint.prefix} lacks {name} and "
      f"{len(missing) - 1} more variables of the model; pass a BERT "
      f"checkpoint and the bert_config.json that came with it"
    )
  loaded = [
    n for n, shape in wanted.items() if checkpoint.shapes.get(n) == list(shape)
  ]
  return (
    sorted(loaded),
    sorted(wanted.keys() - set(loaded)),
    sorted(checkpoint.shapes.keys() - set(loaded)),
  )


def initialize_from(
  init_checkpoint: str | None, heads: Mapping[str, Sequence[int]]
) -> None:
  """Lets the active store's variables start from a checkpoint's weights.

  Does nothing if the store has values to start or resume from already.

  Args:
    init_checkpoint: prefix, directory, or None for fresh weights.
    heads: dict from name to shape of the variables that start fresh if the
      checkpoint has none of that shape.

  Raises:
    ValueError: the store's variables have started already, or a v1 graph is
      being built.
  """
  store = variables.current_store()
  if not init_checkpoint or store.initial_values:
    return
  if store.trainable() or variables.in_v1_graph():
    raise UserError(
      f"{init_checkpoint} comes too late for variables that exist already; "
      f"build the model in a VariableStore of its own, or, in a v1 graph, call "
      f"tf.compat.v1.train.init_from_checkpoint"
    )
  checkpoint = Checkpoint(find_checkpoint(init_checkpoint), weights_only=True)
  checkpoint.withheld = {
    name
    for name, shape in heads.items()
    if checkpoint.shapes.get(name) != list(shape)
  }
  store.initial_values = checkpoint


def log_audit(store: variables.VariableStore) -> None:
  """Logs, in one line, what a store took from its checkpoint."""
  checkpoint = store.initial_values
  if not isinstance(checkpoint, Checkpoint):
    logging.info("No checkpoint to start from: all weights are fresh.")
    return
  wanted = {name: v.shape.as_list() for name, v in store.items()}
  loaded, fresh, ignored = audit(checkpoint, wanted, fresh=wanted)
  fresh = [name for name in fresh if not is_training_state(name)]
  logging.info(
    "%s: %d variables loaded, %d fresh by design, %d ignored",
    checkpoint.prefix,
    len(loaded),
    len(fresh),
    len(ignored),
  )
  for title, names in (
    ("loaded", loaded),
    ("fresh", fresh),
    ("ignored", ignored),
  ):
    logging.debug("%s: %s", title, " ".join(names) or "none")


def write_checkpoint(
  prefix: str, tensors: Mapping[str, tf.Tensor | tf.Variable]
) -> None:
  """Writes tensors under their names; the files appear whole or not at all.

  Args:
    prefix: path of the checkpoint.
    tensors: dict from name to tensor or variable.
  """
  names = sorted(tensors)
  partial = prefix + files.PARTIAL
  try:
    tf.raw_ops.SaveV2(
      prefix=partial,
      tensor_names=names,
      shape_and_slices=[""] * len(names),
      tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
    )
  except tf.errors.OpError:
    for path in tf.io.gfile.glob(glob.escape(partial) + "*"):
      tf.io.gfile.remove(path)
    raise
  # Readers look for the index, so an old one goes first and ours comes last.
  if tf.io.gfile.exists(prefix + ".index"):
    tf.io.gfile.remove(prefix + ".index")
  for suffix in (".data-00000-of-00001", ".index"):
    tf.io.gfile.rename(partial + suffix, prefix + suffix, overwrite=True)


def save_training_checkpoint(
  model_dir: str,
  step: int,
  tensors: Mapping[str, tf.Tensor | tf.Variable],
  keep_max: int,
) -> str:
  """Writes `model.ckpt-STEP`, makes it the newest, drops the oldest."""
  prefix = os.path.join(model_dir, f"{TRAINING_NAME}-{step}")
  write_checkpoint(prefix, tensors)
  record_checkpoints(model_dir, keep_max)
  return prefix


def record_checkpoints(model_dir: str, keep_max: int) -> None:
  """Records which training checkpoints there are, and drops the oldest."""
  kept = training_checkpoints(model_dir)
  dropped = kept[:-keep_max] if keep_max > 0 else []
  names = [os.path.basename(p) for p in kept if p not in dropped]
  # TensorFlow's record of what there is, which the original code reads.
  lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
  lines += [f"all_model_checkpoint_paths: {json.dumps(n)}" for n in names]
  files.write_file(
    os.path.join(model_dir, "checkpoint"), "\n".join(lines) + "\n"
  )
  for old in dropped:
    remove_checkpoint(old)


def remove_checkpoint(prefix: str) -> None:
  """Deletes a checkpoint's files, the index first."""
  files = tf.io.gfile.glob(glob.escape(prefix) + ".data-*")
  for path in [prefix + ".index", *files]:
    tf.io.gfile.remove(path)


def remove_partial_files(model_dir: str) -> None:
  """Deletes what a killed run was still writing, or deleting."""
  names = tf.io.gfile.listdir(model_dir)
  for name in names:
    data = re.fullmatch(rf"({re.escape(TRAINING_NAME)}-\d+)\.data-.*", name)
    orphaned = data and f"{data[1]}.index" not in names
    partial = re.search(
      rf"{re.escape(files.PARTIAL)}(\.(index|data-).*)?$", name
    )
    path = os.path.join(model_dir, name)
    if (orphaned or partial) and not tf.io.gfile.isdir(path):
      tf.io.gfile.remove(path)


def write_release(
  output_dir: str,
  weights: Mapping[str, tf.Tensor | tf.Variable],
  contents: Mapping[str, str | bytes],
) -> None:
  """Makes a folder what an unzipped BERT release is.

  Args:
    output_dir: an existing folder.
    weights: dict from name to tensor or variable.
    contents: dict from file name to content, str or bytes: configuration,
      vocabulary, labels.
  """
  for name, content in contents.items():
    files.write_file(os.path.join(output_dir, name), content)
  write_checkpoint(os.path.join(output_dir, RELEASE_NAME), weights)
