"""The model in any folder: one call and one kind of answer for every task.

    model = load("/tmp/mrpc_output")
    model(("A text.", "Another."))  # {"label": "1", "labels": [...], ...}

`bert.load` is `load`. The server answers with the same names.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable

from bert import runtimes
from bert.contract import registry
from bert.contract.task import Field, Task
from bert.data import downloads, records
from bert.engine import predictor
from bert.errors import UserError, check_known, listing, plural, shortened
from bert.models import checkpoints, model_folder, run_record, task_file
from bert.models.resolve import Model, resolve

Texts = tuple[str | list[str], ...]

# An input as a user writes it.
Input = str | tuple | dict

# Options of `load` for the engine; the others are settings of the task.
_OF_ENGINE = (
  *("batch_size", "precision", "runtime", "strategy"),
  *("pad_to_max_length", "use_one_hot_embeddings"),
)


class LoadedModel:
  """A trained model, loaded once.

  Its attributes are `task`, `kind`, such as "classification", `config`, and
  `labels`, if there are any. `engine` are arguments of `predictor.load`.
  """

  def __init__(self, task: Task, model: Model, folder: str = "", **engine):
    self.task, self.folder, self.config = task, folder, model.config
    self.kind, self.labels = task.kind, tuple(task.labels)
    self._weights = model.checkpoint
    self._spec = task.feature_spec(False)
    self.predictor = predictor.load(model, task, **engine)
    if engine.get("precision") == runtimes.INT8:
      from bert.engine import precision_loss  # No other answer needs it.

      precision_loss.measure(
        model, task, self.predictor, self.predictor.runtime
      )

  def __repr__(self) -> str:
    names = ", ".join(field.name for field in self.fields)
    labels = f", {plural(len(self.labels), 'label')}" if self.labels else ""
    return f"<{self.kind} model of {self.folder}: reads {names}{labels}>"

  def __call__(self, inputs: Input | list[Input]) -> dict | list[dict]:
    """The answer to an input, or a list of answers to a list of inputs.

    An input is a text; a tuple of the task's inputs, with or without those
    that have a default; or a dict by their names. An array or a column of a
    data frame counts as a list.

    An answer is a dict with the names in the task's `output_types`.
    Probabilities are floats, and a vector is a float32 array.
    """
    if to_list := getattr(inputs, "tolist", None):
      inputs = to_list()
    if isinstance(inputs, list):
      return list(map(self.task.public, self.answers(inputs)))
    return self.answer([self.parse(inputs)])[0]

  def answers(self, inputs: Iterable[Input]) -> list:
    """The task's own, detailed answers to a list of inputs."""
    if isinstance(inputs, str | dict) or not isinstance(inputs, Iterable):
      raise TypeError(f"pass a list of inputs, not {shortened(repr(inputs))}")
    examples = []
    for number, value in enumerate(inputs, 1):
      texts = self.parse(value, f"input {number}")
      try:
        examples.append(self.task.example(*texts))
      except UserError as error:
        raise UserError(f"input {number}: {error}") from error
    return self.answer_examples(examples)

  def answer(self, items: Iterable[Texts]) -> list[dict]:
    """The public answers to inputs that `parse` returned."""
    examples = [self.task.example(*texts) for texts in items]
    return list(map(self.task.public, self.answer_examples(examples)))

  def answer_examples(
    self, examples: list, progress: Callable[[int], object] = lambda count: None
  ) -> list:
    """The task's answers to examples, computed in batches.

    `progress` is called after each batch with the number of its rows.
    """
    if not examples:
      return []

    def compute(rows):
      names = self._spec.keys() - set(records.SEQUENCES)
      outputs = self.predictor(rows, progress)
      for row, output in zip(rows, outputs, strict=True):
        yield {name: row[name] for name in names} | output

    return self.task.answers(examples, compute)

  @property
  def fields(self) -> tuple[Field, ...]:
    return tuple(self.task.inputs)

  @property
  def outputs(self) -> dict[str, str]:
    """The name and the TensorFlow type of each output."""
    return dict(self.task.output_types)

  @property
  def required(self) -> list[Field]:
    return [field for field in self.fields if field.default is None]

  def parse(self, value: object, where: str = "the input") -> Texts:
    """The inputs in a tuple, or a JSON value: by name, or the only text."""
    names = [field.name for field in self.fields]
    parts = (value,) if isinstance(value, str) else value
    if isinstance(parts, tuple):
      given = self.fields if len(parts) == len(names) else self.required
      if len(parts) == len(given):
        parts = {f.name: text for f, text in zip(given, parts, strict=True)}
    unread = set(parts) - set(names) if isinstance(parts, dict) else set()
    if unread and len(unread) < len(parts):
      raise UserError(
        f"{where} also has {listing(sorted(map(str, unread)))}, which the "
        f"model does not read; pass only {listing(names)}"
      )
    if unread or not isinstance(parts, dict):
      form = f"a tuple ({', '.join(names)})" if names[1:] else "its value"
      raise UserError(
        f"{where} is not an object with {listing(names)}, or {form}"
        f"{_hint(value)}{self._trained_columns(names)}"
      )
    return tuple(_read(field, parts, where) for field in self.fields)

  def _trained_columns(self, names):
    """The columns that the training read as these inputs, if they differ."""
    flags = run_record.recorded_flags(os.path.dirname(self._weights))
    by_flag = {"text": "text_a_column"}
    columns = {n: flags.get(by_flag.get(n, f"{n}_column")) for n in names}
    shown = " and ".join(
      f"{name} was the column {column!r}"
      for name, column in columns.items()
      if column not in (None, name)
    )
    return f"; in the training, {shown}" if shown else ""


def _read(field, value, where):
  """The part of an input that a field names."""
  part = value.get(field.name)
  if part is None:
    part = field.default
  is_right = isinstance(part, list if field.is_list else str)
  if not (is_right and all(isinstance(text, str) for text in part)):
    raise UserError(
      f"{where}: {field.name} is {'missing; pass' if part is None else 'not'} "
      f"{'a list of strings' if field.is_list else 'a string'}{_hint(part)}"
    )
  return part


def _hint(value):
  """The remedy for NaN, which is an empty cell of a data frame."""
  is_nan = isinstance(value, float) and math.isnan(value)
  return " (an empty cell of pandas: use fillna(''))" if is_nan else ""


def count_of(texts: Texts) -> int:
  """Minimum number of sequences that the model reads for an answer.

  Empty strings in a list are padding.
  """
  return max(
    1 if isinstance(text, str) else sum(map(bool, text)) for text in texts
  )


def length_of(texts: Texts) -> int:
  """Number of characters that the model reads for an answer.

  The model reads all other texts with each element of a list.
  """
  return sum(
    len(text) * count_of(texts)
    if isinstance(text, str)
    else sum(map(len, text))
    for text in texts
  )


def load(
  model_dir: str | os.PathLike, task: str | None = None, **options
) -> LoadedModel:
  """The model in a folder.

  Args:
    model_dir: the `output_dir` of a finished training; or the folder or name of
      a release, or hf://OWNER/NAME, which are downloaded once.
    task: the kind of task. Default: the one that the folder was trained on, or
      else "vectors". A pre-trained model also supports "fill_mask". A
      registered task may differ from the folder's, if the folder has the
      variables of its head.
    **options: batch_size, precision, runtime and others, see
      `predictor.load`; and settings of the task, such as `top_k`,
      `pooling` or `max_seq_length`.
  """
  engine = {k: options.pop(k) for k in _OF_ENGINE if k in options}
  folder = downloads.local_path(os.fspath(model_dir))
  model_task, model = find_task(folder, task, **options)
  return LoadedModel(model_task, model, str(model_dir), **engine)


def find_task(
  folder: str, kind: str | None = None, **options
) -> tuple[Task, Model]:
  """The task of the model in a folder, and the model; see `load`."""
  trained, _ = task_file.read(folder)
  kind = kind or trained or "vectors"
  if trained and kind != trained:
    kinds = registry.kinds_over(trained)
    check_known(f"task={kind!r} of {folder}", kind, kinds)
  model = resolve(folder)
  return make_task(model, kind, folder, **options), model


def load_trained(model_dir: str, kind: str, **options) -> LoadedModel:
  """Like `load`, for a folder that must hold a finished training of a kind."""
  trained, _ = task_file.read(model_dir)
  if trained == kind and not model_folder.is_finished(model_dir):
    checkpoints.find_checkpoint(model_dir)  # Weights may be missing.
    trained = None
  task_file.check_kind(model_dir, trained, kind)
  return load(model_dir, **options)


def load_task(
  model: Model, kind: str, folder: str = "", **options
) -> LoadedModel:
  """A model whose files are known, with a kind of task; see `make_task`."""
  engine = {k: options.pop(k) for k in _OF_ENGINE if k in options}
  task = make_task(model, kind, folder, **options)
  return LoadedModel(task, model, model.checkpoint, **engine)


def make_task(model: Model, kind: str, folder: str = "", **options) -> Task:
  """The task of a model, with the settings that a folder records.

  If the folder was trained on another kind, settings of the same names apply.
  """
  recorded, fields = task_file.read(folder) if folder else (None, {})
  cls = registry.task_class(kind, folder)
  names = [field.name for field in dataclasses.fields(cls.Settings)]
  if recorded != kind:
    shared = () if kind in registry.UNTRAINED else names
    fields = {name: fields[name] for name in shared if name in fields}
  settings = cls.Settings()
  if "max_seq_length" not in fields:
    settings = cls.default_settings(model.config)
  allowed = [*(n for n in names if n not in cls.Settings.fixed), *_OF_ENGINE]
  for name in options:
    check_known(f"the option {name!r} of a {kind} model", name, allowed)
  options = {
    n: _elements(v) if isinstance(getattr(settings, n, None), tuple) else v
    for n, v in options.items()
  }
  parsed = task_file.parse(cls.Settings, fields, folder)
  settings = dataclasses.replace(settings, **parsed | options)
  try:
    settings.check()  # An option, or the default of the model's size.
  except ValueError as error:
    raise UserError(f"{folder}: {error}" if folder else str(error)) from error
  task = cls(settings, model.tokenizer)
  task.prepare(model)
  return task


def _elements(value):
  """The elements of an option: a list, the text of a flag, or one number."""
  if isinstance(value, str):
    parts = value.split(",")
    value = [int(x) if x.strip("-").isdigit() else x for x in parts]
  return tuple(value) if isinstance(value, Iterable) else (value,)
