"""What a server answers, for the model in any folder.

    model = load("/tmp/mrpc_output")
    texts = model.parse({"text_a": "A text.", "text_b": "Another."})
    model.answer([texts])  # [{"label": "1", "labels": [...], ...}]

The names of inputs and outputs are those of the SavedModels that
export_model.py writes.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bert.errors import UserError, listing
from bert.data import downloads
from bert.tasks import squad, squad_decoding
from bert.tasks import labels as label_types
from bert.tasks.chooser import Chooser
from bert.tasks.classifier import Classifier
from bert.tasks.features import FeatureExtractor
from bert.tasks.find_task import find_task
from bert.tasks.squad_reader import Reader
from bert.tasks.tagger import Tagger
from bert.training import model_folder

# Digits after the point, so that batches of other sizes give the same text.
_DIGITS = 6

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


@dataclasses.dataclass(frozen=True)
class ServedModel:
  """A trained model, loaded once.

  Attributes:
    kind: the task, such as "classification".
    fields: its inputs.
    outputs: dict from the name of each output to its type, one of TensorFlow's.
    answer: from the inputs of several requests, in the order of `fields`, to a
      dict of the outputs of each. Raises UserError for an input that the model
      cannot read.
  """

  kind: str
  fields: tuple[Field, ...]
  outputs: Mapping[str, str]
  answer: Callable[[Sequence[Texts]], list[dict]]

  def parse(self, value: object, where: str = "the input") -> Texts:
    """The inputs in a JSON value: an object by name, or the only text.

    Raises:
      UserError: a name is missing or unknown, or a value has another type. The
        message names `where`.
    """
    if isinstance(value, str) and len(self.fields) == 1:
      value = {self.fields[0].name: value}
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


def load(model_dir: str, **options) -> ServedModel:
  """The model in a folder.

  Args:
    model_dir: the `output_dir` of a finished training, or a release, whose
      answers are the mean vectors of its highest layer.
    **options: batch_size, precision and runtime, see `predictor.Predictor`.

  Raises:
    UserError: the folder holds no model.
  """
  model_dir = downloads.local_path(model_dir)
  return _LOADERS[find_task(model_dir)](model_dir, **options)


def _rounded(numbers):
  return [round(float(number), _DIGITS) for number in numbers]


def _load_classifier(model_dir, **options):
  classifier = Classifier(model_dir, **options)
  label_type = classifier.label_type

  def describe(row):
    if not label_type.labels:
      return {"value": float(row[0])}  # It is rounded.
    return {
      "label": label_types.predicted_text(label_type, row),
      "labels": list(label_type.labels),
      "probabilities": _rounded(row),
    }

  names = ("text_a", "text_b") if classifier.is_pair else ("text",)
  outputs = {"value": "DT_FLOAT"}
  if label_type.labels:
    outputs = {
      "label": "DT_STRING",
      "labels": "DT_STRING",
      "probabilities": "DT_FLOAT",
    }
  return ServedModel(
    label_type.kind,
    tuple(map(Field, names)),
    outputs,
    lambda items: list(map(describe, classifier.probabilities(items))),
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
  return ServedModel(
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
    "probability": round(answer.probability, _DIGITS),
  }


def _load_tagger(model_dir, **options):
  tagger = Tagger(model_dir, **options)

  def answer(items):
    tagged = tagger.tag([text for (text,) in items])
    return [{"entities": [e.to_dict() for e in found]} for found in tagged]

  outputs = {"entities": "DT_VARIANT"}
  return ServedModel("tagging", (Field("text"),), outputs, answer)


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
  return ServedModel(
    "multiple choice",
    (*fields, Field("choices", is_list=True)),
    {"choice": "DT_INT64", "probabilities": "DT_FLOAT"},
    answer,
  )


def _describe_choice(choices, probabilities):
  """The likeliest of the choices, and the probability of each."""
  rest = iter(probabilities)
  row = [next(rest) if choice else 0.0 for choice in choices]
  return {"choice": row.index(max(row)), "probabilities": _rounded(row)}


def _load_encoder(model_dir, **options):
  length = model_folder.default_length(model_dir, _LENGTH)
  extractor = FeatureExtractor(
    model_dir, layers=[-1], pooling="mean", max_seq_length=length, **options
  )

  def answer(items):
    vectors = extractor.vectors([text for (text,) in items])
    return [{"vector": _rounded(vector)} for vector in vectors]

  return ServedModel(
    "vectors", (Field("text"),), {"vector": "DT_FLOAT"}, answer
  )


_LOADERS = {
  "squad": _load_reader,
  "tagging": _load_tagger,
  "multiple choice": _load_chooser,
  "classification": _load_classifier,
  None: _load_encoder,
}
