"""The model in any folder: one call and one kind of answer for every task.

    model = load("/tmp/mrpc_output")
    model(("A text.", "Another."))  # {"label": "1", "labels": [...], ...}

`bert.load` is `load`. The server answers with the same names.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import modeling
from bert.errors import UserError, listing, plural, shortened
from bert.data import downloads
from bert.tasks import squad, squad_decoding
from bert.tasks import labels as label_types
from bert.tasks.chooser import Chooser
from bert.tasks.classifier import Classifier
from bert.tasks.features import FeatureExtractor
from bert.tasks.fill_mask import MaskFiller
from bert.tasks.find_task import find_task
from bert.tasks.squad_reader import Reader
from bert.tasks.tagger import Tagger
from bert.training import model_folder

# Maximum length of a text that gets a vector, if the model has the positions.
_LENGTH = 128


class Field(NamedTuple):
  """An input of a model: a text, or a list of texts.

  Attributes:
    name: its name.
    is_list: whether it is a list.
    default: its value if it is missing; None if it is required.
  """

  name: str
  is_list: bool = False
  default: str | None = None


Texts = tuple[str | list[str], ...]

# An input as a user writes it.
Input = str | tuple | dict


@dataclasses.dataclass(frozen=True)
class LoadedModel:
  """A trained model, loaded once.

  Attributes:
    kind: the task, such as "classification".
    fields: its inputs.
    outputs: dict from the name of each output to its type, one of TensorFlow's.
    answer: from the inputs of several requests, in the order of `fields`, to a
      dict of the outputs of each. Raises UserError for an input that the model
      cannot read.
    folder: where it is from.
    config: its BertConfig.
    labels: its labels; none for most tasks.
  """

  kind: str
  fields: tuple[Field, ...]
  outputs: Mapping[str, str]
  answer: Callable[[Sequence[Texts]], list[dict]]
  folder: str = ""
  config: modeling.BertConfig | None = None
  labels: tuple[str, ...] = ()

  def __call__(self, inputs: Input | list[Input]) -> dict | list[dict]:
    """The answer to an input, or a list of answers to a list of inputs.

    Args:
      inputs: a text; a tuple with a value for each of `fields`, of which those
        with a default may be omitted together; a dict by their names; or a
        list of such inputs.

    Returns:
      A dict by the names in `outputs`. Probabilities are floats, and a vector
      is a float32 array.

    Raises:
      UserError: an input is none of these, or the model cannot read it.
    """
    if not isinstance(inputs, (list, np.ndarray)):
      return self.answer([self.parse(self._named(inputs))])[0]
    found = [
      self.parse(self._named(value), f"input {number}")
      for number, value in enumerate(inputs, 1)
    ]
    return self.answer(found) if found else []

  def __repr__(self) -> str:
    names = ", ".join(field.name for field in self.fields)
    labels = f", {plural(len(self.labels), 'label')}" if self.labels else ""
    return f"<{self.kind} model of {self.folder}: reads {names}{labels}>"

  @property
  def required(self) -> list[Field]:
    """The inputs without a default."""
    return [field for field in self.fields if field.default is None]

  def _named(self, value):
    """The values of a tuple by the names of the inputs; others as they are."""
    if not isinstance(value, tuple):
      return value
    fields = self.fields
    if len(value) != len(fields):
      fields = self.required
    if len(value) != len(fields):
      raise UserError(
        f"{shortened(repr(value))} has {plural(len(value), 'value')}; the "
        f"model reads {listing([field.name for field in self.fields])}"
      )
    names = (field.name for field in fields)
    return dict(zip(names, value, strict=True))

  def parse(self, value: object, where: str = "the input") -> Texts:
    """The inputs in a JSON value: an object by name, or the only text.

    Raises:
      UserError: a name is missing or unknown, or a value has another type. The
        message names `where`.
    """
    if isinstance(value, str) and len(self.required) == 1:
      value = {self.required[0].name: value}
    names = [field.name for field in self.fields]
    if not isinstance(value, dict):
      raise UserError(f"{where} is not an object with {listing(names)}")
    unknown = sorted(value.keys() - set(names))
    if unknown:
      raise UserError(
        f"{where} has {listing(unknown)}; the model reads {listing(names)}"
      )
    return tuple(self._read(field, value, where) for field in self.fields)

  def _read(self, field, value, where):
    found = value.get(field.name)
    if found is None:
      found = field.default
    if found is None:
      raise UserError(f"{where} has no {field.name}; pass it")
    if not field.is_list:
      if not isinstance(found, str):
        raise UserError(f"{where}: {field.name} is not a string")
      return found
    if not isinstance(found, list) or not all(
      isinstance(text, str) for text in found
    ):
      raise UserError(f"{where}: {field.name} is not a list of strings")
    return found


def count_of(texts: Texts) -> int:
  """Number of sequences that the model reads for an answer, at least.

  An empty string in a list only fills it up.
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
    task: "vectors" or "fill_mask", of a pre-trained model. Default: the task
      that the folder was trained on, and vectors without one.
    **options: batch_size, precision and runtime, see `predictor.Predictor`. For
      vectors also the arguments of `FeatureExtractor` (layers, pooling, ...),
      and for masks `top_k`.

  Raises:
    UserError: the folder holds no model, the task is unknown, or the model has
      no such option.
  """
  folder = downloads.local_path(os.fspath(model_dir))
  trained = find_task(folder)
  kind = task or trained or "vectors"
  known = {"vectors", "fill_mask", *filter(None, [trained])}
  if kind not in known:
    raise UserError(
      f"task={task!r}: {folder} answers {listing(sorted(known))}; pass one"
    )
  try:
    model = _LOADERS[kind](folder, **options)
  except TypeError as error:
    if "unexpected keyword argument" not in str(error):
      raise
    name = str(error).rpartition("argument ")[2]
    raise UserError(
      f"{name} is not an option of a {kind} model; omit it"
    ) from error
  return dataclasses.replace(
    model, folder=str(model_dir), config=model_folder.load_config(folder)
  )


def _load_classifier(model_dir, **options):
  classifier = Classifier(model_dir, **options)
  label_type = classifier.label_type

  def describe(row):
    if not label_type.labels:
      return {"value": float(row[0])}  # It is rounded.
    return {
      "label": label_types.predicted_text(label_type, row),
      "labels": list(label_type.labels),
      "probabilities": row.tolist(),
    }

  names = ("text_a", "text_b") if classifier.is_pair else ("text",)
  outputs = {"value": "DT_FLOAT"}
  if label_type.labels:
    outputs = {
      "label": "DT_STRING",
      "labels": "DT_STRING",
      "probabilities": "DT_FLOAT",
    }
  return LoadedModel(
    label_type.kind,
    tuple(map(Field, names)),
    outputs,
    lambda items: list(map(describe, classifier.probabilities(items))),
    labels=tuple(label_type.labels),
  )


def _load_reader(model_dir, **options):
  reader = Reader(model_dir, **options)

  def answer(items):
    return [
      _describe_answer(context, found)
      for (_, context), found in zip(
        items, reader.answer_all(items), strict=True
      )
    ]

  outputs = {"answer": "DT_STRING", "start": "DT_INT64", "end": "DT_INT64"}
  return LoadedModel(
    "squad",
    (Field("question"), Field("context")),
    {**outputs, "probability": "DT_FLOAT"},
    answer,
  )


def _describe_answer(context, answer):
  """The answer, and its offsets in the context; -1 if it is not there."""
  if answer.words is None and answer.text == squad_decoding.NOTHING_ALLOWED:
    return {"answer": "", "start": -1, "end": -1, "probability": 0.0}
  span = squad_decoding.char_span(squad.Paragraph.of(context), answer)
  start, end = span or (-1, -1)
  return {
    "answer": answer.text,
    "start": start,
    "end": end,
    "probability": answer.probability,
  }


def _load_tagger(model_dir, **options):
  tagger = Tagger(model_dir, **options)

  def answer(items):
    tagged = tagger.tag([text for (text,) in items])
    return [{"entities": [e.to_dict() for e in found]} for found in tagged]

  outputs = {"entities": "DT_VARIANT"}
  return LoadedModel(
    "tagging", (Field("text"),), outputs, answer, labels=tuple(tagger.labels)
  )


def _load_chooser(model_dir, **options):
  chooser = Chooser(model_dir, **options)

  def answer(items):
    # An empty string only fills up the list.
    groups = [(c, list(filter(None, choices)), q) for c, q, choices in items]
    if any(len(choices) < 2 for _, choices, _ in groups):
      raise UserError("pass two or more choices that are not empty")
    return [
      _describe_choice(choices, row)
      for (*_, choices), row in zip(items, chooser.compare(groups), strict=True)
    ]

  fields = (Field("context"), Field("question", default=""))
  return LoadedModel(
    "multiple choice",
    (*fields, Field("choices", is_list=True)),
    {"choice": "DT_INT64", "probabilities": "DT_FLOAT"},
    answer,
  )


def _describe_choice(choices, probabilities):
  """The likeliest of the choices, and the probability of each."""
  rest = iter(probabilities)
  row = [next(rest) if choice else 0.0 for choice in choices]
  return {"choice": row.index(max(row)), "probabilities": row}


# The inputs of a model without a task.
_TEXT_OR_PAIR = (Field("text"), Field("text_b", default=""))


def _text_or_pair(item):
  return item if item[1] else item[0]


def _load_encoder(model_dir, pooling="mean", layers=None, **options):
  if layers is None and pooling != "pooled":
    layers = [-1]
  options.setdefault(
    "max_seq_length", model_folder.default_length(model_dir, _LENGTH)
  )
  extractor = FeatureExtractor(
    model_dir, layers=layers, pooling=pooling, **options
  )

  def answer(items):
    found = extractor(list(map(_text_or_pair, items)))
    if extractor.is_pooled:
      return [{"vector": features.vector} for features in found]
    return [{"tokens": f.tokens, "vectors": f.values} for f in found]

  return LoadedModel("vectors", _TEXT_OR_PAIR, {"vector": "DT_FLOAT"}, answer)


def _load_filler(model_dir, **options):
  filler = MaskFiller(model_dir, **options)

  def answer(items):
    texts = list(map(_text_or_pair, items))
    return [filled.to_dict() for filled in filler(texts)]

  outputs = {"text": "DT_STRING", "masks": "DT_VARIANT"}
  return LoadedModel("fill_mask", _TEXT_OR_PAIR, outputs, answer)


_LOADERS = {
  "squad": _load_reader,
  "tagging": _load_tagger,
  "multiple choice": _load_chooser,
  "classification": _load_classifier,
  "vectors": _load_encoder,
  "fill_mask": _load_filler,
}
