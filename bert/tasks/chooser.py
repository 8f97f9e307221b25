"""A trained model for multiple choice, in Python and on the terminal.

chooser = Chooser("/tmp/swag_output")
chooser("He opens the door.", ["He goes in.", "He eats it."])  # [0.9, 0.1]
"""

from collections.abc import Iterable, Sequence

from scipy import special

from bert import layers
from bert.errors import UserError
from bert.data import downloads, records, sequences
from bert.tasks import multiple_choice
from bert.tasks.choices import Example
from bert.training import model_folder
from bert.training.predictor import Predictor


class Chooser:
  """A trained model for multiple choice, loaded once.

  Args:
    model_dir: the `output_dir` of a finished training.
    batch_size: rows per batch.
    precision, runtime: see `predictor.Predictor`.

  Attributes:
    tokenizer, max_seq_length: how it reads text.
    predictor: computes the scores.

  Raises:
    UserError: the folder does not hold such a model.
  """

  def __init__(
    self,
    model_dir: str,
    batch_size: int = 32,
    precision: str | None = None,
    runtime: str = "tensorflow",
  ):
    model_dir = downloads.local_path(model_dir)
    self.max_seq_length = multiple_choice.read_assets(model_dir)
    model = model_folder.find_model(model_dir)
    self.tokenizer = model.tokenizer

    def compute(bert, features):
      return {"scores": multiple_choice.compute_scores(bert, False)}

    self.predictor = Predictor(
      model,
      compute,
      layers.output_shapes(model.config.hidden_size, 1),
      spec=records.sequence_spec(self.max_seq_length),
      batch_size=batch_size,
      precision=precision,
      runtime=runtime,
    )

  def __call__(
    self, context: str, choices: Sequence[str], question: str = ""
  ) -> list[float]:
    """The probability of each choice.

    Args:
      context: the text before.
      choices: two or more texts.
      question: the beginning of all choices, or a question.

    Raises:
      UserError: there are fewer than two choices, or one is empty or not a
        str.
    """
    return self.compare([(context, choices, question)])[0]

  def compare(
    self, groups: Iterable[tuple[str, Sequence[str], str]]
  ) -> list[list[float]]:
    """Like `__call__`, for several (context, choices, question) at once."""
    rows, counts = [], []
    for group in groups:
      if not isinstance(group, (tuple, list)) or len(group) != 3:
        raise UserError("pass groups of context, choices and question")
      context, choices, question = group
      if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise UserError("pass the choices as a list")
      choices = list(choices)
      if len(choices) < 2:
        raise UserError("pass two choices or more")
      if not all(isinstance(t, str) for t in (context, question, *choices)):
        raise UserError("pass context, question and choices as str")
      if not all(choice.strip() for choice in choices):
        raise UserError("a choice is empty; add its text, or omit it")
      example = Example("", context, question, choices)
      row = multiple_choice.make_row(
        example, self.tokenizer, self.max_seq_length
      )
      rows += [
        {name: row[name][choice] for name in records.SEQUENCES}
        for choice in range(len(choices))
      ]
      counts.append(len(choices))
    if not rows:
      return []
    scores = self.predictor(rows)["scores"].astype(float)
    parts = sequences.groups_of(scores, counts)
    return [special.softmax(part).tolist() for part in parts]

  def describe(self, context: str, question: str, choices: str) -> str:
    """The choices, separated by |, in order of their probability."""
    texts = [choice.strip() for choice in choices.split("|")]
    if len(texts) < 2:
      raise UserError("type two choices or more, with | between them")
    found = zip(self(context, texts, question), texts, strict=True)
    return "\n".join(f"{p:6.1%}  {text}" for p, text in sorted(found)[::-1])
