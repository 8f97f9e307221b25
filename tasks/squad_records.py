"""SQuAD's windows as TFRecord files, which tell what they were made from."""

import contextlib
import hashlib
import json
import unicodedata
from collections.abc import Iterable

import tensorflow as tf

from pipeline import files, records
from tasks.squad import InputFeatures

# To be raised when the same questions come to give other windows: files of
# windows that an earlier version has left are then not used.
_WINDOWS_VERSION = 1


def feature_spec(max_seq_length: int, is_training: bool) -> records.Spec:
  """The spec of the rows that FeatureWriter writes."""
  spec = {"unique_ids": records.Feature()}
  for name in records.SEQUENCES:
    spec[name] = records.sequence_feature(max_seq_length)
  if is_training:
    for name in ("start_positions", "end_positions", "is_impossible"):
      spec[name] = records.Feature()
  return spec


class FeatureWriter:
  """Writes windows to a TFRecord file.

  The file is there, and whole, once `close` has been called or a `with` block
  has ended without an exception.

  Args:
    filename: the file.
    is_training: whether to write where the answers are.

  Attributes:
    num_features: how many windows have been written.
  """

  def __init__(self, filename: str, is_training: bool):
    self.num_features = 0
    # One message serves all rows: making new ones takes longer than filling it.
    self._row = tf.train.Example()
    self._lists = {
      name: self._row.features.feature[name].int64_list.value
      for name in feature_spec(0, is_training)
    }
    self._resources = contextlib.ExitStack()
    partial = self._resources.enter_context(files.atomic_write(filename))
    self._writer = self._resources.enter_context(tf.io.TFRecordWriter(partial))

  def process_feature(self, feature: InputFeatures) -> None:
    """Writes one window."""
    self.num_features += 1
    values = {
      "unique_ids": [feature.unique_id],
      "input_ids": feature.input_ids,
      "input_mask": feature.input_mask,
      "segment_ids": feature.segment_ids,
      "start_positions": [feature.start_position],
      "end_positions": [feature.end_position],
      "is_impossible": [int(bool(feature.is_impossible))],
    }
    for name, message in self._lists.items():
      del message[:]
      message.extend(values[name])
    # Maps have no order; a fixed one makes equal runs write equal files.
    self._writer.write(self._row.SerializeToString(deterministic=True))

  def close(self) -> None:
    """Ends the file and gives it its name."""
    self._resources.close()

  def __enter__(self) -> "FeatureWriter":
    return self

  def __exit__(self, *exception) -> bool | None:
    return self._resources.__exit__(*exception)


def cache_key(input_file: str, vocab_file: str, **settings) -> str:
  """SHA-256 of what a file of windows is made from, this code included.

  Args:
    input_file: the questions.
    vocab_file: the vocabulary, or the SentencePiece model.
    **settings: all else that the windows depend on, as JSON can hold it.
  """
  digests = []
  for path in (input_file, vocab_file):
    with tf.io.gfile.GFile(path, "rb") as reader:
      digests.append(hashlib.sha256(reader.read()).hexdigest())
  versions = [_WINDOWS_VERSION, unicodedata.unidata_version]
  parts = json.dumps([*versions, *digests, settings], sort_keys=True)
  return hashlib.sha256(parts.encode()).hexdigest()


def write_features(
  path: str, key: str, features: Iterable[InputFeatures], is_training: bool
) -> tuple[int, bool]:
  """Writes windows to a TFRecord file unless it holds them already.

  Beside the file, PATH.json tells its key. It is deleted before the file is
  replaced and written after it, so it never speaks of another file.

  Args:
    path: the file.
    key: what the windows are made from; see `cache_key`.
    features: the windows; left alone if the file's key is the same.
    is_training: whether to write where the answers are.

  Returns:
    How many windows the file has, and whether it was there already.
  """
  note = path + ".json"
  written = _read_note(note)
  if (
    written
    and written["key"] == key
    and tf.io.gfile.exists(path)
    and written["bytes"] == tf.io.gfile.stat(path).length
  ):
    return written["windows"], True
  if tf.io.gfile.exists(note):
    tf.io.gfile.remove(note)
  with FeatureWriter(path, is_training) as writer:
    for feature in features:
      writer.process_feature(feature)
  written = {
    "bytes": tf.io.gfile.stat(path).length,
    "key": key,
    "windows": writer.num_features,
  }
  files.write_file(note, json.dumps(written, indent=2) + "\n")
  return writer.num_features, False


def _read_note(path):
  """What a file of windows says of itself, or None."""
  if not tf.io.gfile.exists(path):
    return None
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  with contextlib.suppress(ValueError):
    written = json.loads(content)
    if isinstance(written, dict) and {"bytes", "key", "windows"} <= set(
      written
    ):
      return written
  return None
