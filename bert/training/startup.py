"""Starts a script, and reports user errors in one line."""

import ctypes
import functools
import io
import os
import platform
import re
import sys
from collections.abc import Callable

from absl import app, flags, logging

from bert.errors import UserError
from bert.data import downloads
from bert.training import common_flags, termination

FLAGS = flags.FLAGS

# Flags of text, which may begin with `~`.
_FREE_TEXT = ("text", "text_b")

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


def run(
  main: Callable[..., object],
  define_flags: Callable[[], object],
  passes_on: str | None = None,
) -> None:
  """Runs a script: parses its flags and calls `main()`.

  A UserError, and an error of the file system or a full device, is printed as
  one line and ends with exit status 2; --v=1 shows its traceback. Any other
  exception keeps its traceback and ends with status 1.

  Args:
    main: the script's work.
    define_flags: defines its flags.
    passes_on: name of a flag. If it is given, unknown flags are no error, and
      `main` gets a list of them.
  """
  keep_freed_memory()
  _use_utf8()
  define_flags()
  common_flags.define_from_table(
    (("task_module", None, "Module with tasks of your own, in this folder."),)
  )
  # For --help, which describes the module that Python was started with.
  sys.modules["__main__"].__doc__ = sys.modules[main.__module__].__doc__
  for module in (common_flags, sys.modules[main.__module__]):
    for flag in FLAGS.get_flags_for_module(module):
      FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  app.run(
    lambda argv: _run_main(main, *([argv[1:]] if passes_on else [])),
    flags_parser=functools.partial(_parse_or_exit, passes_on),
  )


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


def _parse_or_exit(passes_on, argv):
  try:
    rest = _parse(passes_on, argv)
    _check_encoding(argv)
    _check_home()
    return rest
  except BrokenPipeError:
    _end_unread()
  except flags.IllegalFlagValueError as error:
    # absl shows a tuple for a bool.
    _fail(re.sub(r": \('Non-boolean.*", ": pass true or false", str(error)))
  except (flags.Error, OSError) as error:
    _fail(error)


def _parse(passes_on, argv):
  """The arguments that are not flags; --help prints and ends the process."""
  try:
    if passes_on:
      rest = FLAGS(argv, known_only=True)
      if FLAGS[passes_on].value:
        return rest
    rest = FLAGS(argv)
  except ValueError as error:  # --noflag=value
    raise flags.Error(error) from error
  finally:
    _flush_output()
  if rest[1:]:
    raise flags.Error(
      f"unexpected argument {rest[1]!r}; write flags as --name=value"
    )
  return rest


def _check_encoding(argv):
  """Raises flags.Error for a path that TensorFlow cannot open.

  Scripts without a model open their files without TensorFlow.
  """
  has_model = {"bert_config_file", "model_dir"}.intersection(FLAGS)
  has_model = has_model or common_flags.given("init_checkpoint")
  for argument in map(os.fsencode, argv[1:] if has_model else ()):
    try:
      argument.decode()
    except UnicodeDecodeError as error:
      shown = argument.decode(errors="backslashreplace")
      raise flags.Error(
        f"{shown} is not UTF-8; rename the file or folder"
      ) from error


def _check_home():
  """Raises flags.Error for a path whose `~` the shell has not replaced."""
  for name, value in FLAGS.flag_values_dict().items():
    if name in _FREE_TEXT:
      continue
    parts = value.split(",") if isinstance(value, str) else value
    for path in parts if isinstance(parts, list) else ():
      if path.startswith("~/") and not os.path.exists(path):
        raise flags.Error(
          f"--{name}={path}: shells do not replace ~ there; pass "
          f"--{name}=$HOME{path[1:]}, or --{name} {path}"
        )


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
  """Drops the rest of the output, which Python would write at its end."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_unread():
  """Ends without the rest of the output, whose reader has gone."""
  _drop_output()
  sys.exit(141)  # A shell reports death by SIGPIPE so.


def _run_main(main, *arguments):
  if FLAGS["verbosity"].using_default_value:
    logging.set_verbosity(logging.INFO)
  if "offline" in FLAGS:
    downloads.use_cache_only(FLAGS.offline)
  resumes = "do_train" in FLAGS and FLAGS.do_train
  termination.raise_on_signals()
  try:
    try:
      if "task_module" in FLAGS and FLAGS.task_module:
        _register(FLAGS.task_module)
      main(*arguments)
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
        "This is a bug in the program, or in code of yours that it calls. "
        "Please report it with your command and the traceback below.",
        file=sys.stderr,
      )
      raise
    logging.debug("Traceback:", exc_info=True)
    _fail(error)


def _register(module):
  from bert.training import registry  # It loads TensorFlow.

  sys.path.append(os.getcwd())
  registry.register(module)


def _end_interrupted(error, resumes):
  """Ends after a signal; `resumes` says whether there may be a checkpoint."""
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
  """Whether the user can mend it: input, files, or a device that is full."""
  if isinstance(error, (UserError, OSError)):
    return True
  tensorflow = sys.modules.get("tensorflow")
  return tensorflow is not None and isinstance(
    error, tuple(getattr(tensorflow.errors, n) for n in _ENVIRONMENT_ERRORS)
  )


def _fail(error):
  text = getattr(error, "message", None) or str(error)
  for word in sys.argv[1:]:
    value = word.partition("=")[2] or word
    # Only the first line is printed, and a path may have two.
    if "\n" in value:
      text = text.replace(value, value.replace("\n", "\\n"))
  # TensorFlow wraps the message in the place of the operation.
  lines = [
    re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*", "", line)
    for line in text.strip().splitlines()
    if not re.match("Graph execution error|Detected at node|  |$", line)
  ]
  first_line = [*lines, type(error).__name__][0]
  if "No space left" in text and "free some space" not in text:
    first_line += "; free some space and run the same command again"
  elif "File too large" in text and "free some space" not in text:
    first_line += "; raise the limit that ulimit -f shows, or write elsewhere"
  elif "OOM when allocating" in text:
    first_line += "; lower the batch size or --max_seq_length"
  print(f"error: {first_line}", file=sys.stderr)
  sys.exit(getattr(error, "status", 2))
