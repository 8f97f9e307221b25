"""Answers to questions on any text, in Python and on the terminal.

    reader = Reader("/tmp/squad_base")
    reader("Who built it?", "The tower was built by Eiffel's company.")[0].text

A folder that training has filled says all that a Reader needs to know.
"""

import functools
import os
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

import modeling
import tokenization
import variables
from errors import UserError
from pipeline import files, records, text_files
from tasks import squad, squad_decoding, squad_model
from tasks.squad_model import ReadingSettings
from training import checkpoints, model_folder


class Reader:
  """A trained model, loaded once, that answers questions on texts.

  Args:
    model: the `output_dir` of a finished training, or the prefix of a
      checkpoint.
    bert_config: its BertConfig; the one beside it when None.
    tokenizer: its FullTokenizer; by the vocabulary beside it when None.
    settings: its ReadingSettings; those beside it, or else the original's,
      when None.
    decoding: other fields of `squad_answers.DecodingSettings`.
    exact_answer_text: whether answers are given character by character.
    batch_size: most windows that are computed at a time.
    precision: "float32" or "bfloat16".

  Attributes:
    settings: its ReadingSettings.
    decoding: its DecodingSettings.

  Raises:
    ValueError: there is no such model.
  """

  def __init__(
    self,
    model: str,
    bert_config: modeling.BertConfig | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    settings: ReadingSettings | None = None,
    decoding: Mapping | None = None,
    exact_answer_text: bool = False,
    batch_size: int = 8,
    precision: str = "float32",
  ):
    if not (model and isinstance(model, str | os.PathLike)):
      raise UserError(
        f"{model!r} is not a model; pass the --output_dir of a training that "
        f"has ended, or the prefix of a checkpoint"
      )
    prefix, folder = _release(os.fspath(model))
    self._config = bert_config or model_folder.load_config(folder)
    self._tokenizer = tokenizer or model_folder.load_tokenizer(
      folder, getattr(self._config, "do_lower_case", True)
    )
    settings = settings or squad_model.read_settings(folder)
    self.settings = settings or ReadingSettings()
    self.settings.check()
    exact_text = functools.partial(squad.exact_text, tokenizer=self._tokenizer)
    self.decoding = squad_decoding.DecodingSettings(
      do_lower_case=self._tokenizer.basic_tokenizer.do_lower_case,
      version_2_with_negative=self.settings.version_2_with_negative,
      exact_text=exact_text if exact_answer_text else None,
      **(decoding or {}),
    )
    self._batch_size = batch_size
    self._precision = precision
    weights = checkpoints.Checkpoint(prefix, weights_only=True)
    head_shapes = squad_model.head_shapes(self._config)
    checkpoints.compare(
      weights, {**modeling.variable_shapes(self._config), **head_shapes}
    )
    limit = self._config.max_position_embeddings
    if self.settings.max_seq_length > limit:
      raise UserError(
        f"--max_seq_length={self.settings.max_seq_length} is more than the "
        f"{limit} positions of {model}; lower it"
      )
    self._store = variables.VariableStore(initial_values=weights)
    ids = tf.TensorSpec([None, None], tf.int32)
    self._logits = tf.function(
      self._compute_logits, input_signature=[ids] * 3, autograph=False
    )

  def __call__(
    self, question: str, context: str
  ) -> list[squad_decoding.Candidate]:
    """The n best answers that stand in a text, the best first.

    A candidate "" says that the text does not answer the question.

    Raises:
      ValueError: question or text has no words, or is no str.
    """
    return self.answer(question, context).nbest

  def answer(self, question: str, context: str) -> squad_decoding.Answer:
    """As `__call__`, with the answer that the settings decide for."""
    if not (isinstance(question, str) and isinstance(context, str)):
      raise UserError("pass a question and a text, both as str")
    paragraph = squad.Paragraph.of(context)
    example = squad.SquadExample(
      "", question, paragraph.doc_tokens, paragraph=paragraph
    )
    windows = list(self.settings.features([example], self._tokenizer, False))
    if not (windows and self._tokenizer.tokenize(question)):
      raise UserError("question and text must have words; pass some")
    results = self._run(windows)
    return squad_decoding.answer_question(
      example, windows, results, self.decoding
    )

  def _run(self, windows):
    """RawResults of windows, computed in order of length."""
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].tokens))
    results = [None] * len(windows)
    for start in range(0, len(order), self._batch_size):
      chosen = order[start : start + self._batch_size]
      longest = len(windows[chosen[-1]].tokens)
      batch = [
        np.array(
          [getattr(windows[i], name)[:longest] for i in chosen], np.int32
        )
        for name in records.SEQUENCES
      ]
      logits = [part.numpy() for part in self._logits(*batch)]
      for i, *row in zip(chosen, *logits, strict=True):
        length = len(windows[i].tokens)
        results[i] = squad_decoding.RawResult(
          windows[i].unique_id, *(logits[:length] for logits in row)
        )
    return results

  def _compute_logits(self, input_ids, input_mask, segment_ids):
    with self._store:
      return squad_model.create_model(
        self._config,
        False,
        input_ids,
        input_mask,
        segment_ids,
        False,
        self._precision,
      )


def is_release(model_dir: str) -> bool:
  """Whether a folder is what a training on SQuAD leaves at its end."""
  needed = (
    squad_model.SETTINGS_NAME,
    "bert_config.json",
    f"{checkpoints.RELEASE_NAME}.index",
  )
  return all(tf.io.gfile.exists(os.path.join(model_dir, n)) for n in needed)


def _release(model):
  """The prefix of a model's checkpoint, and its folder."""
  if is_release(model):
    return os.path.join(model, checkpoints.RELEASE_NAME), model
  prefix = checkpoints.find_checkpoint(model)
  return prefix, os.path.dirname(prefix) or "."


def converse(
  reader: Reader,
  shown: int,
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks for a text, then for questions on it, until there are no more.

  An empty question asks for another text.

  Args:
    reader: a Reader.
    shown: how many candidates to show of each answer.
    read: from a prompt to a line; raises EOFError at the end.
    write: shows a line.
  """
  context = None
  while True:
    try:
      line = read("context file> " if context is None else "question> ").strip()
    except EOFError:
      return
    try:
      if context is None:
        context = _read_text(line) if line else None
      elif not line:
        context = None
      else:
        write(_described(reader.answer(line, context), shown))
    except ValueError as error:
      write(f"error: {error}")


def _read_text(path):
  """A text file's content, unless it has no words."""
  if tf.io.gfile.isdir(path) or not tf.io.gfile.exists(path):
    raise UserError(f"{path} is no file; type the path of a text")
  text = text_files.decode_utf8(path, files.read_bytes(path))
  if not text.strip():
    raise UserError(f"{path} is empty; type the path of another")
  return text


def _described(answer, shown):
  """An answer in words, then its candidates with their probabilities."""
  lines = [_shown(answer.text)]
  lines += [f"  {c.probability:6.1%}  {_shown(c.text)}" for c in answer.nbest]
  return "\n".join(lines[: shown + 1])


def _shown(text):
  return " ".join(text.split()) or "(no answer)"
