"""Checks of the values of flags, without TensorFlow."""

import itertools
import os
import sys
from collections.abc import Iterable

from absl import flags, logging

from bert.errors import UserError
from bert.data import files, text_files
from bert.training import common_flags, devices

FLAGS = flags.FLAGS

# Flags that only a training reads.
_TRAINING_FLAGS = (
  "class_weights",
  "keep_best",
  "early_stopping_patience",
  "eval_steps",
  "teacher",
)

# Seconds, three years. Sockets cannot wait for many more.
_MAX_TIMEOUT = 10**8

# Limits of numbers that an update computes with: float32 holds them and their
# reciprocals.
_MIN_FLOAT, _MAX_FLOAT = 1e-37, 1e37

# Flags of a dimension of a tensor, and its limit.
_BATCH_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")
_MAX_BATCH_SIZE = 2**31 - 1

# Flags of data that a command which asks a trained model does not read.
_DATA_FLAGS = (
  *("task_name", "data_dir", "train_file", "dev_file", "test_file"),
  *("text_a_column", "text_b_column", "label_column", "id_column"),
  *("dev_fraction", "regression", "multilabel"),
)


def require(*names: str) -> None:
  """Raises UserError for the first of these flags that has no value."""
  for name in names:
    if not FLAGS[name].value:
      raise UserError(f"--{name} is required; pass a value")


def check_device_flags() -> None:
  """Checks the timeout, and the flags that a TPU, if chosen, does not allow.

  Raises:
    UserError: one is wrong.
  """
  timeout = common_flags.given("worker_timeout") or 0
  if not timeout <= _MAX_TIMEOUT:  # No bound of a flag excludes nan.
    raise UserError(
      f"--worker_timeout={timeout} must be a number up to {_MAX_TIMEOUT}"
    )
  if not (
    FLAGS.use_tpu or common_flags.given("distribution_strategy") == "tpu"
  ):
    warn_of_unused("omit it, or add --use_tpu", "tpu_name", "master")
    return
  if FLAGS.precision == "float16":
    raise UserError(
      "--precision=float16: a TPU has no float16; pass --precision=bfloat16"
    )
  if common_flags.given("pad_to_max_length") is False:
    raise UserError(
      "--pad_to_max_length=False: a TPU needs batches of one shape; omit it"
    )


def check_standard_output() -> None:
  """Raises UserError if standard output, to which results go, is closed."""
  if sys.stdout is None:
    raise UserError("standard output is closed; redirect it to a file")


def check_exclusive(*names: str) -> None:
  """Raises UserError if two of these flags are given."""
  first, *others = [name for name in names if FLAGS[name].value] or [None]
  if others:
    raise UserError(
      f"--{first} and --{others[0]} cannot both be given; omit one"
    )


def require_positive(*names: str) -> None:
  """Raises UserError for the first of these numbers that is out of range."""
  for name in names:
    value = FLAGS[name].value
    least = _MIN_FLOAT if isinstance(value, float) else 1
    most = _MAX_BATCH_SIZE if name in _BATCH_SIZES else _MAX_FLOAT
    if not least <= value <= most:
      raise UserError(
        f"--{name}={value} must be a number from {least} to {most}"
      )


def check_run_flags() -> None:
  """Checks the numbers of `define_run_flags`."""
  require_positive(
    "train_batch_size",
    "eval_batch_size",
    "save_checkpoints_steps",
    "log_steps",
    "learning_rate",
    "max_grad_norm",
  )
  if FLAGS.do_train:  # The number of devices is not known yet.
    devices.check_batch_size(
      "--train_batch_size",
      FLAGS.train_batch_size,
      micro_batches=FLAGS.gradient_accumulation_steps,
    )
  if not 0 <= FLAGS.weight_decay <= _MAX_FLOAT:
    raise UserError(
      f"--weight_decay={FLAGS.weight_decay} must be a number of at least 0 and "
      f"at most {_MAX_FLOAT:g}"
    )


def check_masking_flags() -> None:
  """Checks the fraction of `define_masking_flags`."""
  if not 0 < FLAGS.masked_lm_prob < 1:
    otherwise = ", or --no_masking" if "no_masking" in FLAGS else ""
    raise UserError(
      f"--masked_lm_prob={FLAGS.masked_lm_prob} must be between 0 and 1; pass "
      f"0.15, as in the paper{otherwise}"
    )


def check_fine_tuning_flags(*questions: str) -> None:
  """Checks the flags of a fine-tuning run, and warns of those it ignores.

  Args:
    questions: the flags that ask a trained model instead.
  """
  require("output_dir")
  check_run_flags()
  require_positive("predict_batch_size", "num_train_epochs")
  if not 0 <= FLAGS.warmup_proportion <= 1:
    raise UserError(
      f"--warmup_proportion={FLAGS.warmup_proportion} must be between 0 and 1"
    )
  _check_teacher_flags()
  splits = wanted_splits()
  if not splits:
    asks = " or ".join(f"--{name}" for name in questions)
    raise UserError(
      f"nothing to do; pass --do_train, --do_eval or --do_predict, or, with a "
      f"trained model, {asks}"
    )
  if "train" not in splits:
    warn_of_unused("add --do_train", *_TRAINING_FLAGS)
  # With --dev_fraction, an evaluation may read rows of --train_file.
  if "train" not in splits and "dev_fraction" not in FLAGS:
    warn_of_unused("add --do_train", "train_file")
  if "dev" not in splits:
    warn_of_unused("add --do_eval or --eval_steps", "dev_file")
  if "test" not in splits:
    warn_of_unused("add --do_predict", "test_file")
  if common_flags.given("dev_file"):
    warn_of_unused("omit --dev_file", "dev_fraction")
  if (common_flags.given("num_seeds") or 1) > 1:  # Each run reads them.
    for name in ("train_file", "dev_file", "test_file"):
      refuse_pipes(name, filter(None, [FLAGS[name].value]))


def _check_teacher_flags():
  """Checks the flags of a distillation."""
  if not FLAGS.teacher:
    names = ("distill_weight", "distill_temperature", "unlabeled_file")
    warn_of_unused("add --teacher", *names)
    return
  if not 0 <= FLAGS.distill_weight <= 1:
    raise UserError(
      f"--distill_weight={FLAGS.distill_weight} must be between 0 and 1"
    )
  require_positive("distill_temperature")
  if FLAGS.unlabeled_file:
    require_file("unlabeled_file")


def warn_of_unused_model(*more: str) -> None:
  """Logs flags that are given but not used, as --output_dir holds a model.

  Args:
    more: flags to look at beside those that name a model.
  """
  names = ("init_checkpoint", "vocab_file", "spm_model_file", *more)
  names = (*names, "bert_config_file", "do_lower_case")
  unused = [n for n in names if n in FLAGS and FLAGS[n].present]
  if unused:
    logging.warning(
      "Not used, because the model in --output_dir is used as trained: --%s",
      ", --".join(unused),
    )


def check_question_flags(*names: str) -> None:
  """Checks the flags of a command that asks the model in --output_dir.

  Args:
    names: the flags that ask, of which one is given. No flag may ask for a
      training, an evaluation or a prediction as well; those of data are unused.
  """
  require("output_dir")
  require_positive("predict_batch_size")
  check_exclusive(*names, "do_train", "do_eval", "do_predict")
  check_standard_output()
  path = common_flags.given("predict_file")
  if path and path != text_files.STREAM:
    require_file("predict_file")
  warn_of_unused("omit it", *_DATA_FLAGS)


def evaluates_in_training() -> bool:
  """Whether the flags ask for evaluations during training."""
  return bool(
    FLAGS.eval_steps
    or common_flags.given("keep_best")
    or common_flags.given("early_stopping_patience")
  )


def wanted_splits() -> list[str]:
  """The data splits that the flags of a fine-tuning run need."""
  in_training = FLAGS.do_train and evaluates_in_training()
  wanted = {
    "train": FLAGS.do_train,
    "dev": FLAGS.do_eval or in_training,
    "test": FLAGS.do_predict,
  }
  return [split for split, is_wanted in wanted.items() if is_wanted]


def require_file(name: str) -> None:
  """Raises UserError unless this flag names a file that exists."""
  path = FLAGS[name].value
  files.check_is_file(path, f"--{name}={path}", "pass the path of a file")


def refuse_pipes(name: str, paths: Iterable[str]) -> None:
  """Raises UserError for a pipe among files that are read more than once.

  Args:
    name: the flag that names them.
    paths: the files.
  """
  for path in filter(files.is_pipe, paths):
    raise UserError(
      f"--{name}={FLAGS[name].value}: {path} is a pipe or a device, which "
      f"cannot be read twice; save its content to a file"
    )


def warn_of_unused(remedy: str, *names: str) -> None:
  """Warns of those of these flags that differ from their defaults.

  Args:
    remedy: what to do, for the message.
    names: flags that this run does not use; the script need not define them.
  """
  for flag in (FLAGS[name] for name in names if name in FLAGS):
    if flag.value and flag.value != flag.default:
      logging.warning("%s is not used; %s", flag.serialize(), remedy)


def check_output_files(
  name: str, paths: Iterable[str], read: Iterable[str | None]
) -> None:
  """Raises UserError unless files can be written.

  Args:
    name: the flag that names them.
    paths: the files; no path may occur twice.
    read: paths that the run reads and must not overwrite; None is skipped.
  """
  taken = {os.path.realpath(path): "is an input" for path in read if path}
  for path in paths:
    folder, base = os.path.dirname(path) or ".", os.path.basename(path)
    is_local = not files.is_remote(path)
    problem = None
    if not base or files.isdir(path):
      problem = f"{path!r} is not a file; pass the path of a file"
    elif is_local and os.path.exists(path) and not os.path.isfile(path):
      problem = f"{path} is a pipe or a device; pass the path of a file"
    elif is_local and not os.path.isdir(folder):
      problem = f"no such folder {folder}; create it, or pass another path"
    elif is_local and not os.access(folder, os.W_OK):
      problem = f"folder {folder} is not writable; pass another path"
    # The file is first written beside its final name.
    for written in (path, os.path.realpath(path) + files.PARTIAL):
      if not problem and os.path.realpath(written) in taken:
        problem = f"{written} {taken[os.path.realpath(written)]}"
        problem += "; pass another path"
    if problem:
      raise UserError(f"--{name}={FLAGS[name].value}: {problem}")
    taken[os.path.realpath(path)] = "is given twice"
    taken[os.path.realpath(path) + files.PARTIAL] = "is a temporary file"


def check_output_folder(path: str) -> None:
  """Raises UserError unless --output_dir, or a folder in it, can be created."""
  if files.is_remote(path):
    return
  try:
    os.stat(path)
  except (FileNotFoundError, NotADirectoryError):
    pass
  except OSError as error:  # Its name is too long, for example.
    raise UserError(
      f"--output_dir={path} cannot be created ({error.strerror}); pass another"
    ) from error
  # The folder itself, or the nearest one above it that exists.
  existing = os.path.abspath(path)
  while not os.path.exists(existing):
    existing = os.path.dirname(existing)
  if not (os.path.isdir(existing) and os.access(existing, os.W_OK)):
    raise UserError(
      f"--output_dir={path}: {existing} is not a writable folder; pass another"
    )


def find_files(name: str) -> list[str]:
  """The files that a flag names: paths and patterns, separated by commas.

  A pattern does not match the temporary files of a killed run.

  Raises:
    UserError: one of them names no file.
  """
  require(name)
  found = []
  for pattern in FLAGS[name].value.split(","):
    # A path that exists is taken literally, even if it looks like a pattern.
    if files.exists(pattern):
      paths = [pattern]
    else:
      paths = itertools.filterfalse(files.is_partial, files.find(pattern))
    matches = [path for path in paths if not files.isdir(path)]
    if not matches:
      raise UserError(
        f"--{name}={FLAGS[name].value}: no file matches {pattern}; pass paths "
        f"or patterns such as data/*.txt, separated by commas"
      )
    found += matches
  return found
