"""Makes a script a function and a command that reports errors in one line.

run, command = startup.script(main, table(TRAINING, ...))
"""

import ctypes
import functools
import inspect
import io
import logging as std_logging
import os
import platform
import re
import sys
from collections.abc import Callable

from absl import app, flags, logging

from bert import quiet_start, runtimes, termination
from bert.data import downloads
from bert.errors import UserError, without_middle
from bert.flags import flag_table
from bert.flags.values import Flags, Table, define, message_of, parse, table

FLAGS = flags.FLAGS

# Numbers of two settings in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

# Errors of TensorFlow that come from files, networks and full devices.
_ENVIRONMENT_ERRORS = (
  "AbortedError",
  "DeadlineExceededError",
  "FailedPreconditionError",
  "NotFoundError",
  "PermissionDeniedError",
  "ResourceExhaustedError",
  "UnauthenticatedError",
  "UnavailableError",
  "UnimplementedError",
)


def script(
  main: Callable[..., object],
  rows: Table,
  arguments: Callable[[list[str]], list[str]] | None = None,
  passes_on: str | None = None,
) -> tuple[Callable[..., object], Callable[[], None]]:
  """Returns a script as two functions, for Python and for the command line.

  The command reports an error of the user, of the file system or of a full
  device in one line, with exit status 2; --v=1 shows its traceback. Any other
  exception keeps its traceback, and the exit status is 1.

  Args:
    main: takes Flags, and returns results.
    rows: the Table of its flags; all scripts have --task_module, too.
    arguments: changes the arguments of the command line before they are read.
    passes_on: name of a flag. If that flag is given, unknown flags are not an
      error, and `main` gets a list of them.
  """
  rows = table(rows.values(), [flag_table.TASK_MODULE])

  def run(**values):
    unknown = {}
    if passes_on and values.get(passes_on):
      unknown = {k: v for k, v in values.items() if k not in rows}
    parsed = parse(rows, {k: v for k, v in values.items() if k not in unknown})
    rest = [f"--{name}={value}" for name, value in unknown.items()]
    return _call(main, parsed, *([rest] if passes_on else []))

  def command():
    """Runs the script with the flags of the command line."""
    _run_command(main, rows, arguments, passes_on)

  run.__doc__ = f"""Runs {main.__module__} from Python.

  Its flags are arguments; None selects the default. Returns the results.
  """
  run.__signature__ = inspect.Signature(
    [
      inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=row.default)
      for n, row in rows.items()
    ]
  )
  for function in (run, command):
    function.__module__ = main.__module__
  return run, command


def _call(main, flags, *rest):
  if flags.get("repeat"):
    flags = _repeated(flags)
  if "offline" in flags:
    downloads.use_cache_only(flags.offline)
  if "do_train" in flags:  # Its evaluations give the numbers of the training.
    quiet_start.use_onednn()
  runtimes.use_threads(flags.get("threads"))
  if flags.task_module:
    from bert.contract import registry  # It loads TensorFlow.

    if os.getcwd() not in sys.path:
      sys.path.append(os.getcwd())
    registry.register(flags.task_module)
  return main(flags, *rest)


def _repeated(flags):
  """The flags of the training in --repeat, unless others are given."""
  from bert.models import run_record  # It loads NumPy.

  record = run_record.read_record(flags.repeat)
  if "weights" not in (record or {}):
    raise UserError(
      f"--repeat={flags.repeat} has no flags.json of a finished training; "
      f"pass the --output_dir of one"
    )
  began = {"threads": record["flags"]["threads"], **record["given"]}
  began.pop("output_dir", None)
  return parse(flags.rows, began | flags.given)


class _LogFormatter(std_logging.Formatter):
  """Time, level of a warning or error, and message."""

  def __init__(self):
    super().__init__("{asctime} {level}{message}", "%H:%M:%S", "{")

  def format(self, record):
    is_usual = record.levelno < std_logging.WARNING
    record.level = "" if is_usual else f"{record.levelname.lower()}: "
    return super().format(record)


def _run_command(main, rows, arguments, passes_on):
  logging.get_absl_handler().setFormatter(_LogFormatter())
  keep_freed_memory()
  _use_utf8()
  # For --help, which describes the module that Python was started with.
  sys.modules["__main__"].__doc__ = _usage(main.__module__)
  define(rows, FLAGS)
  argv = [sys.argv[0], *(arguments or list)(sys.argv[1:])]
  app.run(
    lambda rest: _run_main(main, rows, *([rest[1:]] if passes_on else [])),
    argv,
    flags_parser=functools.partial(_parse, rows, passes_on),
  )


def _usage(module):
  """The docstring of a script, with the name of its command if pip made one."""
  text, command = sys.modules[module].__doc__, os.path.basename(sys.argv[0])
  if command.endswith(".py"):
    return text
  return text.replace(f"python {module.rpartition('.')[2]}.py", command)


def keep_freed_memory() -> None:
  """Makes this process keep freed memory for its next training step.

  By default glibc returns large blocks to the system, and the next step gets
  them back page by page. That takes a tenth of the time of training a small
  model on a CPU.
  """
  if platform.libc_ver()[0] == "glibc":
    c_library = ctypes.CDLL(None)
    c_library.mallopt(_M_MMAP_MAX, 0)
    c_library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _use_utf8():
  """Makes standard input and output UTF-8, whatever the locale.

  A terminal keeps its encoding and shows other characters as question marks.
  """
  is_text = isinstance(sys.stdin, io.TextIOWrapper)  # It may be closed.
  if is_text and sys.stdin.encoding != "utf-8" and not sys.stdin.isatty():
    sys.stdin.reconfigure(encoding="utf-8", errors="strict")
  if not isinstance(sys.stdout, io.TextIOWrapper):
    return
  if sys.stdout.isatty():
    sys.stdout.reconfigure(errors="replace")
  else:  # Paths need not be UTF-8.
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def _parse(rows, passes_on, argv):
  """The arguments that are not flags; --help prints and ends the process."""
  try:
    try:
      if passes_on:
        rest = FLAGS(argv, known_only=True)
        if FLAGS[passes_on].value:
          return rest
      rest = FLAGS(argv)
    finally:
      _flush_output()
  except BrokenPipeError:
    _end_unread()
  except flags.Error as error:
    _fail(message_of(error, rows))
  except (OSError, ValueError) as error:  # --noflag=value is a ValueError.
    _fail(error)
  if rest[1:]:
    _fail(f"unexpected argument {rest[1]!r}; write flags as --name=value")
  return rest


def _flush_output():
  """Writes what was printed, while an error can still be reported."""
  if sys.stdout is None:  # It is closed.
    return
  try:
    sys.stdout.flush()
  except OSError:
    _drop_output()
    raise


def _drop_output():
  """Drops the rest of the output, which Python would write at exit."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_unread():
  """Exits without the rest of the output, whose reader has closed."""
  _drop_output()
  sys.exit(141)  # 128 + SIGPIPE, as a shell reports it.


def _run_main(main, rows, *rest):
  if FLAGS["verbosity"].using_default_value:
    logging.set_verbosity(logging.INFO)
  resumes = "do_train" in FLAGS and FLAGS.do_train
  termination.raise_on_signals()
  try:
    try:
      given = {n: FLAGS[n].value for n in rows if FLAGS[n].present}
      _call(main, Flags(rows, given), *rest)
      _flush_output()
    except Exception:
      termination.raise_if_signaled()
      raise
  except BrokenPipeError:
    _end_unread()
  except (termination.Termination, KeyboardInterrupt) as error:
    _end_interrupted(error, resumes)
  except Exception as error:
    if not _is_users(error):
      print(
        "This is a bug in the program, or in your code that it calls. "
        "Please report it with your command and the traceback below.",
        file=sys.stderr,
      )
      raise
    logging.debug("Traceback:", exc_info=True)
    _fail(error)


def _end_interrupted(error, resumes):
  is_terminated = isinstance(error, termination.Termination)
  if is_terminated and resumes:
    print("Terminated. Resume with the same command.", file=sys.stderr)
    return
  how = (
    "to continue from the newest checkpoint in --output_dir, if there is one"
    if resumes
    else "to start again; no file is half-written"
  )
  what = "Terminated" if is_terminated else "Interrupted"
  print(f"{what}. Run the same command {how}.", file=sys.stderr)
  # A shell reports death by a signal as 128 plus its number.
  sys.exit(143 if is_terminated else 130)


def _is_users(error):
  if isinstance(error, (UserError, OSError)):
    return True
  tensorflow = sys.modules.get("tensorflow")
  return tensorflow is not None and isinstance(
    error, tuple(getattr(tensorflow.errors, n) for n in _ENVIRONMENT_ERRORS)
  )


def _fail(error):
  text = getattr(error, "message", None) or str(error)
  # TensorFlow adds the location of the operation to the message.
  lines = [
    re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*", "", line)
    for line in text.strip().splitlines()
    if not re.match("Graph execution error|Detected at node|  |$", line)
  ]
  first_line = [*lines, type(error).__name__][0]
  if "No space left" in text and "free some space" not in text:
    first_line += "; free some space and run the same command again"
  elif "OOM when allocating" in text:
    first_line += "; lower the batch size or --max_seq_length"
  # Errors of remote file systems may name a host, but no path.
  remote = [word for word in sys.argv[1:] if "://" in word]
  if not isinstance(error, UserError) and not any(
    word.partition("=")[2] in text for word in remote
  ):
    first_line += "".join(f"; check {word}" for word in remote)
  print(f"error: {without_middle(first_line)}", file=sys.stderr)
  sys.exit(getattr(error, "status", 2))
