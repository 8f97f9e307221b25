"""Flags that scripts share."""

import functools
import os
from collections.abc import Iterable

from absl import flags

from bert.training import devices, runtimes
from bert.training.cluster import Cluster, read_cluster

FLAGS = flags.FLAGS


def define_model_flags(
  max_seq_length: int, longer_text: str = "Longer text is truncated."
) -> None:
  """Defines the flags of the model and its tokenizer.

  Args:
    max_seq_length: default of the flag.
    longer_text: what happens to longer text, a sentence for the help.
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
    runtimes.PRECISIONS,
    "Precision of the layers. bfloat16 is faster on processors that support "
    "it, and float16 on GPUs; weights, LayerNorm, softmax, loss and optimizer "
    "stay in float32.",
  )


def define_from_table(rows: Iterable[tuple[str, object, str]]) -> None:
  """Defines flags by name, default and help.

  The default determines the type. None stands for a string, and an integer must
  be positive.
  """
  define = {
    bool: flags.DEFINE_bool,
    int: functools.partial(flags.DEFINE_integer, lower_bound=1),
    float: flags.DEFINE_float,
  }
  for name, default, text in rows:
    define.get(type(default), flags.DEFINE_string)(name, default, text)


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
  max_seq_length: int, longer_text: str = "Longer text is truncated."
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
    + longer_text,
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
    runtimes.TENSORFLOW,
    runtimes.RUNTIMES,
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
  _define_optimizer_flags()
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
  flags.DEFINE_integer(
    "seed",
    1,
    "Random seed for the order of rows, new weights and dropout. On one CPU in "
    "float32, the same command gives the same model.",
    lower_bound=0,
    upper_bound=2**31 - 1,
  )
  _define_shape_flags()
  _define_step_flags()


def _define_shape_flags():
  flags.DEFINE_bool(
    "pad_to_max_length",
    None,
    "Pad every batch to --max_seq_length instead of to its longest row. "
    "Default: True on a TPU and for training in run_squad.py, else False.",
  )


def _define_step_flags():
  """Flags of how a device computes a step."""
  flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Compute each training batch in this number of parts, one after the other, "
    "to save memory. Results are the same, apart from rounding and dropout "
    "masks.",
    lower_bound=1,
  )
  flags.DEFINE_bool(
    "gradient_checkpointing",
    False,
    "Compute each layer again in the backward pass instead of keeping its "
    "activations. Takes less memory and about a third more time.",
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


def _define_optimizer_flags() -> None:
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

  define_from_table(_DISTILLATION)


# Flag, default, help.
_DISTILLATION = (
  (
    "teacher",
    None,
    "A trained model of the same task and labels: the --output_dir of its "
    "training. The student learns from its probabilities, too.",
  ),
  (
    "distill_weight",
    0.5,
    "Weight of the teacher's probabilities in the loss, from 0 to 1. That of "
    "the labels has the rest.",
  ),
  (
    "distill_temperature",
    2.0,
    "Divides the logits of teacher and student before the softmax.",
  ),
  (
    "unlabeled_file",
    None,
    "With --teacher: further examples to train on, which need no labels; a "
    "text, or a pair, A ||| B, in each line. For questions and choices, a file "
    "like the one to predict.",
  ),
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
    8,
    "If given, the number of cores that the TPU must have. All of its cores "
    "are used in any case.",
  )


def tpu() -> devices.Tpu:
  """The TPU of the flags."""
  return devices.Tpu(
    FLAGS.tpu_name or FLAGS.master,
    FLAGS.tpu_zone,
    FLAGS.gcp_project,
    FLAGS.num_tpu_cores if FLAGS["num_tpu_cores"].present else None,
  )


def given(name: str) -> object:
  """The value of a flag; None if the script does not define it."""
  return FLAGS[name].value if name in FLAGS else None


def cluster() -> Cluster | None:
  """The Cluster of TF_CONFIG, or None.

  Raises:
    UserError: TF_CONFIG is wrong.
  """
  return read_cluster(os.environ.get("TF_CONFIG"))


def device_kind() -> str:
  """The kind of strategy that the flags and TF_CONFIG select."""
  return devices.choose(FLAGS.distribution_strategy, FLAGS.use_tpu, cluster())
