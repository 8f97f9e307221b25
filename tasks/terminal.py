"""A conversation on the terminal."""

from collections.abc import Callable

from errors import UserError


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
  """
  while True:
    try:
      lines = [read(prompt) for prompt in prompts]
    except EOFError:
      write("")  # The shell's prompt starts on a new line.
      return
    if any(line.strip() for line in lines):
      try:
        write(answer(*lines))
      except UserError as error:
        write(f"error: {error}")
