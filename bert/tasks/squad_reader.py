"""A trained model that answers questions, in Python and on the terminal.

reader = Reader("/tmp/squad_base")
reader("Who built it?", "The tower was built by Eiffel's company.")[0].text
"""

import os
from collections.abc import Callable, Mapping, Sequence

import modeling
import tokenization
from bert.errors import UserError
from bert.data import records, sequences, text_files
from bert.tasks import squad, squad_model, terminal
from bert.tasks.find_task import find_task
from bert.tasks.squad import ReadingSettings
from bert.tasks.squad_decoding import (
  Answer,
  Candidate,
  RawResult,
  answer_question,
)
from bert.training import checkpoints, model_folder
from bert.training.predictor import Predictor

# Number of answers shown on the terminal.
_SHOWN = 5


class Reader:
  """A trained model, loaded once, that answers questions on texts.

  Args:
    model: the `output_dir` of a finished training, or a checkpoint's prefix.
    bert_config: its BertConfig. Default: from the model's folder.
    tokenizer: its FullTokenizer. Default: from the model's folder.
    settings: its ReadingSettings. Default: from the model's folder, or those
      of the original.
    decoding: fields of DecodingSettings. Default of the threshold: the one that
      the model's folder stores, or 0.
    batch_size: windows per batch.
    precision, runtime: see `predictor.Predictor`.

  Attributes:
    settings: its ReadingSettings.
    decoding: its DecodingSettings.
    tokenizer: its FullTokenizer.
    predictor: computes the logits.

  Raises:
    UserError: there is no such model.
  """

  def __init__(
    self,
    model: str,
    bert_config: modeling.BertConfig | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    settings: ReadingSettings | None = None,
    decoding: Mapping | None = None,
    batch_size: int = 8,
    precision: str | None = None,
    runtime: str = "tensorflow",
  ):
    if not isinstance(model, (str, os.PathLike)) or not os.fspath(model):
      raise UserError(f"{model!r} is not a model; pass the path of its folder")
    prefix = checkpoints.find_checkpoint(os.fspath(model))
    folder = os.path.dirname(prefix) or "."
    config = bert_config or model_folder.load_config(folder)
    self.tokenizer = tokenizer or model_folder.load_tokenizer(
      folder, model_folder.lower_cases(config, prefix)
    )
    self.settings = settings or squad_model.read_assets(folder)
    fields = dict(decoding or {})
    if "null_score_diff_threshold" not in fields:
      fields |= squad_model.stored_decoding(folder)
    self.decoding = squad_model.decoding_settings(
      self.tokenizer, self.settings, **fields
    )

    def compute(bert, features):
      start_logits, end_logits = squad_model.compute_logits(bert)
      return {"start_logits": start_logits, "end_logits": end_logits}

    self.predictor = Predictor(
      model_folder.Model(config, self.tokenizer, prefix),
      compute,
      squad_model.variable_shapes(config),
      optional=checkpoints.POOLER,
      spec=records.sequence_spec(self.settings.max_seq_length),
      output_axes=dict.fromkeys(
        ("start_logits", "end_logits"), (records.POSITION,)
      ),
      batch_size=batch_size,
      precision=precision,
      runtime=runtime,
    )

  def __call__(self, question: str, context: str) -> list[Candidate]:
    """The n best answers in a text, best first.

    The candidate "" means that the text does not answer the question.

    Raises:
      UserError: question or text contains no words, or is not a str.
    """
    return self.answer(question, context).nbest

  def answer(self, question: str, context: str) -> Answer:
    """Like `__call__`, with the answer that the threshold decides."""
    return self.answer_all([(question, context)])[0]

  def answer_all(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
    """The answers to several pairs of a question and a text, in batches."""
    examples = []
    for question, context in pairs:
      if not (isinstance(question, str) and isinstance(context, str)):
        raise UserError("pass question and text as str")
      paragraph = squad.Paragraph.of(context)
      examples.append(
        squad.SquadExample(
          "", question, paragraph.doc_tokens, paragraph=paragraph
        )
      )
    groups = list(
      squad.iterate_windows(examples, self.tokenizer, self.settings, False)
    )
    for example, windows in zip(examples, groups, strict=True):
      if not (windows and self.tokenizer.tokenize(example.question_text)):
        raise UserError("question or text contains no words; pass some")
    flat = [window for windows in groups for window in windows]
    logits = self.predictor([vars(window) for window in flat])
    unique_ids = [window.unique_id for window in flat]
    results = map(
      RawResult, unique_ids, logits["start_logits"], logits["end_logits"]
    )
    by_question = sequences.groups_of(results, map(len, groups))
    return [
      answer_question(example, windows, found, self.decoding)
      for example, windows, found in zip(
        examples, groups, by_question, strict=True
      )
    ]


def is_trained(model_dir: str) -> bool:
  """Whether a folder holds a finished training on SQuAD."""
  is_squad = find_task(model_dir) == "squad"
  return is_squad and model_folder.is_finished(model_dir)


def converse(
  reader: Reader,
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks for a text file and for questions on it, until the input ends.

  An empty question asks for another file.

  Args:
    reader: a Reader.
    read: from a prompt to a line; raises EOFError at the end.
    write: shows a line.

  Raises:
    UserError: the input is not UTF-8.
  """
  context = None
  while True:
    try:
      prompt = "context file> " if context is None else "question> "
      line = terminal.ask(prompt, read).strip()
    except EOFError:
      write("")  # The shell's prompt starts on a line of its own.
      return
    try:
      if context is None:
        context = text_files.read_text(line) if line else None
      elif not line:
        context = None
      else:
        write(_describe(reader.answer(line, context)))
    except (UserError, OSError) as error:
      write(f"error: {error}")


def _describe(answer):
  """The answer, and its candidates with their probabilities."""
  lines = [_one_line(answer.text)]
  for candidate in answer.nbest[:_SHOWN]:
    lines.append(f"  {candidate.probability:6.1%}  {_one_line(candidate.text)}")
  return "\n".join(lines)


def _one_line(text):
  return " ".join(text.split()) or "(no answer)"
