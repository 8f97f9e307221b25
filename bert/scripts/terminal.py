"""A conversation on the terminal."""

from collections.abc import Callable, Sequence

from bert.data import text_files
from bert.engine.loaded_model import Input, LoadedModel
from bert.errors import UserError


def converse(model: LoadedModel) -> None:
  """Asks for inputs of a model until the input ends; prints the answers."""
  fields = model.task.inputs
  reads_line = [f.name for f in fields if f.default is not None] == ["text_b"]
  if reads_line:  # Both texts of a pair are on one line.
    fields = fields[:1]

  def respond(*lines):
    parts = (
      text_files.text_or_pair(*lines) if reads_line else _parts(fields, lines)
    )
    return answer(model, parts)

  ask_until_end(list(map(_prompt, fields)), respond)


def ask_until_end(prompts: Sequence[str], respond: Callable[..., str]) -> None:
  """Asks for a line for each prompt, and prints the response, until the end.

  A UserError is printed. If all lines are empty, there is no response.
  """
  while True:
    try:
      lines = [ask(prompt) for prompt in prompts]
    except EOFError:
      print()  # The shell's prompt starts on a new line.
      return
    if any(line.strip() for line in lines):
      try:
        print(respond(*lines))
      except UserError as error:
        print(f"error: {error}")


def answer(model: LoadedModel, parts: Input) -> str:
  """The description of the answer to an input."""
  example = model.task.example(*model.parse(parts))
  (result,) = model.answer_examples([example])
  return model.task.describe(result)


def _prompt(field):
  name = field.name.replace("_", " ")
  if field.is_list:
    return f"{name} (a | b | c)> "
  return "> " if name == "text" else f"{name}> "


def _parts(fields, lines):
  """The typed values by the name of the input."""
  parts = {}
  for field, line in zip(fields, lines, strict=True):
    parts[field.name] = line
    if field.is_list:
      parts[field.name] = [part.strip() for part in line.split("|")]
  return parts


def converse_on_files(model: LoadedModel) -> None:
  """Asks for text files, and questions on each until an empty line."""
  context = None
  while True:
    try:
      prompt = "context file> " if context is None else "question> "
      line = ask(prompt).strip()
    except EOFError:
      print()  # The shell's prompt starts on a new line.
      return
    try:
      if context is None:
        context = text_files.read_text(line) if line else None
      elif not line:
        context = None
      else:
        print(answer(model, (line, context)))
    except (UserError, OSError) as error:
      print(f"error: {error}")


def ask(prompt: str) -> str:
  """The line that is typed at a prompt; EOFError ends the input."""
  try:
    line = input(prompt)
    line.encode()  # In the C locale, input() turns wrong bytes into surrogates.
  except UnicodeError as error:
    raise UserError(
      "standard input is not UTF-8; convert the input to UTF-8"
    ) from error
  return line.removeprefix("\ufeff")  # The byte order mark of a file.
