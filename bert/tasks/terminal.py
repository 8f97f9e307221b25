"""A conversation on the terminal."""

import sys
from collections.abc import Callable

from bert.errors import UserError


def converse(
  answer: Callable[..., str],
  prompts: tuple[str, ...] = ("> ",),
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks until the input ends, and prints the answers.

  Args:
    answer: from the lines that the user typed, one for each prompt, to a text.
      A UserError is printed, and the conversation goes on.
    prompts: what is asked for in turn. If all lines are empty, nothing is
      answered.
    read: from a prompt to a line; raises EOFError at the end.
    write: shows a text.

  Raises:
    UserError: the input is not UTF-8.
  """
  while True:
    try:
      lines = [ask(prompt, read) for prompt in prompts]
    except EOFError:
      write("")  # The shell's prompt starts on a new line.
      return
    if any(line.strip() for line in lines):
      try:
        write(answer(*lines))
      except UserError as error:
        write(f"error: {error}")


def ask(prompt: str, read: Callable[[str], str] = input) -> str:
  """The line that `read` gets for a prompt.

  Raises:
    EOFError: the input ends.
    UserError: it is not UTF-8, or standard input is closed.
  """
  if read is input and sys.stdin is None:
    raise UserError("standard input is closed; open it")
  try:
    line = read(prompt)
    line.encode()  # In the C locale, input() turns wrong bytes into surrogates.
  except UnicodeError as error:
    raise UserError(
      "standard input is not UTF-8; convert the input to UTF-8"
    ) from error
  return line.removeprefix("\ufeff")  # A file may begin with this mark.
