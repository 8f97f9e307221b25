"""The model card, README.md beside a model: what it is, and how to use it.

    write("/tmp/mrpc_output", task, record, evaluations, verdicts)
    content = converted("/tmp/mrpc_output", task, code, "transformers")

It begins with YAML that the Hugging Face hub reads. A training writes the card;
a conversion or an export keeps it, with other code for its use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bert.data import downloads, files, text_files
from bert.reports.verdict import Verdict

if TYPE_CHECKING:
  from bert.contract.task import Evaluation, Task

NAME = "README.md"

_LIBRARY = "bert-tensorflow2"
_USE = "\n## Use\n"

# Kind of task -> the hub's name for it.
_PIPELINES = {
  "classification": "text-classification",
  "squad": "question-answering",
  "tagging": "token-classification",
  "multiple choice": "multiple-choice",
  "vectors": "sentence-similarity",
  "fill_mask": "fill-mask",
}

# Flags of a training, in the order of the card.
_FLAGS = (
  *("init_checkpoint", "teacher", "num_train_epochs", "num_train_steps"),
  *("train_batch_size", "learning_rate", "warmup_proportion", "precision"),
  "seed",
)

# Flags of data to evaluate on, and those to train on, if they stand for them.
_DATA = ("dev_file", "eval_input_file", "train_file", "input_file")

# Metrics whose names do not begin with "eval_".
_OTHER_METRICS = (
  *("f1", "exact_match", "exact"),
  *("masked_lm_accuracy", "next_sentence_accuracy"),
)


def write(
  folder: str,
  task: Task,
  record: Mapping,
  evaluations: Sequence[Evaluation] = (),
  verdicts: Mapping[str, Verdict] | None = None,
) -> None:
  """Writes the card of the model that was trained in a folder.

  A README.md that is no card stays.

  Args:
    record: the content of flags.json.
    verdicts: the Verdict on each evaluation, by its name.
  """
  path = os.path.join(folder, NAME)
  if files.exists(path) and not _read(path):
    return
  verdicts, flags = verdicts or {}, record["flags"]
  data = _data_name(task, flags)
  sections = [
    _description(task),
    _results(evaluations, verdicts),
    _data(record),
    _training(flags, record.get("versions", {})),
    _limits(task),
  ]
  metadata = _metadata(folder, task, flags, data, evaluations)
  code = python_code(task, os.path.basename(os.path.abspath(folder)))
  content = _document(metadata, "\n".join(filter(None, sections)), code)
  files.write_file(path, content)


def _read(path):
  """The card in a file; "" for any other text, or without the file."""
  text = text_files.read_text(path) if files.exists(path) else ""
  return text if text.startswith("---\n") and _USE in text else ""


def converted(
  folder: str, task: Task | None, code: str, library: str = _LIBRARY
) -> str:
  """The card of the model in a folder, with `code` for its use by a library.

  A folder without a card gets a short one.
  """
  from huggingface_hub import ModelCard

  if not (text := _read(os.path.join(folder, NAME))):
    body = f"{_description(task)}\n{_limits(task)}" if task else "# BERT\n"
    text = _document(_metadata(folder, task, {}, "", ()), body, code)
  card = ModelCard(text.partition(_USE)[0] + _use(code))
  card.data.library_name = library
  return str(card)


def python_code(task: Task, path: str) -> str:
  """Python that answers an input with the model in a folder."""
  texts = {
    field.name: ["It rains.", "It is dry."] if field.is_list else "It rains."
    for field in task.inputs
    if field.default is None
  }
  if task.kind == "fill_mask":
    texts["text"] = f"It is {task.tokenizer.special.mask}."
  given = texts if len(texts) > 1 else next(iter(texts.values()))
  shown = json.dumps(given, ensure_ascii=False)
  # The folder of a pre-training records no task.
  named = ', task="fill_mask"' if task.kind == "fill_mask" else ""
  return (
    f'import bert\n\nmodel = bert.load("{path}"{named})\nprint(model({shown}))'
  )


def transformers_code(task: Task | None, architecture: str, path: str) -> str:
  """Python that computes the outputs of a folder by transformers."""
  texts, inputs = '"It rains."', "inputs"
  if architecture.endswith("MultipleChoice"):
    texts = '2 * ["It rains."], ["It is wet.", "It is dry."], padding=True'
    inputs = "{name: rows[None] for name, rows in inputs.items()}"
  elif task and sum(field.default is None for field in task.inputs) == 2:
    texts = '"It rains.", "Rain falls."'
  return f"""from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained("{path}")
model = {architecture}.from_pretrained("{path}")
inputs = tokenizer({texts}, return_tensors="pt")
print(model(**{inputs}))"""


def sentence_code(path: str) -> str:
  """Python that computes vectors of a folder by sentence-transformers."""
  return f"""from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{path}")
print(model.encode(["It rains.", "Rain falls."]))"""


def _document(metadata, body, code):
  return f"---\n{metadata}\n---\n\n{body}{_use(code)}"


def _use(code):
  return f"{_USE}\n```python\n{code}\n```\n"


def _data_name(task, flags):
  """The name of the data; if they have none, that of a file."""
  if task.name not in ("custom", "fill_mask"):
    return str(task.name)
  paths = filter(None, map(flags.get, _DATA))
  return os.path.basename(next(paths, "the data"))


def _metadata(folder, task, flags, data, evaluations):
  """The front matter, in YAML."""
  from huggingface_hub import EvalResult, ModelCardData

  pipeline = _PIPELINES.get(task.kind) if task else None
  base = str(flags.get("init_checkpoint") or "")
  is_hub = base.startswith(downloads.HUB_SCHEME)
  base = base.removeprefix(downloads.HUB_SCHEME).partition("@")[0]
  results = [
    EvalResult(pipeline, data, data, name, value)
    for evaluation in evaluations
    for name, value in _metrics(evaluation)
    if pipeline
  ]
  name = os.path.basename(os.path.abspath(folder))
  fields = ModelCardData(
    model_name=name if results else None,
    pipeline_tag=pipeline,
    library_name=_LIBRARY,
    base_model=base if is_hub else None,
    tags=["bert"],
    eval_results=results or None,
  )
  return fields.to_yaml()


def _description(task):
  names = [f"`{field.name}`" for field in task.inputs if field.default is None]
  text = f"# A BERT model ({task.kind})\n\nAn input is {' and '.join(names)}.\n"
  if task.labels:
    labels = ", ".join(f"`{label}`" for label in task.labels)
    text += f"\nLabels, in the order of the outputs: {labels}.\n"
  return text


def _results(evaluations, verdicts):
  lines = ""
  for evaluation in evaluations:
    for name, value in _metrics(evaluation):
      lines += f"| {evaluation.name} | {name} | {value:.4g} |\n"
  if not lines:
    return ""
  head = "## Results\n\n| data | metric | value |\n| --- | --- | --- |\n"
  ranges = "".join(
    f"\n{name}: {judged}.\n" for name, judged in verdicts.items()
  )
  return head + lines + ranges


def _metrics(evaluation):
  """Yields the name and the value of each metric."""
  for name, value in evaluation.results.items():
    if name.startswith("eval_") or name in _OTHER_METRICS:
      yield name.removeprefix("eval_"), float(value)


def _data(record):
  counts = record.get("examples", {})
  lines = "".join(
    f"| {name} | {counts.get(name, '')} | `{digest}` |\n"
    for name, digest in record["data"].items()
    if digest and name.split("_")[0] in ("train", "dev", "unlabeled")
  )
  head = "## Data\n\n| set | examples | hash |\n| --- | --- | --- |\n"
  return head + lines if lines else ""


def _training(flags, versions):
  lines = "".join(
    f"- `--{name}={_without_folder(flags[name])}`\n"
    for name in _FLAGS
    if flags.get(name)
  )
  used = ", ".join(
    f"{name} {versions[name]}"
    for name in ("bert", "tensorflow", "python")
    if name in versions
  )
  lines += f"- versions: {used}\n" if used else ""
  return f"## Training\n\n{lines}" if lines else ""


def _without_folder(value):
  """A path without its folder, which others need not know."""
  is_path = isinstance(value, str) and "://" not in value
  return os.path.basename(value.rstrip("/")) if is_path else value


def _limits(task):
  does = "cuts" if task.truncates else "splits"
  if task.kind == "fill_mask":
    does = "refuses"
  length = task.settings.max_seq_length
  lines = [f"The model {does} texts of more than {length} word pieces."]
  if task.tokenizer.splits_words:
    is_uncased = task.tokenizer.basic_tokenizer.do_lower_case
    does = "ignores" if is_uncased else "reads"
    lines.append(f"It {does} upper case and accents.")
  temperatures = getattr(task.settings, "temperatures", None)
  if temperatures is not None:
    lines.append(
      "Its probabilities were calibrated on held-out rows."
      if temperatures
      else "Its probabilities were not calibrated."
    )
  lines.append("Its training did not record the languages of the texts.")
  return "## Limits\n\n" + " ".join(lines) + "\n"
