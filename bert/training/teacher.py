"""The teacher of a distillation: its outputs are features of the rows.

The teacher computes the soft targets of each row once. They are cached in files
beside the rows, named by a hash of all inputs: a resumed run reads them, and
another teacher or other rows get new files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from bert.contract.distillation import IS_LABELED, PREFIX
from bert.contract.task import Task
from bert.data import downloads, files, records, sequences
from bert.data.progress import bar
from bert.engine.predictor import Predictor
from bert.errors import UserError
from bert.models import checkpoints, task_file
from bert.models.resolve import check_length, resolve
from bert.training import start_checks

# Folder of the files in the output folder.
FOLDER = "teacher_outputs"

# Number of examples per file.
_CHUNK = 1024

_BATCH_SIZE = 32


class Teacher:
  """A trained model that the student of a task learns from.

  It reads the student's examples with its own tokenizer. `unlabeled` are
  further training examples, without labels. In a dry run, outputs are zeros.
  """

  def __init__(
    self,
    model_dir: str,
    task: Task,
    unlabeled: Sequence = (),
    precision: str = "float32",
    is_dry_run: bool = False,
  ):
    self._task, self.unlabeled = task, unlabeled
    self._precision, self._is_dry_run = precision, is_dry_run
    folder = downloads.local_path(model_dir)
    if not task.soft_targets():
      raise UserError(
        f"--teacher={model_dir} has no effect on {task.name}; omit it"
      )
    length = task.settings.max_seq_length
    settings = task_file.load(type(task), folder)
    settings = dataclasses.replace(settings, max_seq_length=length)
    self._head = type(task)(settings)
    model = self._model = resolve(folder)
    self._head.tokenizer = model.tokenizer
    self._head.prepare(model)
    self._check_labels(model_dir)
    shapes = self._head.head_shapes(model.config)
    checkpoint = model.checkpoint
    start_checks.check_init_checkpoint(model.config, shapes, checkpoint)
    check_length(length, model.config, f"--teacher={model_dir}")
    # A calibration changes only the settings. So does an evaluation on SQuAD,
    # but the outputs do not depend on its threshold.
    fields = {**vars(settings), "null_score_diff_threshold": None}
    weights = checkpoints.hash_of_weights(checkpoint)
    content = weights, model.config.to_dict(), fields
    self.hash = hashlib.sha256(repr(content).encode()).hexdigest()
    self._predictor = None

  def _check_labels(self, model_dir):
    teacher_labels, student_labels = (
      f"{', '.join(t.labels)} ({getattr(t.settings, 'kind', t.kind)})"
      for t in (self._head, self._task)
    )
    if teacher_labels != student_labels:
      raise UserError(
        f"--teacher={model_dir} has the labels {teacher_labels}, and the "
        f"student {student_labels}; pass a teacher with the same, or name them "
        f"in its task.json"
      )

  def spec(self) -> records.Spec:
    """The spec of a row for training, with the soft targets."""
    rows = self._task.feature_spec(True)
    mask = rows["input_mask"]
    sizes = dict(zip(mask.cut_axes, mask.shape, strict=True))
    spec = {IS_LABELED: records.Feature()}
    for name, axes in self._head.soft_targets().items():
      shape = tuple(sizes.get(axis, axis) for axis in axes)
      cut = tuple(axis if isinstance(axis, str) else None for axis in axes)
      spec[PREFIX + name] = records.Feature(shape, "float32", cut)
    return {**rows, **spec}

  def rows(
    self, examples: Sequence, folder: str
  ) -> Iterator[list[Mapping[str, object]]]:
    """Yields the rows of each example, labeled or not, with soft targets."""
    folder = os.path.join(folder, FOLDER)
    files.makedirs(folder)
    used = set()
    for is_labeled, part in ((1, examples), (0, self.unlabeled)):
      pairs = self._groups(part, bool(is_labeled))
      while chunk := list(itertools.islice(pairs, _CHUNK)):
        yield from self._with_targets(chunk, is_labeled, folder, used)
    self._predictor = None  # Frees its memory for the training.
    for name in set(files.listdir(folder)) - used:
      files.remove(os.path.join(folder, name))

  def _groups(self, examples, is_training):
    """Yields the rows of each example for the student, and for the teacher."""
    own = self._task.features(bar(examples), is_training)
    reader = self._task.reading_with(self._head)
    if _identity(reader) == _identity(self._task):
      return ((rows, rows) for rows in own)
    return zip(own, reader.features(examples, is_training), strict=True)

  def _with_targets(self, pairs, is_labeled, folder, used):
    if any(len(rows) != len(others) for rows, others in pairs):
      raise self._other_pieces()
    rows = [row for _, others in pairs for row in others]
    targets = sequences.rows_of(self._targets(rows, folder, used))
    spec, axes = self.spec(), self._task.soft_targets().values()
    has_positions = any(records.POSITION in names for names in axes)
    for group, others in pairs:
      completed = []
      for row, other in zip(group, others, strict=True):
        if has_positions and _used(row) != _used(other):
          raise self._other_pieces()
        soft = {PREFIX + n: value for n, value in next(targets).items()}
        completed.append(
          _complete({**row, **soft, IS_LABELED: is_labeled}, spec)
        )
      yield completed

  def _other_pieces(self):
    return UserError(
      "--teacher splits the text into other word pieces than the student; pass "
      "a teacher with the same vocabulary and casing"
    )

  def _targets(self, rows, folder, used):
    """The soft targets of rows, [rows, ...] by name; cached in a file."""
    if self._is_dry_run:
      return self._zeros(rows)
    shapes = [self.spec()[PREFIX + n].shape for n in self._task.soft_targets()]
    key = self.hash, shapes, self._precision
    digest = hashlib.sha256(repr(key).encode())
    for row in rows:
      for name in records.SEQUENCES:
        digest.update(np.asarray(row[name], np.int32).tobytes())
    name = f"{digest.hexdigest()[:32]}.npz"
    path = os.path.join(folder, name)
    used.add(name)
    if files.exists(path):
      with np.load(io.BytesIO(files.read_bytes(path))) as outputs:
        return dict(outputs)
    outputs = self._compute(rows)
    content = io.BytesIO()
    np.savez_compressed(content, **outputs)
    files.write_file(path, content.getvalue())
    return outputs

  def _zeros(self, rows):
    names, spec = self._head.soft_targets(), self.spec()
    shapes = {name: [len(rows), *spec[PREFIX + name].shape] for name in names}
    return {name: np.zeros(shapes[name], np.float32) for name in names}

  def _compute(self, rows):
    if self._predictor is None:
      logging.info(
        "Computing the outputs of the teacher, %s", self._model.checkpoint
      )
      self._predictor = Predictor(
        self._model,
        self._head,
        _BATCH_SIZE,
        precision=self._precision,
        outputs=None if self._has_several_texts else self._head.soft_targets(),
      )
    compute = self._of_texts if self._has_several_texts else self._predictor
    targets = self._zeros(rows)
    for number, outputs in enumerate(compute(rows)):
      for name, value in outputs.items():
        targets[name][number][tuple(map(slice, value.shape))] = value
    return targets

  @property
  def _has_several_texts(self):
    """Whether each row has several texts, which are rows for the teacher."""
    specs = self._task.feature_spec(True), self._head.feature_spec(False)
    student, teacher = (len(spec["input_mask"].shape) for spec in specs)
    return student > teacher

  def _of_texts(self, rows):
    """Yields the outputs for the texts of each row, each computed once."""
    distinct, numbers = {}, []
    for row in rows:
      texts = zip(*(row[name] for name in records.SEQUENCES), strict=True)
      keys = [tuple(map(tuple, text)) for text in texts if any(text[1])]
      numbers.append([distinct.setdefault(key, len(distinct)) for key in keys])
    texts = [dict(zip(records.SEQUENCES, key, strict=True)) for key in distinct]
    outputs = list(self._predictor(texts))
    for texts_of_row in numbers:
      of_row = [outputs[number] for number in texts_of_row]
      yield {
        name: np.stack([text[name] for text in of_row]) for name in of_row[0]
      }


def _identity(task):
  """The properties that determine how a task reads a text."""
  tokenizer, settings = task.tokenizer, task.settings
  pieces = getattr(tokenizer, "vocab", None)
  casing = pieces and tokenizer.basic_tokenizer.do_lower_case
  return pieces and (list(pieces), casing, settings)


def _used(row):
  return int(np.sum(row["input_mask"]))


def _complete(row, spec):
  """The features of a row; zeros for unknown labels."""
  return {
    name: np.zeros(feature.shape, feature.dtype)
    if row.get(name) is None
    else row[name]
    for name, feature in spec.items()
  }
