"""The requests and responses of TensorFlow Serving's REST interface.

The format is described at https://www.tensorflow.org/tfx/serving/api_rest. A
string may be an object with the only key "b64", its UTF-8 in base64.
"""

import base64
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert.data import sequences
from bert.engine.loaded_model import LoadedModel, Texts
from bert.errors import UserError, listing

# The version of the model that a server answers with.
VERSION = "1"

_SIGNATURE = "serving_default"

# Decimals of a number: the size of a batch changes only later ones.
_DIGITS = 6

# Inputs and outputs with a list for each row.
_LISTS = ("choices", "entities", "labels", "probabilities", "vector")


class Call(NamedTuple):
  """A request."""

  items: list[Texts]  # The inputs of the model.
  respond: Callable[[list[dict]], dict]  # Makes the JSON of the response.
  rounds: bool = True  # Whether `respond` gets the answers by `to_json`.
  model: LoadedModel | None = None  # Answers instead of the server's model.

  def finish(self, answers: list[dict]) -> dict:
    """The JSON of the response."""
    return self.respond(list(map(to_json, answers)) if self.rounds else answers)


def read_predict(model: LoadedModel, body: dict) -> Call:
  """A request to `:predict`, by rows ("instances") or columns ("inputs")."""
  if isinstance(body, dict) and "instances" in body:
    check_keys(body, ["instances"], "signature_name")
    return Call(
      _read_rows(model, body["instances"], "instances"),
      lambda answers: {"predictions": _rows(model, answers)},
    )
  check_keys(body, ["inputs"], "signature_name")
  return Call(
    _read_columns(model, body["inputs"]),
    lambda answers: {"outputs": _columns(model, answers)},
  )


def read_classify(model: LoadedModel, body: dict) -> Call:
  """A request to `:classify`; each result is a list of [label, score]."""

  def respond(answers):
    pairs = (zip(a["labels"], a["probabilities"], strict=True) for a in answers)
    return {"result": [list(map(list, labels)) for labels in pairs]}

  return Call(_read_examples(model, body), respond)


def read_regress(model: LoadedModel, body: dict) -> Call:
  """A request to `:regress`; each result is a number."""
  return Call(
    _read_examples(model, body),
    lambda answers: {"result": [answer["value"] for answer in answers]},
  )


def read_answer(model: LoadedModel, body: object) -> Call:
  """A plain request: the inputs of the model, or a list of such inputs.

  The response is the answer, or {"answers": [...]} for a list.
  """
  if isinstance(body, list):
    items = _read_rows(model, body, "input")
    return Call(items, lambda answers: {"answers": answers})
  item = _parse(model, body, "the input")
  return Call([item], lambda answers: answers[0])


# The reader of each method, and the output that a model needs for it.
READERS = {
  "predict": (read_predict, None),
  "classify": (read_classify, "labels"),
  "regress": (read_regress, "value"),
}


def status() -> dict:
  """The response to GET /v1/models/NAME."""
  status = {"error_code": "OK", "error_message": ""}
  version = {"version": VERSION, "state": "AVAILABLE", "status": status}
  return {"model_version_status": [version]}


def metadata(model: LoadedModel, name: str) -> dict:
  """The response to GET /v1/models/NAME/metadata: names, types and ranks."""

  def tensor(tensor_name, dtype):
    sizes = [{"size": "-1", "name": ""}] * (1 + (tensor_name in _LISTS))
    shape = {"dim": sizes, "unknown_rank": False}
    return {"name": tensor_name, "dtype": dtype, "tensor_shape": shape}

  inputs = {f.name: tensor(f.name, "DT_STRING") for f in model.fields}
  outputs = {n: tensor(n, dtype) for n, dtype in model.outputs.items()}
  signature = {
    "inputs": inputs,
    "outputs": outputs,
    "method_name": "tensorflow/serving/predict",
  }
  return {
    "model_spec": {"name": name, "signature_name": "", "version": VERSION},
    "metadata": {"signature_def": {"signature_def": {_SIGNATURE: signature}}},
  }


def to_json(answer: dict) -> dict:
  """An answer for JSON, with rounded probabilities and vectors."""
  # The number of a regression is already rounded, by its scale.
  return {n: v if n == "value" else _rounded(v) for n, v in answer.items()}


def _rounded(value):
  if isinstance(value, float):
    return round(value, _DIGITS)
  if hasattr(value, "tolist"):  # A vector.
    return _rounded(value.tolist())
  if isinstance(value, (list, tuple)):
    return list(map(_rounded, value))
  if isinstance(value, dict):
    return {name: _rounded(part) for name, part in value.items()}
  return value


def check_keys(body: object, required: Sequence[str], *optional: str) -> None:
  """Raises UserError unless a body is an object with the right keys."""
  keys = set(body) if isinstance(body, dict) else set()
  if not {*required} <= keys <= {*required, *optional}:
    may = f", and may have {listing(optional)}" if optional else ""
    raise UserError(f"the body must be an object with {listing(required)}{may}")


def check_list(rows: object, name: str) -> list:
  """The rows, which must be a list that is not empty."""
  if not isinstance(rows, list) or not rows:
    raise UserError(f"{name!r} is not a list with at least one element")
  return rows


def _read_rows(model, rows, name):
  return [
    _parse(model, row, f"{name}[{index}]")
    for index, row in enumerate(check_list(rows, name))
  ]


def _parse(model, row, where):
  """The inputs in a row, whose strings may be in base64."""
  row = _decoded(row)
  if isinstance(row, dict):
    row = {
      name: list(map(_decoded, value))
      if isinstance(value, list)
      else _decoded(value)
      for name, value in row.items()
    }
  return model.parse(row, where)


def _decoded(value):
  """The string in an object such as {"b64": "QQ=="}; other values as is."""
  try:
    return base64.b64decode(value["b64"], validate=True).decode()
  except (TypeError, ValueError, KeyError):  # The model explains what it reads.
    return value


def _read_columns(model, columns):
  """The inputs in a dict of lists, or in the list of the only input."""
  if len(model.required) == 1 and not isinstance(columns, dict):
    return _read_rows(model, columns, "inputs")
  lists = list(columns.values()) if isinstance(columns, dict) else [None]
  sizes = {len(x) if isinstance(x, list) else 0 for x in lists}
  if len(sizes) != 1 or 0 in sizes:
    raise UserError("'inputs' is not an object with lists of one length")
  return [
    _parse(model, row, f"inputs, row {index}")
    for index, row in enumerate(sequences.rows_of(columns))
  ]


def _read_examples(model, body):
  """The inputs of `:classify` and `:regress`: texts, or lists of one text."""
  check_keys(body, ["examples"], "context", "signature_name")
  examples, context = body["examples"], body.get("context", {})
  if isinstance(examples, list) and isinstance(context, dict):
    examples = [
      {name: _only(value) for name, value in {**context, **example}.items()}
      if isinstance(example, dict)
      else example
      for example in examples
    ]
  return _read_rows(model, examples, "examples")


def _only(value):
  """The element of a list of one; other values as is."""
  return value[0] if isinstance(value, list) and len(value) == 1 else value


def _rows(model, answers):
  """The answers; the values alone if there is only one output."""
  if len(model.outputs) > 1:
    return answers
  (name,) = model.outputs
  return [answer[name] for answer in answers]


def _columns(model, answers):
  columns = {name: [a[name] for a in answers] for name in model.outputs}
  return columns if len(columns) > 1 else next(iter(columns.values()))
