"""The flags that scripts share, each of them once.

A script takes groups of them, changes some, and adds its own:

    TABLE = table(MODEL, TRAINING, [MAX_SEQ_LENGTH.but(default=384), ...])
"""

# A row is easier to read in few lines.
# fmt: off

import itertools

from bert import runtimes
from bert.data import text_files
from bert.flags.values import COUNT, FRACTION, PATH, POSITIVE, PROPORTION
from bert.flags.values import SHARE, Check, Flag, Flags, at_least
from bert.optimizer_settings import Optimization

OFFLINE = Flag("offline", False,
               "Only use models that are already downloaded; do not access "
               "the network.", affects_weights=False)

MAX_SEQ_LENGTH = Flag("max_seq_length", 128,
                      "Maximum sequence length in word pieces, including "
                      "[CLS] and [SEP]. Longer text is truncated.",
                      check=at_least(3), fixed_by="task")


def sequence_length(longer_text: str, default: int = 128) -> Flag:
  """--max_seq_length, with another sentence about longer text."""
  first, end, _ = MAX_SEQ_LENGTH.help.partition(". ")
  return MAX_SEQ_LENGTH.but(default=default, help=first + end + longer_text)


PRECISION = Flag("precision", "float32",
                 "Precision of the layers. bfloat16 is faster on processors "
                 "that support it, and float16 on GPUs; weights, LayerNorm, "
                 "softmax, loss and optimizer stay in float32.",
                 choices=runtimes.PRECISIONS)

# For models that another runtime may compute.
RUN_PRECISION = PRECISION.but(
  default=None, choices=(*runtimes.PRECISIONS, runtimes.INT8),
  help="Precision of the layers. Default: float32, or as --runtime says. int8 "
  "needs --runtime=onnxruntime or openvino.")

LOWER_CASE = Flag("do_lower_case", True,
                  "Lower-case the text and strip accents. True for uncased "
                  "models, False for cased models. Default: as the model's "
                  "bert_config.json or the name of its folder says, or else "
                  "unless the vocabulary has capitals.", fixed_by="model")

TEXT = (
  Flag("vocab_file", None,
       "Vocabulary of the model, one word piece per line; or a tokenizer.json.",
       kind=PATH, fixed_by="model"),
  Flag("spm_model_file", None, "SentencePiece model, instead of --vocab_file.",
       kind=PATH, fixed_by="model"),
  LOWER_CASE,
  MAX_SEQ_LENGTH,
)

MODEL = (
  *TEXT,
  Flag("bert_config_file", None, "JSON file with the sizes of the model.",
       kind=PATH, fixed_by="model"),
  Flag("init_checkpoint", None,
       "Initial weights: the prefix of a checkpoint, such as "
       "uncased_L-12_H-768_A-12/bert_model.ckpt, or a folder. In a folder, "
       "the finished model is used, else the best checkpoint, else the "
       "newest, else model.safetensors. hf://google-bert/bert-base-uncased, "
       "or the name of a release of the original, is downloaded once. "
       "--vocab_file and --bert_config_file default to the files beside the "
       "weights, if both are omitted.", kind=PATH, fixed_by="model"),
  OFFLINE,
  PRECISION,
)


def model_dir(training: str = "a training", more: str = "") -> tuple[Flag, ...]:
  """--model_dir and --offline.

  `training` names what writes such an --output_dir; `more` ends the help.
  """
  text = (
    f"Folder of a model: an unzipped release, the --output_dir of {training}, "
    f"or config.json with model.safetensors. Or a name, such as "
    f"hf://google-bert/bert-base-uncased, to download once.{more}"
  )
  return Flag("model_dir", None, text, kind=PATH), OFFLINE


INPUT_FILE = Flag("input_file", None,
                  "UTF-8 text, plain or in gzip (.gz); - is standard input. "
                  "Each line is a text, or a pair, A ||| B.", kind=PATH)

THREADS = Flag("threads", None,
               "Threads of onnxruntime and openvino. Default: one for each "
               "core that the process may use.", kind=int,
               check=at_least(1, 1024),
               affects_weights=False)

RUNTIME = Flag("runtime", runtimes.TENSORFLOW,
               "What runs the encoder. For onnxruntime and openvino, the "
               "encoder is exported once to an ONNX file beside the "
               "checkpoint. An ONNX folder needs one of these, by default "
               "onnxruntime. openvino uses bfloat16 where the processor "
               "supports it, unless --precision is given; training scripts "
               "default to float32.",
               choices=runtimes.RUNTIMES)

ANN = Flag("ann", None,
           "Search approximately, by graphs that are built once. For millions "
           "of texts.", choices=("hnsw",))

RERANKER = Flag("reranker", None,
                "Folder of a classifier or regression of pairs, such as a "
                "cross-encoder, that reorders the texts.", kind=PATH)

RELEVANT_LABEL = Flag("relevant_label", None,
                      "Label that a classifier of pairs gives to matching "
                      "texts. Default: the second of two.")

SEARCHES = ("dense", "lexical", "hybrid")

SEARCH_KIND = Flag("search", "dense",
                   "dense compares meanings by vectors; lexical compares "
                   "words by BM25 and needs no model; hybrid joins both. With "
                   "--input_file, lexical and hybrid add the words of all "
                   "texts to the index.",
                   choices=SEARCHES)

# The flags to search an index and to run its models.
SEARCH = (RUNTIME, SEARCH_KIND, ANN, RERANKER, RELEVANT_LABEL, RUN_PRECISION)

TASK_MODULE = Flag("task_module", None,
                   "Module with tasks of your own, in the current folder or "
                   "in PYTHONPATH.",
                   affects_weights=False)


def masking(condition: str = "") -> tuple[Flag, ...]:
  """The flags for masking words; `condition` begins their help."""
  words = f"{FRACTION.words}; pass 0.15, as in the paper"
  if not condition:
    words += ", or --no_masking"
  return (
    Flag("max_predictions_per_seq", 20,
         "Maximum number of masked pieces per row; the same in "
         "create_pretraining_data.py and run_pretraining.py.", check=COUNT),
    Flag("masked_lm_prob", 0.15, f"{condition}Fraction of the pieces to mask.",
         check=FRACTION._replace(words=words)),
    Flag("do_whole_word_mask", False,
         f"{condition}Mask either all pieces of a word or none."),
  )


# How weights are updated. `RunSettings.make_optimization` turns these flags
# into the settings of `optimization.minimize`.
_OPTIMIZER = (
  Flag("learning_rate", 5e-5, "Peak learning rate.", check=POSITIVE,
       used="train"),
  Flag("optimizer", Optimization.optimizer,
       "Adam with decoupled weight decay; or LAMB, for pre-training with "
       "batches of thousands of rows.", choices=("adamw", "lamb"),
       used="train"),
  Flag("lr_schedule", Optimization.lr_schedule,
       "Learning rate schedule after the warm-up. linear and cosine fall to 0 "
       "at the last step.", choices=("linear", "constant", "cosine"),
       used="train"),
  Flag("adam_bias_correction", Optimization.adam_bias_correction,
       "Correct the bias of the moments, as Adam does and BERT does not.",
       used="train"),
  Flag("weight_decay", Optimization.weight_decay,
       "Fraction of each weight, times the learning rate, that an update "
       "subtracts. LayerNorm and biases are not decayed.", check=at_least(0),
       used="train"),
  Flag("max_grad_norm", Optimization.max_grad_norm,
       "Gradients with a larger global norm are scaled to this norm.",
       check=POSITIVE, used="train"),
  Flag("freeze_layers", None,
       "Do not train the embeddings and this number of the lowest layers; 0 "
       "freezes the embeddings alone.", kind=int, check=at_least(0),
       used="train"),
  Flag("layerwise_lr_decay", 1.0,
       "Each layer has this fraction of the learning rate of the layer above.",
       check=SHARE,
       used="train"),
)

# How a device computes a step.
_STEP = (
  Flag("pad_to_max_length", None,
       "Pad every batch to --max_seq_length instead of to its longest row. "
       "Default: True on a TPU and for training in run_squad.py, else False.",
       kind=bool),
  Flag("gradient_accumulation_steps",
       Optimization.gradient_accumulation_steps,
       "Compute each training batch in this number of parts, one after the "
       "other, to save memory. Results are the same, apart from rounding and "
       "dropout masks.", check=COUNT, used="train"),
  Flag("gradient_checkpointing", False,
       "Compute each layer again in the backward pass instead of keeping its "
       "activations. Takes less memory and about a third more time.",
       affects_weights=False, used="train"),
  Flag("iterations_per_loop", None,
       "Maximum number of steps in one call to the device. Results are the "
       "same. Default: 1000 on a TPU, else 1.", kind=int, check=COUNT,
       affects_weights=False),
  Flag("use_xla", "auto",
       "Compile each step with XLA. true also pads all batches to "
       "--max_seq_length, since each shape is compiled anew. auto compiles on "
       "a GPU if all batches have one shape.",
       choices=("auto", "true", "false")),
)

TRAINING = (
  Flag("output_dir", None, "Folder for checkpoints and results.", kind=PATH),
  Flag("do_train", False, "Train on the training set.", affects_weights=False),
  Flag("dry_run", False,
       "Check everything, run a few training steps, and print how much memory "
       "and time training needs. Leaves no files.", affects_weights=False),
  Flag("do_eval", False, "Evaluate on the development set.",
       affects_weights=False),
  Flag("train_batch_size", 32, "Batch size for training.", check=COUNT,
       used="train"),
  Flag("eval_batch_size", 8, "Batch size for evaluation.", check=COUNT,
       affects_weights=False),
  *_OPTIMIZER,
  Flag("save_checkpoints_steps", 1000, "Number of steps between checkpoints.",
       check=COUNT, affects_weights=False, used="train"),
  Flag("keep_checkpoint_max", 5,
       "Number of recent checkpoints to keep; 0 keeps all.", check=at_least(0),
       affects_weights=False, used="train"),
  Flag("log_steps", 50, "Number of steps between log lines.", check=COUNT,
       affects_weights=False, used="train"),
  Flag("eval_steps", 0,
       "Number of steps between evaluations during training. 0 evaluates once "
       "per epoch if --keep_best or --early_stopping_patience is given, and "
       "not at all otherwise.", check=at_least(0), used="train"),
  Flag("seed", 1,
       "Random seed for the order of rows, new weights and dropout.",
       check=at_least(0, 2**31 - 1)),
  THREADS.but(
    help="Threads of a training, onnxruntime and openvino. The last digits of "
    "weights depend on their number, but not on the number of cores. Default: "
    "that of the training that continues, or else one for each core that the "
    "process may use.", affects_weights=True),
  Flag("repeat", None,
       "Repeat the training in this --output_dir: its flags are the defaults, "
       "and at the end, the log tells whether the weights are the same.",
       kind=PATH),
  *_STEP,
)

TPU = (
  Flag("use_tpu", False, "Run on a TPU."),
  Flag("tpu_name", None, "local (the default): this machine.",
       used="tpu", affects_weights=False),
  Flag("master", None, "Older name of --tpu_name.", used="tpu",
       affects_weights=False),
  # The original needs these for TPUs of other machines.
  Flag("tpu_zone", None, "Has no effect.", used="tpu", affects_weights=False),
  Flag("gcp_project", None, "Has no effect.", used="tpu",
       affects_weights=False),
  Flag("num_tpu_cores", 8, "Has no effect: all cores are used.", used="tpu",
       affects_weights=False),
)

DEVICES = (
  Flag("distribution_strategy", "auto",
       "Devices to use: one, all GPUs of this machine, all hosts of the "
       "environment variable TF_CONFIG, or a TPU. auto: a TPU with --use_tpu, "
       "the hosts if TF_CONFIG names several, else all GPUs, else the CPU.",
       choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
       affects_weights=False),
  Flag("worker_timeout", 600.0,
       "Seconds to wait at the start for the other hosts of TF_CONFIG.",
       check=at_least(0, 10**8), affects_weights=False),
  *TPU,
)

NUM_SEEDS = Flag("num_seeds", 1,
                 "Number of runs with different seeds, starting at --seed, "
                 "each in a folder seed-N of --output_dir. results.tsv has "
                 "their means and deviations.", check=COUNT,
                 affects_weights=False)

# How a user's tables are written.
TABLES = (
  Flag("delimiter", None,
       "Character between the columns of TSV and CSV files, or tab. "
       "Default: the tab, comma or semicolon in the header."),
  Flag("encoding", "utf-8",
       "Encoding of tables without a byte order mark, by its name in Python, "
       "such as cp1252 (Windows-1252) for CSV files of Excel.",
       check=Check("an encoding of text in Python, such as cp1252",
                   text_files.is_encoding)),
)

CALIBRATE = Flag("calibrate", False,
                 "Fit a temperature to the development set, so that "
                 "probabilities are the shares of correct labels. Labels do "
                 "not change.", affects_weights=False, used="dev")

TEACHER = Flag("teacher", None,
               "A trained model of the same task and labels: the --output_dir "
               "of its training. The student learns from its probabilities, "
               "too.", kind=PATH, used="train")

# How a student learns from a teacher.
SOFT_TARGETS = (
  Flag("distill_weight", 0.5,
       "Weight of the teacher's probabilities in the loss. That of the labels "
       "has the rest.", check=PROPORTION, used="teacher"),
  Flag("distill_temperature", 2.0,
       "Divides the logits of teacher and student before the softmax.",
       check=POSITIVE, used="teacher"),
)

# The teacher of a pre-training.
PRETRAINING_TEACHER = (
  TEACHER.but(
    help="A pre-trained model with the same vocabulary. The student learns "
    "from its probabilities of masked words, too."),
  *SOFT_TARGETS,
  Flag("distill_layers", [],
       "Pairs of a layer of the student and one of the teacher, such as "
       "0:1,1:3,2:5, which become alike.", used="teacher"),
  Flag("distill_targets", ["hidden"],
       "What becomes alike in these pairs: hidden (states, by their cosine, or "
       "if widths differ, by a learned matrix), attention (scores, as in "
       "TinyBERT), relations (distributions of attention and of values, as in "
       "MiniLM), or several.", used="teacher"),
)

UNLABELED_FILE = Flag("unlabeled_file", None,
                      "Further examples to train on, which need no labels: a "
                      "text, or a pair, A ||| B, in each line. For questions "
                      "and choices, a file like the one to predict.",
                      kind=PATH, used="teacher")


def fine_tuning(scores: str, default_score: str) -> tuple[Flag, ...]:
  """The flags of a script that fine-tunes a pre-trained model.

  `scores` are examples of metrics for --keep_best, and `default_score` is its
  default if only patience is given.
  """
  return (
    *MODEL,
    *TRAINING,
    NUM_SEEDS,
    Flag("compare_to", None,
         "Folder of a model of the same task to compare with in an evaluation. "
         "Default: the one that a training starts from.", kind=PATH,
         used="dev"),
    Flag("do_predict", False, "Predict the test set.", affects_weights=False),
    Flag("predict_batch_size", 8, "Batch size for prediction.", check=COUNT,
         affects_weights=False),
    Flag("num_train_epochs", 3.0, "Number of training epochs.", check=POSITIVE,
         used="train"),
    Flag("warmup_proportion", 0.1,
         "Fraction of the training steps in which the learning rate rises "
         "linearly to its peak.", check=PROPORTION, used="train"),
    Flag("keep_best", None,
         f"Metric, such as {scores}, that selects the best evaluation. "
         "Training ends with the weights of that evaluation.", used="train"),
    Flag("early_stopping_patience", None,
         "Stop after this many consecutive evaluations without improvement of "
         f"--keep_best, which defaults to {default_score}.", kind=int,
         check=COUNT, used="train"),
    *DEVICES,
    TEACHER,
    *SOFT_TARGETS,
    UNLABELED_FILE,
    RUNTIME,
    PRECISION.but(
      choices=RUN_PRECISION.choices,
      help=f"{PRECISION.help} int8 is for a trained model with --runtime, and "
      "not for training."),
  )


def asks_to_evaluate(flags: Flags) -> bool:
  """Whether the flags ask for evaluations during training."""
  names = ("eval_steps", "keep_best", "early_stopping_patience")
  return any(map(flags.get, names))


def wanted_splits(flags: Flags) -> list[str]:
  """The data splits that the flags of a fine-tuning run need."""
  evaluates = flags.do_eval or (flags.do_train and asks_to_evaluate(flags))
  wanted = flags.do_train, evaluates, flags.do_predict
  return list(itertools.compress(("train", "dev", "test"), wanted))
