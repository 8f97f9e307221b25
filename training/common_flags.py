"""Flags that scripts share, their checks, and how a script starts and fails."""

import ctypes
import functools
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping

from training import startup  # noqa: F401  Before TensorFlow.
import tensorflow as tf
from absl import app, flags, logging

import modeling
import tokenization
from errors import UserError
from pipeline import text_files
from training import checkpoints, estimator

FLAGS = flags.FLAGS

# The numbers of two settings in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

# Where flags come from that are none of ours.
_LIBRARIES = ("absl.", "tensorflow.")


def define_model_flags(
  max_seq_length: int, longer_text: str = "is cut"
) -> None:
  """Flags that say which model, and how it reads text.

  Args:
    max_seq_length: default of the flag.
    longer_text: what becomes of it, for the help.
  """
  define_text_flags(max_seq_length, longer_text)
  flags.DEFINE_string(
    "bert_config_file", None, "JSON file with the sizes of the model."
  )
  flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Weights to start from: a checkpoint's prefix, such as "
    "uncased_L-12_H-768_A-12/bert_model.ckpt, or a folder, for the best or "
    "newest in it.",
  )
  flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "bfloat16: faster layers where the processor has it; weights, LayerNorm, "
    "softmax, loss and Adam stay float32.",
  )


def define_text_flags(max_seq_length: int, longer_text: str = "is cut") -> None:
  """Flags that say how text is read; see `define_model_flags`."""
  flags.DEFINE_string(
    "vocab_file", None, "Word pieces of the model, one a line."
  )
  flags.DEFINE_string(
    "spm_model_file",
    None,
    "SentencePiece model to use in place of --vocab_file.",
  )
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Lower-case the text and strip accents: True for uncased models, False "
    "for cased ones.",
  )
  flags.DEFINE_integer(
    "max_seq_length",
    max_seq_length,
    "Longest sequence, in word pieces and special tokens; text that is longer "
    f"{longer_text}.",
  )


def define_run_flags() -> None:
  """Flags that say how training goes and what it leaves."""
  flags.DEFINE_string("output_dir", None, "Folder for checkpoints and results.")
  flags.DEFINE_bool("do_train", False, "Train on the training set.")
  flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
  flags.DEFINE_integer("train_batch_size", 32, "Rows of one update.")
  flags.DEFINE_integer("eval_batch_size", 8, "Rows evaluated at a time.")
  flags.DEFINE_float("learning_rate", 5e-5, "Adam's peak learning rate.")
  flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Updates between two checkpoints."
  )
  flags.DEFINE_integer(
    "keep_checkpoint_max",
    5,
    "How many checkpoints are kept; 0 for all.",
    lower_bound=0,
  )
  flags.DEFINE_integer("log_steps", 50, "Updates between two log lines.")
  flags.DEFINE_integer(
    "eval_steps",
    0,
    "Updates between two evaluations while training; 0 for none, or for once "
    "an epoch where another flag needs them.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "iterations_per_loop",
    1000,
    "Accepted for old commands; has no effect any more.",
  )
  flags.DEFINE_integer(
    "seed",
    1,
    "Fixes the order of the rows, the fresh weights and dropout: equal "
    "commands give equal models.",
    lower_bound=0,
    upper_bound=2**31 - 1,
  )
  flags.DEFINE_bool(
    "pad_to_max_length",
    None,
    "Pad every batch to --max_seq_length, and not just to its longest row. "
    "Default: True on a TPU, and where run_squad trains; else False.",
  )


def define_fine_tuning_flags(scores: str, default_score: str) -> None:
  """Flags of scripts that train a released model on a task.

  Args:
    scores: examples of what --keep_best may name, for the help.
    default_score: what it is where another flag needs it, for the help.
  """
  flags.DEFINE_bool("do_predict", False, "Predict the test set.")
  flags.DEFINE_integer("predict_batch_size", 8, "Rows predicted at a time.")
  flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.")
  flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the updates in which the learning rate rises to its peak.",
  )
  flags.DEFINE_string(
    "keep_best",
    None,
    f"Metric, such as {scores}, by which to choose among the evaluations; the "
    "weights of the best are what training leaves.",
  )
  flags.DEFINE_integer(
    "early_stopping_patience",
    None,
    "Stop after this many evaluations in a row without a better one by "
    f"--keep_best, whose default then is {default_score}.",
    lower_bound=1,
  )


def define_tpu_flags() -> None:
  """Flags that reach a Cloud TPU."""
  flags.DEFINE_bool("use_tpu", False, "Run on a TPU.")
  flags.DEFINE_string(
    "tpu_name", None, "Name or grpc:// address of the TPU; default: local."
  )
  flags.DEFINE_string("tpu_zone", None, "Zone of the TPU, to find its name in.")
  flags.DEFINE_string(
    "gcp_project", None, "Cloud project of the TPU, to find its name in."
  )
  flags.DEFINE_string(
    "master", None, "Address of the TPU, as --tpu_name in old commands."
  )
  flags.DEFINE_integer(
    "num_tpu_cores",
    8,
    "Accepted for old commands; all cores of the TPU are used.",
  )


def run(
  main: Callable[..., object],
  define_flags: Callable[[], object],
  passes_on: str | None = None,
) -> None:
  """Runs a script: flags, then `main()`, and one line for a user's error.

  What is wrong with a flag, a file or the disk is a ValueError, OSError or
  OpError; it ends with exit status 2. Its traceback shows at --v=1.

  Args:
    main: the script's work.
    define_flags: defines its flags.
    passes_on: name of a flag; where it is given, the flags that are none of
      the script's are no error, and a list of them is the argument of `main`.
  """
  keep_freed_memory()
  define_flags()
  app.run(
    lambda argv: _run_main(main, *([argv[1:]] if passes_on else [])),
    flags_parser=functools.partial(_parse_flags, passes_on),
  )


def keep_freed_memory() -> None:
  """Lets this process keep the memory that it frees, for its next step.

  By default glibc gives large blocks back to the system each time, and the
  next step, which needs as much again, gets them page by page: a tenth of the
  time of training a small model on a CPU.
  """
  if platform.libc_ver()[0] == "glibc":
    c_library = ctypes.CDLL(None)
    c_library.mallopt(_M_MMAP_MAX, 0)
    c_library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _parse_flags(passes_on, argv):
  try:
    if passes_on:
      rest = FLAGS(argv, known_only=True)
      if FLAGS[passes_on].value:
        return rest
    rest = FLAGS(argv)
    if rest[1:]:
      raise flags.Error(
        f"unexpected argument {rest[1]!r}; flags are written --name=value"
      )
    return rest
  except flags.IllegalFlagValueError as error:
    # Of a bool, absl shows a tuple.
    _fail(re.sub(r": \('Non-boolean.*", ": pass true or false", str(error)))
  except flags.Error as error:
    _fail(error)


def _run_main(main, *arguments):
  if FLAGS["verbosity"].using_default_value:
    logging.set_verbosity(logging.INFO)
  try:
    main(*arguments)
  except BrokenPipeError:
    # Whoever read our output has enough. What is left must not be flushed.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)  # As a shell reports a death by SIGPIPE.
  except (ValueError, OSError, NotImplementedError, tf.errors.OpError) as error:
    logging.debug("Where it happened:", exc_info=True)
    _fail(error)
  except KeyboardInterrupt:
    how = (
      "continues from the newest checkpoint in --output_dir, or starts anew "
      "where there is none yet"
      if "do_train" in FLAGS and FLAGS.do_train
      else "starts anew; no file is half-written"
    )
    print(f"Interrupted; given again, the same command {how}.", file=sys.stderr)
    sys.exit(130)


def _fail(error):
  text = error.message if isinstance(error, tf.errors.OpError) else str(error)
  # TensorFlow puts where in the program it happened around what happened.
  lines = [
    re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*", "", line)
    for line in text.strip().splitlines()
    if not re.match("Graph execution error|Detected at node|  |$", line)
  ]
  first_line = [*lines, type(error).__name__][0]
  if "No space left" in text:
    first_line += "; free some and give the same command again"
  print(f"error: {first_line}", file=sys.stderr)
  sys.exit(2)


def require(*names: str) -> None:
  """Raises ValueError for the first of these flags that has no value."""
  for name in names:
    if not FLAGS[name].value:
      raise UserError(f"--{name} is missing or empty; it has no default")


def require_positive(*names: str) -> None:
  """Raises ValueError for the first of these flags that is not above 0.

  Infinity and what is not a number count as wrong, too.
  """
  for name in names:
    if not 0 < FLAGS[name].value < math.inf:
      raise UserError(
        f"--{name}={FLAGS[name].value} is not a finite number greater than 0; "
        f"pass one"
      )


def check_fine_tuning_flags() -> None:
  """Raises ValueError unless the numbers of a training make sense."""
  require_positive(
    "train_batch_size",
    "eval_batch_size",
    "predict_batch_size",
    "save_checkpoints_steps",
    "log_steps",
    "learning_rate",
    "num_train_epochs",
  )
  if not 0 <= FLAGS.warmup_proportion <= 1:
    raise UserError(
      f"--warmup_proportion={FLAGS.warmup_proportion} is not between 0 and 1"
    )


def evaluates_in_training() -> bool:
  """Whether a flag of `define_fine_tuning_flags` asks for it."""
  return bool(
    FLAGS.eval_steps or FLAGS.keep_best or FLAGS.early_stopping_patience
  )


def require_file(name: str) -> None:
  """Raises ValueError unless this flag names a file that is there."""
  path = FLAGS[name].value
  if tf.io.gfile.isdir(path) or not tf.io.gfile.exists(path):
    raise UserError(f"--{name}={path} is no file; pass the path of one")


def check_output_files(
  name: str, paths: Iterable[str], read: Iterable[str | None]
) -> None:
  """Raises ValueError unless files can be written.

  Args:
    name: of the flag that names them.
    paths: the files; none may come twice.
    read: paths that the run reads from, which none may be; None is no path.
  """
  taken = {os.path.realpath(path): "is read from" for path in read if path}
  for path in paths:
    folder, base = os.path.split(path)
    folder = folder or "."
    is_local = "://" not in path
    problem = None
    if not base or tf.io.gfile.isdir(path):
      problem = f"{path!r} is no file; pass the path of one"
    elif is_local and os.path.exists(path) and not os.path.isfile(path):
      problem = f"{path} is a pipe or a device; pass the path of a file"
    elif is_local and not os.path.isdir(folder):
      problem = f"there is no folder {folder}; make it, or pass another path"
    elif is_local and not os.access(folder, os.W_OK):
      problem = f"{folder} is not a folder that can be written to; pass another"
    for written in (path, os.path.realpath(path) + ".partial"):
      # A file is written aside before it has its name.
      if not problem and os.path.realpath(written) in taken:
        problem = f"{written} {taken[os.path.realpath(written)]}"
        problem += "; pass another path"
    if problem:
      raise UserError(f"--{name}={FLAGS[name].value}: {problem}")
    taken[os.path.realpath(path)] = "comes twice"
    taken[os.path.realpath(path) + ".partial"] = "is written on the way"


def model_files() -> list[str]:
  """The files of the model that the flags name, whose checkpoint is there."""
  named = (FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.bert_config_file)
  return [
    *filter(None, named),
    *checkpoints.checkpoint_files(FLAGS.init_checkpoint),
  ]


def check_output_folder(path: str) -> None:
  """Raises ValueError unless an --output_dir, or folder in it, can be made."""
  # The folder, or the nearest one above it that is there already.
  there = os.path.abspath(path)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  is_local = "://" not in path
  if is_local and not (os.path.isdir(there) and os.access(there, os.W_OK)):
    raise UserError(
      f"--output_dir={path}: {there} is not a folder that can be written to; "
      f"pass another"
    )


def find_files(name: str) -> list[str]:
  """The files that a flag names: paths and patterns, separated by commas.

  Raises:
    ValueError: one of them names no file.
  """
  require(name)
  found = []
  for pattern in FLAGS[name].value.split(","):
    # What is there counts, though its name may look like a pattern.
    is_path = tf.io.gfile.exists(pattern)
    paths = [pattern] if is_path else sorted(tf.io.gfile.glob(pattern))
    files = [path for path in paths if not tf.io.gfile.isdir(path)]
    if not files:
      raise UserError(
        f"--{name}={FLAGS[name].value}: there is no file {pattern}; pass "
        f"paths or patterns such as data/*.txt, separated by commas"
      )
    found += files
  return found


def load_tokenizer() -> tokenization.FullTokenizer:
  """The tokenizer that the flags name."""
  if FLAGS.spm_model_file:
    require_file("spm_model_file")
  else:
    require("vocab_file")
    require_file("vocab_file")
    with tf.io.gfile.GFile(FLAGS.vocab_file, "rb") as reader:
      text_files.decode_utf8(FLAGS.vocab_file, reader.read())
  tokenization.validate_case_matches_checkpoint(
    FLAGS.do_lower_case,
    FLAGS.init_checkpoint if "init_checkpoint" in FLAGS else None,
  )
  tokenizer = tokenization.FullTokenizer(
    FLAGS.vocab_file, FLAGS.do_lower_case, FLAGS.spm_model_file
  )
  _check_vocabulary(tokenizer)
  return tokenizer


def _check_vocabulary(tokenizer):
  """Raises ValueError unless a vocabulary has its specials, and each once."""
  needed = ["[CLS]", "[SEP]"]
  if not FLAGS.spm_model_file:
    needed.append(tokenization.UNKNOWN)
  for special in needed:
    if special not in tokenizer.vocab:
      raise UserError(
        f"--vocab_file={FLAGS.vocab_file} has no line {special}; pass the "
        f"vocab.txt that came with the model"
      )
  # The last of equal lines gives a piece its id, so an id is lacking then.
  repeated = set(range(len(tokenizer.vocab))) ^ set(tokenizer.vocab.values())
  if repeated and not FLAGS.spm_model_file:
    with tf.io.gfile.GFile(FLAGS.vocab_file, "rb") as reader:
      piece = reader.read().split(b"\n")[min(repeated)].decode().strip()
    raise UserError(
      f"{FLAGS.vocab_file}:{tokenizer.vocab[piece] + 1}: {piece!r} stands on "
      f"line {min(repeated) + 1} already; pass the vocab.txt that came with "
      f"the model"
    )


def release_files(config: modeling.BertConfig) -> dict[str, str | bytes]:
  """What makes a checkpoint a release: {file name: content}.

  Without a vocabulary among the flags that is the configuration alone.
  """
  fields = config.to_dict()
  files = {}
  path = FLAGS.spm_model_file or FLAGS.vocab_file
  if path:
    fields["do_lower_case"] = FLAGS.do_lower_case
    name = os.path.basename(path) if FLAGS.spm_model_file else "vocab.txt"
    with tf.io.gfile.GFile(path, "rb") as reader:
      files[name] = reader.read()
  released = modeling.BertConfig.from_dict(fields)
  return {"bert_config.json": released.to_json_string(), **files}


def load_config(
  tokenizer: tokenization.FullTokenizer | None,
) -> modeling.BertConfig:
  """The configuration that the flags name, checked against vocabulary and S."""
  require("bert_config_file")
  require_file("bert_config_file")
  config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
  if tokenizer:
    _check_tokenizer_fits(config, tokenizer)
  if FLAGS.max_seq_length < 3:
    raise UserError(
      f"--max_seq_length={FLAGS.max_seq_length} leaves no room for text beside "
      f"[CLS] and two [SEP]; pass 3 or more"
    )
  limit = config.max_position_embeddings
  if FLAGS.max_seq_length > limit:
    raise UserError(
      f"--max_seq_length={FLAGS.max_seq_length} is more than the {limit} "
      f"positions of {FLAGS.bert_config_file}; lower it"
    )
  return config


def _check_tokenizer_fits(config, tokenizer):
  """Raises ValueError unless vocabulary and casing are the configuration's."""
  highest = max(tokenizer.vocab.values(), default=-1)
  if highest >= config.vocab_size:
    raise UserError(
      f"--{'spm_model_file' if FLAGS.spm_model_file else 'vocab_file'}="
      f"{FLAGS.spm_model_file or FLAGS.vocab_file} has {highest + 1} entries,"
      f" more than vocab_size={config.vocab_size} of "
      f"{FLAGS.bert_config_file}; pass the two files of one release"
    )
  # What this project trains says how its text was cased.
  cased = getattr(config, "do_lower_case", FLAGS.do_lower_case)
  if cased != FLAGS.do_lower_case:
    raise UserError(
      f"--do_lower_case={FLAGS.do_lower_case} contradicts "
      f"{FLAGS.bert_config_file}, whose model was trained with "
      f"--do_lower_case={cased}; pass that"
    )


def check_init_checkpoint(
  config: modeling.BertConfig,
  heads: Mapping[str, list[int]],
  init_checkpoint: str | None,
) -> bool:
  """Raises ValueError unless a checkpoint to start from fits the model.

  Args:
    config: a BertConfig.
    heads: dict from name to shape of the variables of the task's own, which
      may be missing.
    init_checkpoint: --init_checkpoint, or what stands for it; or None.

  Returns:
    Whether the checkpoint holds these, too.
  """
  if init_checkpoint is None:
    return False
  if not init_checkpoint:
    raise UserError("--init_checkpoint is empty; pass a path, or leave it out")
  checkpoint = checkpoints.Checkpoint(
    checkpoints.find_checkpoint(init_checkpoint)
  ).verify()
  _, fresh, _ = checkpoints.compare(
    checkpoint, {**modeling.variable_shapes(config), **heads}, optional=heads
  )
  return not fresh


def check_output_dir(
  config: modeling.BertConfig, heads: Mapping[str, list[int]], output_dir: str
) -> bool:
  """Raises ValueError if an output folder holds checkpoints of another model.

  Args:
    config: a BertConfig.
    heads: dict from name to shape of the variables of the task's own.
    output_dir: --output_dir, or a folder in it.

  Returns:
    Whether it holds a whole checkpoint.
  """
  check_output_folder(output_dir)
  release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
  newest = checkpoints.latest_valid(output_dir)
  if FLAGS.do_train and not newest and tf.io.gfile.exists(release + ".index"):
    raise UserError(
      f"--output_dir={output_dir} holds a model, {release}, that training "
      f"would overwrite; pass another folder"
    )
  if newest:
    shapes = newest.shapes
    for name, shape in {**modeling.variable_shapes(config), **heads}.items():
      if shapes.get(name) != shape:
        difference = f"it lacks {name}"
        if name in shapes:
          difference = (
            f"{name} has shape {shapes[name]} there, and {shape} here"
          )
        raise UserError(
          f"--output_dir={output_dir} holds another model: {difference}; pass "
          f"another folder"
        )
  return newest is not None


@functools.cache
def strategy() -> tf.distribute.Strategy | None:
  """The one strategy of this process, for the devices that the flags name.

  Raises:
    ValueError: there is no such TPU.
  """
  return estimator.make_strategy(
    FLAGS.use_tpu,
    FLAGS.tpu_name or FLAGS.master,
    FLAGS.tpu_zone,
    FLAGS.gcp_project,
  )


def check_devices() -> None:
  """Raises ValueError unless the devices are there and can share a batch."""
  replicas = strategy().num_replicas_in_sync if strategy() else 1
  if FLAGS.train_batch_size % replicas:
    raise UserError(
      f"--train_batch_size={FLAGS.train_batch_size} cannot be shared out among "
      f"{replicas} devices; pass a multiple of {replicas}"
    )


def run_config(output_dir: str, seed: int) -> estimator.RunConfig:
  """The RunConfig that the flags describe, for one folder and seed."""
  pad = FLAGS.pad_to_max_length
  return estimator.RunConfig(
    model_dir=output_dir,
    seed=seed,
    save_checkpoints_steps=FLAGS.save_checkpoints_steps,
    keep_checkpoint_max=FLAGS.keep_checkpoint_max,
    log_steps=FLAGS.log_steps,
    strategy=strategy(),
    pad_to_max_length=FLAGS.use_tpu if pad is None else pad,
  )


def flag_values() -> dict[str, object]:
  """This project's flags by name, those of its libraries left out."""
  return {
    name: FLAGS[name].value
    for name in sorted(FLAGS)
    if not FLAGS.find_module_defining_flag(name).startswith(_LIBRARIES)
  }
