"""Name-based TensorFlow checkpoints: find, read, compare, write.

A checkpoint is a prefix: `PREFIX.index` and `PREFIX.data-?????-of-?????`. It
holds each variable under its full name, as the released models and the
original code do, so files can be exchanged in both directions. Weights in
Hugging Face's format are read in the same way, under the path of their file.
A path may also be that of an ONNX folder's graph, whose weights are not read.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert import variables
from bert.data import downloads, files, folder_lock
from bert.errors import UserError, plural
from bert.models import huggingface_weights

# A training writes its weights, Adam's moments and its step as TRAINING_NAME,
# and at its end the weights alone under the name that released models have.
TRAINING_NAME = "model.ckpt"
RELEASE_NAME = "bert_model.ckpt"

# The graph that export_model.py writes. It only answers: no other format can be
# made of its weights.
GRAPH_NAME = "model.onnx"

# Key in the task.json beside it: the folder that it was exported from.
SOURCE = "exported_from"

# The weights of a run's best evaluation, and the history of its evaluations.
BEST_NAME = "best_model.ckpt"
HISTORY_NAME = "best.json"

# Our names by patterns of ALBERT's; \1 is the number of a group.
_GROUP = r"^bert/encoder/transformer/group_(\d+)/inner_group_0/"
_LAYER = r"bert/encoder/layer_\1/"
_ALBERT = {
  r"^bert/encoder/embedding_hidden_mapping_in/": "bert/embeddings_project/",
  rf"{_GROUP}attention_1/": rf"{_LAYER}attention/",
  rf"{_GROUP}LayerNorm/": rf"{_LAYER}attention/output/LayerNorm/",
  rf"{_GROUP}ffn_1/intermediate/output/": rf"{_LAYER}output/",
  rf"{_GROUP}ffn_1/intermediate/": rf"{_LAYER}intermediate/",
  rf"{_GROUP}LayerNorm_1/": rf"{_LAYER}output/LayerNorm/",
}
_DISCRIMINATOR = {r"^electra/": "bert/"}
_GENERATOR = {
  r"^electra/embeddings/": "bert/embeddings/",
  r"^generator/": "bert/",
  r"^generator_predictions/output_bias": "cls/predictions/output_bias",
  r"^generator_predictions/": "cls/predictions/transform/",
}

# Prefixes, with their files' sizes and times, that were read in full.
_verified = set()


def find_checkpoint(path: str) -> str:
  """The prefix of the checkpoint that a path, or a model's name, refers to.

  The path is a prefix; one of a checkpoint's files; or a folder, which stands
  for the finished model in it (`bert_model.ckpt`), or else for its best
  checkpoint, its newest one, its `model.safetensors`, or its graph in ONNX.
  """
  path = given = downloads.local_path(path)
  part = re.fullmatch(r"(.+)\.(index|meta|data-\d{5}-of-\d{5})", path)
  if part and exists(part[1]):
    return part[1]
  if files.isdir(path):
    found = (
      final_checkpoint(path)
      or next(reversed(training_checkpoints(path)), None)
      or huggingface_weights.find_weights(path)
      or find_graph(path)
      or _recorded_checkpoint(path)
    )
    if found:
      return found
    path = os.path.join(path, RELEASE_NAME)
  if not exists(path):
    downloads.check_config(os.path.dirname(path))
    huggingface_weights.check_needs_no_conversion(path)
    raise UserError(_missing_checkpoint(path, given))
  return path


def _missing_checkpoint(path, given):
  """The message that there is no checkpoint `path`, for what a user gave."""
  folder, is_folder = os.path.dirname(path), path != given
  if is_folder and files.exists(os.path.join(folder, "config.json")):
    name = huggingface_weights.WEIGHTS_NAME
    return f"{folder} has a config.json but no {name}; copy it there, too"
  suffix = "" if _is_file(path) else ".index"
  remedy = (
    f"pass the files' common prefix, such as .../{RELEASE_NAME}, or their "
    f"folder{similar_model(given)}"
  )
  if files.exists(os.path.join(folder, "saved_model.pb")):
    remedy = "convert the SavedModel by convert_checkpoint.py --to=tensorflow"
  absent = f"no file {path}{suffix}"
  if folder and not files.exists(folder):
    absent = f"no folder {folder}"
  elif suffix and not files.exists(given):
    absent += f", and no folder {path}"
  return f"no checkpoint {path}: there is {absent}; {remedy}"


def similar_model(
  path: str, is_wanted: Callable[[str], object] | None = None
) -> str:
  """Text to append to an error: a model in a folder, or of a similar name.

  `is_wanted` tells whether a folder holds one; by default, a finished model.
  """
  is_wanted = is_wanted or final_checkpoint
  inside = sorted(files.listdir(path)) if files.isdir(path) else []
  for folder in (os.path.join(path, name) for name in inside):
    if is_wanted(folder):
      return f", such as {folder}"
  return downloads.similar_release(path)


def exists(prefix: str) -> bool:
  """Whether there is a checkpoint of that prefix."""
  return files.exists(prefix if _is_file(prefix) else prefix + ".index")


def is_graph(prefix: str) -> bool:
  """Whether a path is that of a graph in ONNX, rather than of a checkpoint."""
  return prefix.endswith(".onnx")


def _is_file(prefix):
  return huggingface_weights.is_weights(prefix) or is_graph(prefix)


def find_graph(folder: str) -> str | None:
  """The path of the graph in a folder; None without one."""
  path = os.path.join(folder, GRAPH_NAME)
  return path if files.exists(path) else None


def checkpoint_files(path: str) -> list[str]:
  """Paths of the files of the checkpoint that `find_checkpoint` returns."""
  prefix = find_checkpoint(path)
  if _is_file(prefix):
    return huggingface_weights.weight_files(prefix)
  return [prefix + ".index", *_data_files(prefix)]


def hash_of_weights(path: str) -> str:
  """SHA-256 that tells the weights of a checkpoint from others."""
  paths = checkpoint_files(path)
  if paths[0].endswith(".index"):  # It holds a checksum of every variable.
    return files.hash_of(paths[0])
  hashes = list(map(_hash_of, paths))
  if len(hashes) == 1:
    return hashes[0]
  return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _hash_of(path):
  return _hash_of_version(path, *_version(path))


def _version(path):
  """The time of the last change of a file, and its size."""
  if not files.is_remote(path):
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_size
  stat = tf.io.gfile.stat(path)
  return stat.mtime_nsec, stat.length


@functools.cache
def _hash_of_version(path, time, size):
  del time, size
  return files.hash_of(path)


def _data_files(prefix):
  return files.find(glob.escape(prefix) + ".data-*")


def final_checkpoint(model_dir: str) -> str | None:
  """Prefix of a run's finished model, or else of its best weights, or None."""
  release = os.path.join(model_dir, RELEASE_NAME)
  return release if exists(release) else best_checkpoint(model_dir)


def best_checkpoint(model_dir: str) -> str | None:
  """Prefix of the weights of a run's best evaluation, or None."""
  prefix = os.path.join(model_dir, BEST_NAME)
  history = os.path.join(model_dir, HISTORY_NAME)
  return prefix if exists(prefix) and files.exists(history) else None


def _recorded_checkpoint(folder):
  """The newest checkpoint by the record of any program, or None."""
  with contextlib.suppress(UnicodeDecodeError):
    # `tf.train.latest_checkpoint` would take the path for a pattern.
    if state := tf.train.get_checkpoint_state(folder):
      prefix = state.model_checkpoint_path
      return prefix if exists(prefix) else None
  return None


def training_checkpoints(model_dir: str) -> list[str]:
  """Prefixes of a run's complete checkpoints, oldest first."""
  if not files.isdir(model_dir):
    return []
  # The index is renamed into place last.
  names = "\n".join(files.listdir(model_dir))
  steps = re.findall(rf"(?m)^{re.escape(TRAINING_NAME)}-(\d+)\.index$", names)
  return [
    os.path.join(model_dir, f"{TRAINING_NAME}-{step}")
    for step in sorted(map(int, steps))
  ]


def latest_valid(model_dir: str) -> Checkpoint | None:
  """The newest training checkpoint that can be read in full, or None."""
  paths = training_checkpoints(model_dir)
  for prefix in reversed(paths):
    try:
      return Checkpoint(prefix).verify()
    except UserError as error:
      logging.warning("Skipping a checkpoint: %s", error)
  if paths:
    raise UserError(
      f"{model_dir} has no checkpoint that can be read: {TRAINING_NAME}-* "
      f"({len(paths)}) are damaged; copy them again, or pass another folder to "
      f"start over"
    )
  return None


class Checkpoint:
  """A checkpoint as a read-only mapping from variable name to array.

  With `weights_only`, it leaves out the step and Adam's moments. `shapes` has
  the shape of each variable, and `step` is 0 if it is not recorded.
  """

  def __init__(self, prefix: str, weights_only: bool = False):
    self.prefix = prefix
    self.skipped = frozenset()  # Names that lookups treat as missing.
    self.kept_rows = {}  # See `load_weights`.
    shapes = self._reader.get_variable_to_shape_map()
    self._names = _their_names(shapes)
    for ours, theirs in self._names.items():
      shapes[ours] = shapes.pop(theirs)
    self.step = int(self["global_step"]) if "global_step" in shapes else 0
    self.shapes = {
      name: shape
      for name, shape in shapes.items()
      if not (weights_only and is_training_state(name))
    }

  @functools.cached_property
  def _reader(self):
    if huggingface_weights.is_weights(self.prefix):
      return huggingface_weights.Weights(self.prefix)
    if is_graph(self.prefix):
      raise no_weights(self.prefix)
    with _readable(self.prefix):
      return tf.train.load_checkpoint(_literal_prefix(self.prefix, self))

  def __getstate__(self) -> dict:
    # A reader of TensorFlow cannot be pickled; the copy opens its own.
    return {k: v for k, v in vars(self).items() if k != "_reader"}

  def __contains__(self, name: str) -> bool:
    return name in self.shapes and name not in self.skipped

  def __getitem__(self, name: str):
    """The array of that name.

    With `kept_rows`, a function that puts the kept rows into a newly
    initialized array.
    """
    with _readable(self.prefix):
      value = self._reader.get_tensor(self._names.get(name, name))
    rows = self.kept_rows.get(name)
    if rows is None:
      return value
    return functools.partial(_with_rows, value=value, rows=rows)

  def keep_rows(
    self,
    kept_rows: Mapping[str, Sequence[int | None]],
    wanted: Mapping[str, Sequence[int]],
  ) -> None:
    """Gives variables other rows, or none; see `load_weights`."""
    for name in kept_rows.keys() & self.shapes.keys() & wanted.keys():
      rows, (count, *axes) = kept_rows[name], self.shapes[name]
      if rows == list(range(count)):
        continue
      fits = axes == list(wanted[name])[1:]
      if fits and any(row is not None for row in rows):
        self.kept_rows[name] = rows
        self.shapes[name] = [len(rows), *axes]
      else:
        del self.shapes[name]

  def verify(self) -> Checkpoint:
    """Reads every variable, once per process as long as the files stay."""
    key = (self.prefix, *map(_version, checkpoint_files(self.prefix)))
    if key not in _verified:
      # The order of the file, which a remote one is fastest to read in.
      for name in sorted(self._reader.get_variable_to_shape_map()):
        self[name]
      _verified.add(key)
    return self


def no_weights(path: str) -> UserError:
  """The error for a graph where weights are needed."""
  folder, source = os.path.dirname(path), None
  with contextlib.suppress(UserError):
    record = files.read_json(os.path.join(folder, "task.json"), dict)
    source = (record or {}).get(SOURCE)
  return UserError(
    f"{path} only answers (--predict_file, --interactive, bert.load, serve.py):"
    f" it is a graph in ONNX, whose weights cannot be trained, evaluated or "
    f"converted; pass the folder that it was exported from"
    f"{f', {source}' if source else ''}"
  )


def _their_names(names):
  """The names of a checkpoint's variables by ours, where they differ.

  The original ALBERT and ELECTRA were made of BERT's code, and have other names
  for what they added. A checkpoint of ELECTRA may hold two encoders; the
  discriminator is read, and the generator if there is no discriminator.
  """
  names = list(names)
  patterns = _ALBERT | _GENERATOR
  if any(name.startswith("electra/encoder/") for name in names):
    patterns = _ALBERT | _DISCRIMINATOR
  found = {}
  for name in names:
    renamed = name.removeprefix("module/")  # Of TF-Hub's modules.
    for pattern, ours in patterns.items():
      renamed, count = re.subn(pattern, ours, renamed)
      if count:
        break
    if renamed != name:
      found[renamed] = name
  return found


def _with_rows(fresh, value, rows):
  """A fresh array with those rows of a value that are not None."""
  mixed = np.array(fresh)
  for index, row in enumerate(rows):
    if row is not None:
      mixed[index] = value[row]
  return mixed


def _literal_prefix(prefix, owner):
  """A prefix of the same files that is no pattern.

  TensorFlow writes to any path, but reads `[` and a backslash in it as parts of
  a pattern, which does not match the path itself. The result names links in a
  temporary folder that exists as long as `owner`.
  """
  is_literal = os.name == "nt" or not re.search(r"[\[\\]", prefix)
  if is_literal or files.is_remote(prefix):
    return prefix
  folder = tempfile.mkdtemp()
  weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
  linked = os.path.join(folder, "linked")
  for path in [prefix + ".index", *_data_files(prefix)]:
    os.symlink(os.path.abspath(path), linked + path.removeprefix(prefix))
  return linked


@contextlib.contextmanager
def _readable(prefix):
  try:
    yield
  except UserError:
    raise
  # TensorFlow's reader raises these for truncated or altered files.
  except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
    if "Permission denied" in str(error):  # A later run may be able to read it.
      raise PermissionError(
        f"checkpoint {prefix} cannot be read: permission denied; allow reading "
        f"its files"
      ) from error
    raise UserError(
      f"checkpoint {prefix} is damaged or incomplete; copy or download "
      f"its .index and .data files again"
    ) from error


def is_training_state(name: str) -> bool:
  """Whether only training needs the variable of that name."""
  counts = ("global_step", "loss_scale", "good_steps", "skipped_steps")
  is_slot = name.endswith(("/adam_m", "/adam_v"))
  return name in counts or is_slot or name.startswith("distillation/")


def compare(
  checkpoint: Checkpoint,
  wanted: Mapping[str, Sequence[int]],
  optional: Container[str] = (),
) -> tuple[list[str], list[str], list[str]]:
  """Compares a checkpoint with `wanted`, the shapes of a model's variables.

  The checkpoint may lack `optional` ones, such as the output layer of a new
  task, or hold them in another shape.

  Returns:
    Sorted names: of the variables that start from the checkpoint, of those that
    do not, and of those that the model does not have.
  """
  shapes = checkpoint.shapes
  loaded = {n for n, shape in wanted.items() if shapes.get(n) == list(shape)}
  wrong = [n for n in wanted if n not in loaded and n not in optional]
  if wrong:
    missing = [name for name in wrong if name not in checkpoint]
    problem = (
      f"does not fit the configuration: {wrong[0]} has shape "
      f"{shapes.get(wrong[0])} there, and {list(wanted[wrong[0]])} in the model"
    )
    if wrong[0] in missing:
      problem = (
        f"lacks {wrong[0]} and {plural(len(missing) - 1, 'more variable')} of "
        f"the model{_longer_name(wrong[0], shapes)}"
      )
    raise UserError(
      f"checkpoint {checkpoint.prefix} {problem}; pass a BERT checkpoint and "
      f"the bert_config.json that came with it"
    )
  return (
    sorted(loaded),
    sorted(wanted.keys() - loaded),
    sorted(shapes.keys() - loaded),
  )


def _longer_name(name, names):
  """Text for an error: which of `names` has a prefix before `name`; or ""."""
  matches = sorted(n for n in names if n.endswith("/" + name))
  if not matches:
    return ""
  prefix = matches[0].removesuffix(name)
  return f", but has {matches[0]}: rename its variables without {prefix}"


def load_weights(
  path: str,
  wanted: Mapping[str, Sequence[int]],
  optional: Container[str] = (),
  kept_rows: Mapping[str, Sequence[int | None]] | None = None,
) -> Checkpoint:
  """The Checkpoint that `path` refers to; see `find_checkpoint` and `compare`.

  Optional variables that it lacks, or holds in another shape, are `skipped`.

  Args:
    kept_rows: for some variables, the row of the checkpoint that each row
      starts from; None for a row that starts from its initializer.
  """
  checkpoint = Checkpoint(find_checkpoint(path), weights_only=True)
  checkpoint.keep_rows(kept_rows or {}, wanted)
  _, missing, _ = compare(checkpoint, wanted, optional)
  checkpoint.skipped = frozenset(missing)
  return checkpoint


def initialize_from(
  init_checkpoint: str | None,
  wanted: Mapping[str, Sequence[int]],
  optional: Container[str] = (),
  kept_rows: Mapping[str, Sequence[int | None]] | None = None,
) -> None:
  """Makes the active store's variables start from `load_weights`.

  Does nothing if the store already has values to start or resume from. Raises
  ValueError if it already has variables, or in a v1 graph.
  """
  store = variables.current_store()
  if not init_checkpoint or store.initial_values:
    return
  if store.trainable() or variables.in_v1_graph():
    raise ValueError(
      f"{init_checkpoint} comes too late for variables that exist already; "
      f"call initialize_from before you build the model, in a VariableStore of "
      f"its own; or, in a v1 graph, tf.compat.v1.train.init_from_checkpoint"
    )
  store.initial_values = load_weights(
    init_checkpoint, wanted, optional, kept_rows
  )


def log_initialization(store: variables.VariableStore) -> None:
  """Logs how many variables came from the checkpoint."""
  checkpoint = store.initial_values
  if not isinstance(checkpoint, Checkpoint):
    logging.info("No checkpoint to start from: all weights are random.")
    return
  wanted = {name: v.shape.as_list() for name, v in store.items()}
  loaded, initialized, unused = (
    list(itertools.filterfalse(is_training_state, names))
    for names in compare(checkpoint, wanted, optional=wanted)
  )
  reason = " (new in this task)" if initialized else ""
  logging.info(
    f"{checkpoint.prefix}: loaded {plural(len(loaded), 'variable')}; "
    f"{len(initialized)} initialized{reason}, {len(unused)} in the checkpoint "
    f"unused"
  )
  logging.debug("initialized: %s; unused: %s", initialized, unused)


def write_checkpoint(
  prefix: str, tensors: Mapping[str, tf.Tensor | tf.Variable]
) -> None:
  """Writes tensors under their names; the checkpoint appears whole or not."""
  if not files.writes(prefix):
    return
  folder_lock.check_not_moved(os.path.dirname(prefix))
  names = sorted(tensors)
  values = [tf.convert_to_tensor(tensors[name]) for name in names]
  partial = prefix + files.PARTIAL
  with user_errors(prefix):
    try:
      tf.raw_ops.SaveV2(
        prefix=partial,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=values,
      )
    except BaseException:  # A signal, too.
      for path in files.find(glob.escape(partial) + "*"):
        tf.io.gfile.remove(path)
      raise
    # Readers look for the index: the old one goes first, the new one is last.
    if exists(prefix):
      tf.io.gfile.remove(prefix + ".index")
    for suffix in (".data-00000-of-00001", ".index"):
      tf.io.gfile.rename(partial + suffix, prefix + suffix, overwrite=True)


@contextlib.contextmanager
def user_errors(path: str) -> Iterator[None]:
  """Turns what a full disk or an unwritable folder raises into a UserError."""
  try:
    yield
  except (OSError, tf.errors.OpError) as error:
    text = getattr(error, "message", None) or error.strerror or str(error)
    reason = text.split(" [Op:")[0].split("; ")[-1]
    raise UserError(
      f"{path} cannot be written: {reason}; free some space, or pass another "
      f"folder, and run the same command again"
    ) from error


def record_checkpoints(
  model_dir: str, keep_max: int, last_step: float = math.inf
) -> None:
  """Lists the training checkpoints in a file, and deletes the oldest.

  `keep_max` are kept; 0 keeps all. Those after `last_step` stay: they are
  damaged, or the training would have continued from them.
  """
  paths = training_checkpoints(model_dir)
  kept = [p for p in paths if int(p.rpartition("-")[2]) <= last_step]
  dropped = kept[:-keep_max] if keep_max > 0 else []
  names = [os.path.basename(p) for p in kept if p not in dropped]
  # TensorFlow's own format, which the original code reads.
  lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
  lines += [f"all_model_checkpoint_paths: {json.dumps(n)}" for n in names]
  path = os.path.join(model_dir, "checkpoint")
  with user_errors(path):
    files.write_file(path, "\n".join(lines) + "\n")
  for old in dropped:
    try:
      # The index first, so that no reader takes the rest for a checkpoint.
      for path in [old + ".index", *_data_files(old)]:
        tf.io.gfile.remove(path)
    except tf.errors.OpError as error:
      logging.warning("%s cannot be deleted: %s", old, error.message)


def remove_partial_files(model_dir: str) -> None:
  """Deletes what a killed run left half-written or half-deleted.

  Call it under `folder_lock.lock_folder`. A file that another process writes
  by `files.atomic_write` stays. Remote folders have no lock, so all stay there.
  """
  if files.is_remote(model_dir):
    return
  names = tf.io.gfile.listdir(model_dir)
  for name in names:
    path = os.path.join(model_dir, name)
    data = re.fullmatch(rf"({re.escape(TRAINING_NAME)}-\d+)\.data-.*", name)
    is_orphan = data and f"{data[1]}.index" not in names
    partial = re.search(rf"{re.escape(files.PARTIAL)}\.(index|data-)", name)
    if is_orphan or partial:
      tf.io.gfile.remove(path)
    elif name.endswith(files.PARTIAL) and not tf.io.gfile.isdir(path):
      files.remove_abandoned(path)


def write_release(
  output_dir: str,
  weights: Mapping[str, tf.Tensor | tf.Variable],
  contents: Mapping[str, str | bytes],
) -> None:
  """Writes `weights` and other files, by name, as in an unzipped release."""
  for name, content in contents.items():
    files.write_file(os.path.join(output_dir, name), content)
  write_checkpoint(os.path.join(output_dir, RELEASE_NAME), weights)
