"""A trained classifier, in Python and on the terminal.

classifier = Classifier("/tmp/mrpc_output")
classifier(["This movie is great!"])[0].label
"""

import os
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple, TextIO

import numpy as np

from bert import layers
from bert.errors import UserError, plural
from bert.data import downloads, files, sequences, text_files
from bert.tasks import classification, prediction_files, terminal
from bert.tasks import labels as label_types
from bert.tasks.examples import InputExample, convert_example
from bert.training import model_folder
from bert.training.predictor import Predictor

# Lines that are answered together.
_MAX_LINES = 1024


class Prediction(NamedTuple):
  """The prediction for a text.

  Attributes:
    label: the most probable label; for a multilabel model, the labels with a
      probability above 0.5, separated by `|`; for a regression, the number.
    probabilities: dict from label to probability; empty for a regression.
  """

  label: str | float
  probabilities: dict[str, float]


class Classifier:
  """A trained classifier, loaded once.

  Args:
    model_dir: the `output_dir` of a finished training.
    batch_size: rows per batch.
    precision, runtime: see `predictor.Predictor`.

  Attributes:
    label_type: its label type; see `tasks.labels`.
    is_pair: whether it was trained on pairs of texts.
    tokenizer, reading: how it reads text; a FullTokenizer and a Reading.
    predictor: computes the logits.

  Raises:
    UserError: the folder does not hold a trained classifier.
  """

  def __init__(
    self,
    model_dir: str,
    batch_size: int = 32,
    precision: str | None = None,
    runtime: str = "tensorflow",
  ):
    model_dir = downloads.local_path(model_dir)
    self.label_type, self.reading = classification.read_assets(model_dir)
    if self.label_type is None or not model_folder.is_finished(model_dir):
      inside = _find_classifier(model_dir)
      raise UserError(
        f"{model_dir} does not hold a trained classifier; pass the "
        f"--output_dir of a finished training"
        f"{f', such as {inside}' if inside else ''}"
      )
    model = model_folder.find_model(model_dir)
    self._check_length(model_dir, model.config.max_position_embeddings)
    self.is_pair = self.reading.is_pair
    self.tokenizer = model.tokenizer
    num_outputs = self.label_type.num_outputs

    def compute(bert, features):
      return {"logits": classification.compute_logits(bert, num_outputs, False)}

    self.predictor = Predictor(
      model,
      compute,
      layers.output_shapes(model.config.hidden_size, num_outputs),
      batch_size=batch_size,
      precision=precision,
      runtime=runtime,
    )

  def __call__(
    self, texts: Sequence[str | tuple[str, str]]
  ) -> list[Prediction]:
    """The prediction for each text, or pair of texts.

    Raises:
      UserError: a text is not a pair and the model was trained on pairs, or
        the reverse; or `texts` is a str instead of a list.
    """
    predictions = []
    for row in self.probabilities(texts).tolist():
      if self.label_type.labels:
        label = label_types.predicted_text(self.label_type, row)
        by_label = dict(zip(self.label_type.labels, row, strict=True))
        predictions.append(Prediction(label, by_label))
      else:
        predictions.append(Prediction(row[0], {}))
    return predictions

  def probabilities(self, texts: Sequence[str | tuple[str, str]]) -> np.ndarray:
    """The probability of each label, float32 [texts, C].

    For a regression, the numbers, float64 [texts, 1].
    """
    if isinstance(texts, str):
      raise UserError("pass a list of texts, not a single text")
    rows, counts = [], []
    for text in texts:
      has_parts = isinstance(text, (tuple, list, np.ndarray))
      pair = tuple(text) if has_parts else (text,)
      if len(pair) != 1 + self.is_pair:
        wanted = "pairs of texts" if self.is_pair else "single texts"
        raise UserError(f"{text!r}: the model was trained on {wanted}")
      if not all(isinstance(part, str) for part in pair):
        raise UserError(f"{text!r}: pass texts as str")
      features = convert_example(
        InputExample("", *pair),
        self.label_type,
        self.reading.max_seq_length,
        self.tokenizer,
        self.reading.long_text,
      )
      rows += map(vars, features)
      counts.append(len(features))
    if not rows:
      return np.zeros([0, self.label_type.num_outputs], np.float32)
    logits = self.predictor(rows)["logits"]
    by_text = sequences.groups_of(logits, counts)
    means = np.stack([np.mean(group, axis=0) for group in by_text])
    return np.asarray(self.label_type.probabilities(means))

  def _check_length(self, model_dir, limit):
    """Raises UserError if classifier.json has a length that is too large."""
    length = self.reading.max_seq_length
    if length > limit:
      path = os.path.join(model_dir, classification.SETTINGS_NAME)
      raise UserError(
        f"{path}: max_seq_length={length} is more than the {limit} positions "
        f"of the model; lower it"
      )


def answer_file(classifier: Classifier, path: str, writer: TextIO) -> None:
  """Writes a table of predictions for the lines of a file, or of stdin ("-").

  Raises:
    UserError: the file is a table, or a line is wrong; see `answer_lines`.
  """
  name = path.lower().removesuffix(".gz")
  if name.endswith((".csv", ".json", ".jsonl")):
    raise UserError(
      f"--predict_file={path} would be read as lines of text; pass a table as "
      f"--test_file, with --task_name=custom and --do_predict"
    )
  with text_files.open_input(path) as (reader, name):
    answer_lines(classifier, reader, writer, name)


def answer_lines(
  classifier: Classifier, reader: BinaryIO, writer: TextIO, name: str
) -> None:
  """Writes a table of predictions for lines of text as they arrive.

  Args:
    classifier: a Classifier.
    reader: UTF-8 lines: a text, or two separated by a tab. If the model reads
      pairs, empty lines at the end are ignored.
    writer: receives the table.
    name: name of the reader in messages.

  Raises:
    UserError: a line is not UTF-8, or has another number of texts.
  """
  label_type = classifier.label_type
  table = prediction_files.table_writer(writer)
  table.writerow(prediction_files.header(label_type))
  writer.flush()
  number, empty = 0, []
  for lines in text_files.lines_as_they_come(reader, name, _MAX_LINES):
    if classifier.is_pair:
      # An empty line is an error as soon as another line follows.
      lines, empty = _without_empty_end([*empty, *lines])
    texts = [_parse(text, where, classifier.is_pair) for where, text in lines]
    for row in classifier.probabilities(texts):
      table.writerow(prediction_files.table_row(label_type, str(number), row))
      number += 1
    writer.flush()


def _without_empty_end(lines):
  """Lines up to the last one with text, and the first empty one after it."""
  size = len(lines)
  while size and not lines[size - 1][1]:
    size -= 1
  return lines[:size], lines[size : size + 1]


def _parse(text: str, where: str, is_pair: bool) -> tuple[str, ...]:
  """The texts of a line."""
  texts = tuple(text.split("\t"))
  if len(texts) != 1 + is_pair:
    wanted = "two texts, separated by a tab" if is_pair else "one text"
    raise UserError(
      f"{where}: {plural(len(texts), 'text')}, separated by tabs; the model "
      f"needs {wanted}, per line"
    )
  return texts


def converse(
  classifier: Classifier,
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks for texts until the input ends, and prints the predictions."""

  def answer(*texts):
    row = classifier.probabilities([texts])[0]
    return _describe(classifier.label_type, row)

  pair = ("first text> ", "second text> ")
  prompts = pair if classifier.is_pair else ("> ",)
  terminal.converse(answer, prompts, read, write)


def _describe(label_type, probabilities):
  """The predicted label, then all labels by probability."""
  answer = label_types.predicted_text(label_type, probabilities)
  if not label_type.labels:
    return answer
  ranked = sorted(
    zip(probabilities.tolist(), label_type.labels, strict=True), reverse=True
  )
  shares = (f"{label} {p:.1%}" for p, label in ranked)
  return f"{answer or 'no label'}   ({', '.join(shares)})"


def _find_classifier(folder):
  """The first folder inside that holds a classifier, or None.

  A training with several tasks or seeds leaves such folders.
  """
  names = sorted(files.listdir(folder)) if files.isdir(folder) else []
  for path in (os.path.join(folder, name) for name in names):
    is_model = files.isdir(path) and model_folder.is_finished(path)
    if is_model and classification.read_assets(path)[0] is not None:
      return path
  return None
