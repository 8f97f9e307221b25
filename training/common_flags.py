"""Flags that scripts share, and their checks. Imports TensorFlow lazily."""

import glob
import itertools
import math
import os
from collections.abc import Iterable

from absl import flags, logging

import tokenization
from errors import UserError
from pipeline import downloads, files, text_files
from training import cluster as hosts

FLAGS = flags.FLAGS

# What computes the encoder of a trained model.
RUNTIMES = ("tensorflow", "onnxruntime", "openvino")

# Modules whose flags are not ours.
_LIBRARIES = ("absl.", "tensorflow.")


def define_model_flags(
  max_seq_length: int, longer_text: str = "is truncated"
) -> None:
  """Defines the flags of the model and its tokenizer.

  Args:
    max_seq_length: default of the flag.
    longer_text: what happens to longer text, for the help.
  """
  define_text_flags(max_seq_length, longer_text)
  flags.DEFINE_string(
    "bert_config_file", None, "JSON file with the sizes of the model."
  )
  flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Initial weights: the prefix of a checkpoint, such as "
    "uncased_L-12_H-768_A-12/bert_model.ckpt, or a folder. In a folder, the "
    "finished model is used, else the best checkpoint, else the newest, else "
    "model.safetensors. hf://google-bert/bert-base-uncased, or the name of a "
    "release of the original, is downloaded once. --vocab_file and "
    "--bert_config_file default to the files in the folder, if both are "
    "omitted.",
  )
  define_download_flag()
  flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16", "float16"],
    "Precision of the layers. bfloat16 is faster on processors that support "
    "it, and float16 on GPUs; weights, LayerNorm, softmax, loss and optimizer "
    "stay in float32.",
  )


def define_download_flag() -> None:
  """Defines the flag for models that are downloaded."""
  flags.DEFINE_bool(
    "offline",
    False,
    "Only use models that are already downloaded; do not access the network.",
  )


def define_model_dir_flag(training: str = "a training", more: str = "") -> None:
  """Defines the flags for the folder of a model, and for its download.

  Args:
    training: what writes such an --output_dir, for the help.
    more: what else is accepted, for the help.
  """
  flags.DEFINE_string(
    "model_dir",
    None,
    f"Folder of a model: an unzipped release, the --output_dir of {training}, "
    f"or config.json with model.safetensors. Or a name, such as "
    f"hf://google-bert/bert-base-uncased, to download once.{more}",
  )
  define_download_flag()


def define_text_flags(
  max_seq_length: int, longer_text: str = "is truncated"
) -> None:
  """Flags of how text is read; see `define_model_flags`."""
  flags.DEFINE_string(
    "vocab_file", None, "Vocabulary of the model, one word piece per line."
  )
  flags.DEFINE_string(
    "spm_model_file", None, "SentencePiece model, instead of --vocab_file."
  )
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Lower-case the text and strip accents. True for uncased models, False "
    "for cased models.",
  )
  flags.DEFINE_integer(
    "max_seq_length",
    max_seq_length,
    "Maximum sequence length in word pieces, including [CLS] and [SEP]. "
    f"Longer text {longer_text}.",
  )


def define_masking_flags(condition: str = "") -> None:
  """Flags of how words are masked.

  Args:
    condition: when the choice of the words has an effect, for the help.
  """
  flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Maximum number of masked pieces per row; the same in "
    "create_pretraining_data.py and run_pretraining.py.",
    lower_bound=1,
  )
  flags.DEFINE_float(
    "masked_lm_prob", 0.15, f"{condition}Fraction of the pieces to mask."
  )
  flags.DEFINE_bool(
    "do_whole_word_mask",
    False,
    f"{condition}Mask either all pieces of a word or none.",
  )


def define_input_flag() -> None:
  """Defines the flag for a file of texts."""
  flags.DEFINE_string(
    "input_file",
    None,
    "UTF-8 text, plain or in gzip (.gz); - is standard input. Each line is a "
    "text, or a pair, A ||| B.",
  )


def define_runtime_flag() -> None:
  """Defines the flag for what computes the encoder of a trained model."""
  flags.DEFINE_enum(
    "runtime",
    RUNTIMES[0],
    RUNTIMES,
    "What runs the encoder. For onnxruntime and openvino, the encoder is "
    "exported once to an ONNX file beside the checkpoint. openvino uses "
    "bfloat16 where the processor supports it, unless --precision is given.",
  )


def run_precision() -> str | None:
  """The value of --precision, or None if it is not given."""
  return FLAGS.precision if FLAGS["precision"].present else None


def define_run_flags() -> None:
  """Flags of training and of its output."""
  flags.DEFINE_string("output_dir", None, "Folder for checkpoints and results.")
  flags.DEFINE_bool("do_train", False, "Train on the training set.")
  flags.DEFINE_bool(
    "dry_run",
    False,
    "Check everything, run a few training steps, and print how much memory "
    "and time training needs. Leaves no files.",
  )
  flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
  flags.DEFINE_integer("train_batch_size", 32, "Batch size for training.")
  flags.DEFINE_integer("eval_batch_size", 8, "Batch size for evaluation.")
  flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.")
  define_optimizer_flags()
  flags.DEFINE_integer(
    "freeze_layers",
    None,
    "Do not train the embeddings and this number of the lowest layers; 0 "
    "freezes the embeddings alone.",
    lower_bound=0,
  )
  flags.DEFINE_float(
    "layerwise_lr_decay",
    1.0,
    "Each layer has this fraction of the learning rate of the layer above.",
  )
  flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Number of steps between checkpoints."
  )
  flags.DEFINE_integer(
    "keep_checkpoint_max",
    5,
    "Number of recent checkpoints to keep; 0 keeps all.",
    lower_bound=0,
  )
  flags.DEFINE_integer("log_steps", 50, "Number of steps between log lines.")
  flags.DEFINE_integer(
    "eval_steps",
    0,
    "Number of steps between evaluations during training. 0 evaluates once "
    "per epoch if --keep_best or --early_stopping_patience is given, and not "
    "at all otherwise.",
    lower_bound=0,
  )
  flags.DEFINE_bool(
    "gradient_checkpointing",
    False,
    "Compute each layer again in the backward pass instead of keeping its "
    "activations. Takes less memory and about a third more time.",
  )
  flags.DEFINE_integer(
    "seed",
    1,
    "Random seed for the order of rows, new weights and dropout. On one CPU in "
    "float32, the same command gives the same model.",
    lower_bound=0,
    upper_bound=2**31 - 1,
  )
  _define_shape_flags()


def _define_shape_flags():
  flags.DEFINE_bool(
    "pad_to_max_length",
    None,
    "Pad every batch to --max_seq_length instead of to its longest row. "
    "Default: True on a TPU, with --use_xla=true and for training in "
    "run_squad.py, else False.",
  )
  flags.DEFINE_bool(
    "pack_sequences",
    False,
    "Compute several short sequences in each row of --max_seq_length. "
    "Predictions do not change. For classification, NER and pre-training where "
    "shapes must be static.",
  )
  _define_step_flags()


def _define_step_flags():
  """Flags of how a device computes a step."""
  flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Compute each training batch in this number of parts, one after the other, "
    "to save memory. Results are the same.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "iterations_per_loop",
    None,
    "Maximum number of steps in one call to the device. Results are the same. "
    "Default: 1000 on a TPU, else 1.",
    lower_bound=1,
  )
  flags.DEFINE_enum(
    "use_xla",
    "auto",
    ["auto", "true", "false"],
    "Compile each step with XLA. true also pads all batches to "
    "--max_seq_length, since each shape is compiled anew. auto compiles on a "
    "GPU if all batches have one shape.",
  )


def define_optimizer_flags() -> None:
  """Flags of the optimizer; their defaults are the original's."""
  flags.DEFINE_enum(
    "optimizer",
    "adamw",
    ["adamw", "lamb"],
    "Adam with decoupled weight decay; or LAMB, for pre-training with batches "
    "of thousands of rows.",
  )
  flags.DEFINE_enum(
    "lr_schedule",
    "linear",
    ["linear", "constant", "cosine"],
    "Learning rate schedule after the warm-up. linear and cosine fall to 0 at "
    "the last step.",
  )
  flags.DEFINE_bool(
    "adam_bias_correction",
    False,
    "Correct the bias of the moments, as Adam does and BERT does not.",
  )
  flags.DEFINE_float(
    "weight_decay",
    0.01,
    "Fraction of each weight, times the learning rate, that an update "
    "subtracts. LayerNorm and biases are not decayed.",
  )
  flags.DEFINE_float(
    "max_grad_norm",
    1.0,
    "Gradients with a larger global norm are scaled to this norm.",
  )


def define_fine_tuning_flags(scores: str, default_score: str) -> None:
  """Flags of scripts that fine-tune a pre-trained model.

  Args:
    scores: examples of metrics for --keep_best, for the help.
    default_score: the metric if only patience is given, for the help.
  """
  flags.DEFINE_bool("do_predict", False, "Predict the test set.")
  flags.DEFINE_integer("predict_batch_size", 8, "Batch size for prediction.")
  flags.DEFINE_float("num_train_epochs", 3.0, "Number of training epochs.")
  flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Fraction of the training steps in which the learning rate rises linearly "
    "to its peak.",
  )
  flags.DEFINE_string(
    "keep_best",
    None,
    f"Metric, such as {scores}, that selects the best evaluation. Training "
    "ends with the weights of that evaluation.",
  )
  flags.DEFINE_integer(
    "early_stopping_patience",
    None,
    "Stop after this many consecutive evaluations without improvement of "
    f"--keep_best, which defaults to {default_score}.",
    lower_bound=1,
  )


def define_device_flags() -> None:
  """Flags that select the devices of a training."""
  flags.DEFINE_enum(
    "distribution_strategy",
    "auto",
    ["auto", "one_device", "mirrored", "multi_worker", "tpu"],
    "Devices to use: one, all GPUs of this machine, all hosts of the "
    "environment variable TF_CONFIG, or a TPU. auto: a TPU with --use_tpu, the "
    "hosts if TF_CONFIG names several, else all GPUs, else the CPU.",
  )
  flags.DEFINE_float(
    "worker_timeout",
    600.0,
    "Seconds to wait at the start for the other hosts of TF_CONFIG, or for the "
    "TPU.",
    lower_bound=0,
  )
  define_tpu_flags()


def define_tpu_flags() -> None:
  """Flags that select a Cloud TPU."""
  flags.DEFINE_bool("use_tpu", False, "Run on a TPU.")
  flags.DEFINE_string(
    "tpu_name", None, "Name or grpc:// address of the TPU; default: local."
  )
  flags.DEFINE_string("tpu_zone", None, "Zone of the TPU given by name.")
  flags.DEFINE_string(
    "gcp_project", None, "Cloud project of the TPU given by name."
  )
  flags.DEFINE_string(
    "master", None, "Address of the TPU; older name of --tpu_name."
  )
  flags.DEFINE_integer(
    "num_tpu_cores",
    None,
    "Number of cores that the TPU must have. All of its cores are used.",
  )


def tpu():
  """The `devices.Tpu` of the flags."""
  from training import devices

  return devices.Tpu(
    FLAGS.tpu_name or FLAGS.master,
    FLAGS.tpu_zone,
    FLAGS.gcp_project,
    FLAGS.num_tpu_cores,
  )


def given(name: str) -> object:
  """The value of a flag; None if the script does not define it."""
  return FLAGS[name].value if name in FLAGS else None


def require(*names: str) -> None:
  """Raises UserError for the first of these flags that has no value."""
  for name in names:
    if not FLAGS[name].value:
      raise UserError(f"--{name} is required; pass a value")


def cluster() -> hosts.Cluster | None:
  """The Cluster of TF_CONFIG, or None.

  Raises:
    UserError: TF_CONFIG is wrong.
  """
  return hosts.read_cluster(os.environ.get("TF_CONFIG"))


def device_kind() -> str:
  """The kind of strategy that the flags and TF_CONFIG select."""
  from training import devices

  return devices.choose(FLAGS.distribution_strategy, FLAGS.use_tpu, cluster())


def check_precision() -> None:
  """Raises UserError if the device lacks the --precision."""
  is_tpu = FLAGS.use_tpu or given("distribution_strategy") == "tpu"
  if is_tpu and FLAGS.precision == "float16":
    raise UserError(
      "--precision=float16: a TPU has no float16; pass --precision=bfloat16"
    )


def check_exclusive(*names: str) -> None:
  """Raises UserError if two of these flags are given."""
  first, *others = [name for name in names if FLAGS[name].value] or [None]
  if others:
    raise UserError(
      f"--{first} and --{others[0]} cannot both be given; omit one"
    )


def require_positive(*names: str) -> None:
  """Raises UserError for the first of these flags that is not positive."""
  for name in names:
    if not 0 < FLAGS[name].value < math.inf:
      raise UserError(
        f"--{name}={FLAGS[name].value} must be a finite number greater than 0"
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
  if not 0 <= FLAGS.weight_decay < math.inf:
    raise UserError(
      f"--weight_decay={FLAGS.weight_decay} must be a finite number of at "
      f"least 0"
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
  """Checks the flags of a fine-tuning run, and warns of a file it ignores.

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
  if not wanted_splits():
    asks = " or ".join(f"--{name}" for name in questions)
    raise UserError(
      f"nothing to do; pass --do_train, --do_eval or --do_predict, or, with a "
      f"trained model, {asks}"
    )
  if "dev_file" in FLAGS:
    warn_of_unused_file("dev_file", "dev" in wanted_splits())


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
    names: the flags that ask, of which one is given. None of the flags for
      training and its data may be given as well.
  """
  require("output_dir")
  require_positive("predict_batch_size")
  check_exclusive(*names, "do_train", "do_eval", "do_predict")
  warn_of_unused_model("max_seq_length", "long_text", "max_context")
  path = given("predict_file") if "predict_file" in names else None
  if path and path != text_files.STREAM:
    require_file("predict_file")


def evaluates_in_training() -> bool:
  """Whether the flags ask for evaluations during training."""
  return bool(
    FLAGS.eval_steps or given("keep_best") or given("early_stopping_patience")
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
  if not files.isfile(path):
    raise UserError(f"--{name}={path}: no such file; pass the path of a file")


def warn_of_unused_file(
  name: str, is_used: bool, users: str = "--do_eval or --eval_steps"
) -> None:
  """Warns if this flag names a file that no step reads; `users` would do so."""
  path = FLAGS[name].value
  if path and not is_used:
    logging.warning("--%s=%s is not used; add %s", name, path, users)


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


def vocab_file() -> str | None:
  """--vocab_file; by default, that of the folder --init_checkpoint.

  The default applies only if --bert_config_file is omitted as well.
  """
  if FLAGS.vocab_file or FLAGS.spm_model_file or given("bert_config_file"):
    return FLAGS.vocab_file
  return _file_of_init_checkpoint("vocab_file")


def bert_config_file() -> str | None:
  """--bert_config_file; by default, that of the folder --init_checkpoint."""
  return FLAGS.bert_config_file or _file_of_init_checkpoint("bert_config_file")


def _file_of_init_checkpoint(flag):
  """The default of a flag: a file in the folder --init_checkpoint, or None."""
  if not given("init_checkpoint"):
    return None
  from training import model_folder

  folder = downloads.local_path(FLAGS.init_checkpoint)
  names = {
    "vocab_file": model_folder.VOCAB_NAMES,
    "bert_config_file": model_folder.config_names(folder),
  }
  paths = (os.path.join(folder, name) for name in names[flag])
  return next(filter(files.isfile, paths), None)


def model_files() -> list[str]:
  """The files of the model that the flags name, with its checkpoint's."""
  from training import checkpoints

  named = (vocab_file(), FLAGS.spm_model_file, bert_config_file())
  return [
    *filter(None, named),
    *checkpoints.checkpoint_files(FLAGS.init_checkpoint),
  ]


def check_output_folder(path: str) -> None:
  """Raises UserError unless --output_dir, or a folder in it, can be created."""
  if files.is_remote(path):
    return
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


def load_tokenizer() -> tokenization.FullTokenizer:
  """The tokenizer that the flags name."""
  flag, path = "vocab_file", vocab_file()
  if FLAGS.spm_model_file:
    flag, path = "spm_model_file", FLAGS.spm_model_file
  if not path:
    folder = downloads.local_path(given("init_checkpoint") or "")
    models = files.find(os.path.join(glob.escape(folder), "*.model"))
    if folder and models:
      raise UserError(f"--spm_model_file is required; pass {models[0]}")
    require(flag)
  if FLAGS[flag].value:
    require_file(flag)
  if flag == "vocab_file":
    text_files.decode_utf8(path, files.read_bytes(path))
  tokenization.validate_case_matches_checkpoint(
    FLAGS.do_lower_case, given("init_checkpoint")
  )
  tokenizer = tokenization.FullTokenizer(
    vocab_file(), FLAGS.do_lower_case, FLAGS.spm_model_file
  )
  check_vocabulary(tokenizer, flag, path)
  return tokenizer


def check_vocabulary(
  tokenizer: tokenization.FullTokenizer, flag: str, path: str
) -> None:
  """Raises UserError unless special pieces exist and no piece occurs twice.

  Args:
    tokenizer: has the vocabulary.
    flag, path: the flag that names its file, and the file.
  """
  for special in ("[CLS]", "[SEP]", tokenizer.wordpiece_tokenizer.unk_token):
    if special not in tokenizer.vocab:
      raise UserError(
        f"--{flag}={path} has no piece {special}; pass the file that came with "
        f"the model"
      )
  # A piece gets the id of its last line, so the ids of repeated lines are free.
  unused = set(range(len(tokenizer.vocab))) ^ set(tokenizer.vocab.values())
  if unused and flag != "spm_model_file":
    piece = files.read_bytes(path).split(b"\n")[min(unused)].decode().strip()
    raise UserError(
      f"{path}:{tokenizer.vocab[piece] + 1}: {piece!r} repeats "
      f"line {min(unused) + 1}; pass the vocab.txt that came with the model"
    )


def release_files(config) -> dict[str, str | bytes]:
  """The files that turn a checkpoint into a model folder, by name.

  Without a vocabulary among the flags, the configuration alone.

  Args:
    config: a BertConfig.
  """
  fields = config.to_dict()
  contents = {}
  path = FLAGS.spm_model_file or vocab_file()
  if path:
    fields["do_lower_case"] = FLAGS.do_lower_case
    name = "vocab.txt"
    if FLAGS.spm_model_file:
      # Readers of a model folder look for *.model.
      name = os.path.basename(path).removesuffix(".model") + ".model"
    contents[name] = files.read_bytes(path)
  if path and path.endswith(".json"):
    pieces = tokenization.load_vocab(path)
    contents[name] = "".join(f"{piece}\n" for piece in pieces)
  released = type(config).from_dict(fields)
  return {"bert_config.json": released.to_json_string(), **contents}


def load_config(
  tokenizer: tokenization.FullTokenizer | None,
  max_seq_length: int | None = None,
):
  """The BertConfig that the flags name, checked against tokenizer and length.

  Args:
    tokenizer: the tokenizer, or None to skip its checks.
    max_seq_length: the sequence length S; None for --max_seq_length.
  """
  from training import huggingface_config

  if not bert_config_file():
    require("bert_config_file")
  if FLAGS.bert_config_file:
    require_file("bert_config_file")
  try:
    config = huggingface_config.read_config(bert_config_file())
  except UserError as error:
    flag = "--bert_config_file: " if FLAGS.bert_config_file else ""
    raise UserError(f"{flag}{error}") from error
  if tokenizer:
    _check_tokenizer_fits(config, tokenizer)
  length = FLAGS.max_seq_length if max_seq_length is None else max_seq_length
  if length < 3:
    raise UserError(
      f"--max_seq_length={length} leaves no room for text beside [CLS] and two "
      f"[SEP]; pass 3 or more"
    )
  if length > config.max_position_embeddings:
    raise UserError(
      f"--max_seq_length={length} exceeds the "
      f"{config.max_position_embeddings} positions of "
      f"{bert_config_file()}; lower it"
    )
  return config


def _check_tokenizer_fits(config, tokenizer):
  """Raises UserError unless vocabulary and casing match the configuration."""
  size = max(tokenizer.vocab.values(), default=-1) + 1
  if size > config.vocab_size:
    name = "spm_model_file" if FLAGS.spm_model_file else "vocab_file"
    raise UserError(
      f"--{name}={FLAGS.spm_model_file or vocab_file()} has {size} entries, "
      f"more than vocab_size={config.vocab_size} of {bert_config_file()}; pass "
      f"two files of the same model"
    )
  # Models trained by this project record their casing.
  do_lower_case = getattr(config, "do_lower_case", FLAGS.do_lower_case)
  if do_lower_case != FLAGS.do_lower_case:
    raise UserError(
      f"--do_lower_case={FLAGS.do_lower_case} contradicts "
      f"{bert_config_file()}: the model was trained with "
      f"--do_lower_case={do_lower_case}; pass that"
    )


def flag_values() -> dict[str, object]:
  """The project's flags by name, without those of libraries."""
  values = {
    name: FLAGS[name].value
    for name in sorted(FLAGS)
    if not FLAGS.find_module_defining_flag(name).startswith(_LIBRARIES)
  }
  defaults = {"vocab_file": vocab_file, "bert_config_file": bert_config_file}
  return values | {n: find() for n, find in defaults.items() if n in values}
