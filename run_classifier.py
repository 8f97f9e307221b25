"""Fine-tunes BERT on a classification task, evaluates it, and predicts.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
      --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/mrpc_output/
"""

import quiet_start  # noqa: F401  Before TensorFlow.
from training import common_flags
import functools
import itertools
import math
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import flags, logging

from errors import UserError
from pipeline import files
from reports import classification as classification_report
from tasks import answers, classification, fine_tuning, glue, runs, tabular
from tasks import labels as label_types
from tasks.classification import Classifier, create_model, model_fn_builder
from tasks.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  InputFeatures,
  PaddingInputExample,
  content_hash,
  convert_examples_to_features,
  convert_single_example,
  file_based_convert_examples_to_features,
  file_based_input_fn_builder,
  input_fn_builder,
  label_id,
  unlabelled,
)
from tasks.glue import (
  PROCESSORS,
  ColaProcessor,
  MnliProcessor,
  MrpcProcessor,
  XnliProcessor,
)
from training import (
  best_checkpoint,
  checkpoints,
  estimator,
  model_folder,
  run_record,
)
from training import experiment
from training import startup

# Code written for the original finds these here, and Classifier.
__all__ = [
  "PROCESSORS",
  "Classifier",
  "ColaProcessor",
  "DataProcessor",
  "InputExample",
  "InputFeatures",
  "MnliProcessor",
  "MrpcProcessor",
  "PaddingInputExample",
  "XnliProcessor",
  "convert_examples_to_features",
  "convert_single_example",
  "create_model",
  "file_based_convert_examples_to_features",
  "file_based_input_fn_builder",
  "input_fn_builder",
  "model_fn_builder",
]

FLAGS = flags.FLAGS

# The task of a user's own tables.
CUSTOM = "custom"

# Flags that are arguments of `custom.TableProcessor`, and all that mean
# nothing to tasks other than custom.
_TABLE_FLAGS = (
  "train_file",
  "dev_file",
  "test_file",
  "text_a_column",
  "text_b_column",
  "label_column",
  "id_column",
  "header",
  "dev_fraction",
)
_CUSTOM_FLAGS = (*_TABLE_FLAGS, "regression", "multilabel")


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags(
    "accuracy or loss", "accuracy, or pearson of numbers"
  )
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  _define_task_flags()
  _define_custom_flags()
  flags.DEFINE_enum(
    "class_weights",
    "none",
    ["none", "balanced"],
    "balanced: in training, rare labels count as much as frequent ones.",
  )
  flags.DEFINE_enum(
    "long_text",
    LONG_TEXT[0],
    LONG_TEXT,
    "What is read of a text longer than --max_seq_length: its head; its head "
    "and its tail; or all of it in windows, whose logits are averaged.",
  )


def _define_task_flags():
  flags.DEFINE_list(
    "task_name",
    None,
    f"One of {', '.join(PROCESSORS)}; {CUSTOM} for files of your own; several, "
    f"separated by commas, or all for GLUE, to run them in turn.",
  )
  flags.DEFINE_string(
    "data_dir",
    None,
    "Folder with the task's files; of several tasks, the folder of these.",
  )
  flags.DEFINE_string(
    "xnli_language", "zh", "Language to train on and evaluate in XNLI."
  )
  flags.DEFINE_integer(
    "num_seeds",
    1,
    "Repeat with this many seeds, from --seed on, and report the mean.",
    lower_bound=1,
  )
  flags.DEFINE_string(
    "predict_file",
    None,
    "Answer the lines of this file, or of standard input if -, by the trained "
    "model in --output_dir, on standard output.",
  )
  flags.DEFINE_bool(
    "interactive",
    False,
    "Ask for texts and answer them by the trained model in --output_dir.",
  )


def _define_custom_flags():
  for name, use in (
    ("train_file", "to train on"),
    ("dev_file", "to evaluate on; default: a share of --train_file"),
    ("test_file", "to predict"),
  ):
    flags.DEFINE_string(
      name,
      None,
      f"Rows {use}, for --task_name={CUSTOM}: .tsv, .csv or .jsonl, or one of "
      f"these with .gz.",
    )
  flags.DEFINE_string("text_a_column", "text", "Column of the text.")
  flags.DEFINE_string("text_b_column", None, "Column of a second text.")
  flags.DEFINE_string("label_column", "label", "Column of the label.")
  flags.DEFINE_string(
    "id_column", None, "Column of the rows' names; default: their number."
  )
  flags.DEFINE_bool(
    "header",
    True,
    "Whether the first line names the columns; without it they are numbered "
    "from 0.",
  )
  flags.DEFINE_float(
    "dev_fraction",
    0.1,
    "Share of --train_file to evaluate on if there is no --dev_file.",
  )
  flags.DEFINE_bool("regression", False, "Labels are numbers to predict.")
  flags.DEFINE_bool(
    "multilabel", False, "A row may have several labels, separated by |."
  )


def check_flags() -> None:
  """Checks the flags that stand for themselves.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("task_name", "output_dir")
  common_flags.check_fine_tuning_flags()
  if FLAGS.regression and FLAGS.multilabel:
    raise UserError(
      "--regression and --multilabel exclude each other; pass one"
    )
  if FLAGS.seed + FLAGS.num_seeds > 2**31:
    raise UserError(
      f"--num_seeds={FLAGS.num_seeds} from --seed={FLAGS.seed} on go beyond "
      f"{2**31 - 1}; lower --seed"
    )
  if FLAGS.long_text == "mean_windows" and FLAGS.max_seq_length < 5:
    raise UserError(
      f"--max_seq_length={FLAGS.max_seq_length} leaves no room for "
      f"--long_text=mean_windows; pass 5 or more"
    )
  if not wanted_sets():
    raise UserError(
      "nothing to do; pass --do_train, --do_eval or --do_predict, or, with a "
      "trained model, --predict_file or --interactive"
    )


def wanted_sets() -> list[str]:
  """The types of the sets that the flags need."""
  evaluates = FLAGS.do_eval or (
    FLAGS.do_train and common_flags.evaluates_in_training()
  )
  wanted = {"train": FLAGS.do_train, "dev": evaluates, "test": FLAGS.do_predict}
  return [set_type for set_type, is_wanted in wanted.items() if is_wanted]


def plan_runs() -> list[runs.Run]:
  """What the flags ask to be run, in order.

  Several tasks have folders of their own in --data_dir and --output_dir, and
  so have several seeds.

  Raises:
    ValueError: a task is unknown, or a flag does not suit it.
  """
  names = FLAGS.task_name
  names = glue.GLUE_TASKS if [n.lower() for n in names] == ["all"] else names
  known = {**PROCESSORS, CUSTOM: tabular.TableProcessor}
  # One that is named twice is run once.
  tasks = list(dict.fromkeys(glue.find_task(name, known) for name in names))
  if CUSTOM in tasks:
    if len(tasks) > 1:
      raise UserError(
        f"--task_name={CUSTOM} cannot be run with other tasks; run it alone"
      )
  else:
    for name in _CUSTOM_FLAGS:
      if not FLAGS[name].using_default_value:
        raise UserError(
          f"--{name} is for --task_name={CUSTOM} alone; leave it out"
        )
    common_flags.require("data_dir")
  return runs.plan(
    tasks,
    range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds),
    wanted_sets(),
    FLAGS.data_dir,
    FLAGS.output_dir,
    FLAGS.init_checkpoint,
  )


def make_processor(run: runs.Run, trained: tuple) -> DataProcessor:
  """The processor of a Run's task.

  Args:
    run: a Run.
    trained: head or None, and settings, of the model that is there already.
  """
  if run.task != CUSTOM:
    maker = PROCESSORS[run.task]
    return maker(FLAGS.xnli_language) if maker is XnliProcessor else maker()
  kind = "multilabel" if FLAGS.multilabel else "classification"
  head, settings = trained
  if head and not FLAGS.do_train:
    kind = settings["kind"]
  return tabular.TableProcessor(
    **{name: FLAGS[name].value for name in _TABLE_FLAGS},
    kind="regression" if FLAGS.regression else kind,
    split_seed=FLAGS.seed,  # Not the run's: all seeds share one split.
    labels=head.labels if head and not FLAGS.do_train else None,
    data_dir=run.data_dir,
  )


def prepare(run: runs.Run) -> fine_tuning.Job:
  """The Job of a Run; nothing is written yet.

  Raises:
    ValueError: a flag or a file is wrong.
  """
  tokenizer = common_flags.load_tokenizer()
  bert_config = common_flags.load_config(tokenizer)
  folder = model_folder.weights_folder(run.output_dir, run.init_checkpoint)
  trained = classification.read_release(folder) if folder else (None, {})
  processor = make_processor(run, trained)
  task = getattr(processor, "task", None)
  kind = getattr(task, "kind", getattr(processor, "kind", "classification"))
  head = make_head(kind, processor, trained[0], run)
  shapes = classification.head_shapes(bert_config, head.num_outputs)
  has_head = experiment.check_init_checkpoint(
    bert_config, shapes, run.init_checkpoint
  )
  is_trained = experiment.check_output_dir(bert_config, shapes, run.output_dir)
  if not ("train" in run.sets or has_head or is_trained):
    raise UserError(
      f"no classifier of {head.num_outputs} labels in "
      f"--output_dir={run.output_dir} or "
      f"--init_checkpoint={run.init_checkpoint}; add --do_train"
    )
  if trained[0] and (is_trained or "train" not in run.sets):
    check_labels(head, trained[0], folder)
  names = metric_names(task, processor, head)
  example_sets = read_examples(processor, head, run)
  settings = reading_settings(run, trained[1], example_sets)
  return fine_tuning.Job(
    run,
    task,
    tokenizer,
    bert_config,
    head,
    names,
    example_sets,
    count_train_steps(example_sets, settings),
    label_weights(head, example_sets),
    make_keeper(run, names),
    common_flags.release_files(bert_config),
    is_trained,
    settings,
    FLAGS.eval_batch_size,
    FLAGS.predict_batch_size,
  )


def make_head(
  kind: str,
  processor: DataProcessor,
  trained: label_types.Head | None,
  run: runs.Run,
) -> label_types.Head:
  """The head of a task; of numbers of the user's own, by their own scale."""
  is_custom = isinstance(processor, tabular.TableProcessor)
  if not (is_custom and kind == label_types.Regression.kind):
    return label_types.make_head(kind, processor.get_labels())
  if trained and "train" not in run.sets:
    return trained
  rows = processor.get_train_examples(run.data_dir)
  numbers = [float(example.label) for example in rows]
  # Equal numbers have no scale of their own.
  return label_types.Regression(
    np.mean(numbers).item(), np.std(numbers).item() or 1.0
  )


def reading_settings(
  run: runs.Run, trained: Mapping, example_sets: Mapping
) -> dict:
  """How texts are read: as the flags say, or else as the trained model does."""
  settings = {
    "max_seq_length": FLAGS.max_seq_length,
    "long_text": FLAGS.long_text,
    "is_pair": trained.get("is_pair", False),
  }
  if "train" in run.sets:
    examples = example_sets["train"][""]
    settings["is_pair"] = any(e.text_b is not None for e in examples[:1])
    return settings
  for name in ("max_seq_length", "long_text"):
    if FLAGS[name].using_default_value and name in trained:
      settings[name] = trained[name]
  return settings


def check_labels(
  head: label_types.Head, trained: label_types.Head, folder: str
) -> None:
  """Raises ValueError if the model in `folder` was trained on other labels."""
  if (head.kind, list(head.labels)) == (trained.kind, list(trained.labels)):
    return
  raise UserError(
    f"{os.path.join(folder, classification.LABELS_NAME)} has the labels "
    f"{', '.join(map(str, trained.labels))} ({trained.kind}), and "
    f"--task_name={','.join(FLAGS.task_name)} has "
    f"{', '.join(map(str, head.labels))} ({head.kind}); pass the task that "
    f"the model was trained on, or another --output_dir"
  )


def metric_names(
  task: glue.Task | None, processor: DataProcessor, head: label_types.Head
) -> list[str]:
  """The metrics of a task: accuracy, where there is one, and its paper's.

  Raises:
    ValueError: --keep_best names none of them.
  """
  names = [*head.default_metrics, *getattr(task, "metrics", ())]
  if isinstance(processor, tabular.TableProcessor) and "f1_macro" not in names:
    names += ["f1_macro"] if head.labels else []
  names = list(dict.fromkeys(names))
  wanted = (FLAGS.keep_best or names[0]).removeprefix("eval_")
  if wanted not in [*names, "loss"]:
    raise UserError(
      f"--keep_best={FLAGS.keep_best} is none of {', '.join(names)}, loss"
    )
  return names


def make_keeper(
  run: runs.Run, names: Sequence[str]
) -> best_checkpoint.BestCheckpoint | None:
  """What keeps the best weights of a Run's training, if a flag asks for it.

  Args:
    run: a Run.
    names: the task's metrics.

  Raises:
    ValueError: the output folder's history is by another metric, or damaged.
  """
  is_wanted = FLAGS.keep_best or FLAGS.early_stopping_patience
  if not (is_wanted and "train" in run.sets):
    return None
  return best_checkpoint.BestCheckpoint(
    run.output_dir, FLAGS.keep_best or names[0], FLAGS.early_stopping_patience
  )


def read_examples(
  processor: DataProcessor, head: label_types.Head, run: runs.Run
) -> dict:
  """The examples of the sets that are needed; what is odd in them is logged.

  Returns:
    Dict from set type to a dict from the suffix of result files to examples.

  Raises:
    ValueError: a file is wrong, or a label unknown.
  """
  example_sets = {}
  for set_type in run.sets:
    sets = processor.get_example_sets(run.data_dir, set_type)
    if set_type == "test":
      sets = {suffix: list(map(unlabelled, sets[suffix])) for suffix in sets}
    else:
      for example in itertools.chain(*sets.values()):
        label_id(example, head)
    example_sets[set_type] = sets
  train = example_sets.get("train", {}).get("", ())
  if train and head.labels:
    tabular.log_labels_seen_once(train, head.kind)
  if train and "dev" in example_sets:
    for examples in example_sets["dev"].values():
      tabular.log_duplicates(train, examples)
  return example_sets


def label_weights(
  head: label_types.Head, example_sets: Mapping[str, Mapping]
) -> list[float] | None:
  """The weights of labels in training, if --class_weights asks for them."""
  if FLAGS.class_weights == "none" or "train" not in example_sets:
    return None
  if not head.labels:
    raise UserError("--class_weights=balanced needs labels, not numbers")
  weights = head.balanced_weights(
    np.array([label_id(e, head) for e in example_sets["train"][""]])
  )
  shown = zip(head.labels, weights, strict=True)
  logging.info("Weights: %s", ", ".join(f"{n} {w:.3g}" for n, w in shown))
  return weights


def count_train_steps(
  example_sets: Mapping[str, Mapping], settings: Mapping, rows: int = 0
) -> int:
  """Number of updates that --num_train_epochs takes; 0 without training.

  Args:
    example_sets: as `read_examples` returns them.
    settings: as `reading_settings` returns them.
    rows: rows of the training set, once they are known; the examples'
      windows are not counted before.

  Raises:
    ValueError: it is none.
  """
  if "train" not in example_sets:
    return 0
  rows = rows or len(example_sets["train"][""])
  if not rows:
    raise UserError(
      f"--task_name={','.join(FLAGS.task_name)} has no example to train on"
    )
  steps = int(rows / FLAGS.train_batch_size * FLAGS.num_train_epochs)
  if steps < 1 and settings["long_text"] != "mean_windows":
    raise UserError(
      f"--num_train_epochs={FLAGS.num_train_epochs} over {rows} rows fill no "
      f"batch of --train_batch_size={FLAGS.train_batch_size}; raise the one "
      f"or lower the other"
    )
  return max(steps, 1)


def build_estimator(job: fine_tuning.Job) -> estimator.Estimator:
  """The Estimator of a Job."""
  config = experiment.run_config(job.run.output_dir, job.run.seed)
  model_fn = model_fn_builder(
    job.bert_config,
    job.head.num_outputs,
    job.run.init_checkpoint,
    FLAGS.learning_rate,
    job.num_train_steps,
    int(job.num_train_steps * FLAGS.warmup_proportion),
    FLAGS.use_tpu,
    FLAGS.use_tpu,
    job.head,
    job.metric_names,
    job.label_weights,
    FLAGS.precision,
  )
  return estimator.Estimator(model_fn, config)


def train(
  job: fine_tuning.Job,
  model: estimator.Estimator,
  development: Sequence[fine_tuning.DevelopmentSet],
) -> None:
  """Trains, and makes `output_dir` a release of its own."""
  for name, content in classification.release_files(
    job.head, job.settings
  ).items():
    # First of all, since only these tell which label each output stands for.
    files.write_file(os.path.join(job.run.output_dir, name), content)
  evaluate_at, eval_steps = None, 0
  if common_flags.evaluates_in_training():
    epoch = math.ceil(job.num_train_steps / FLAGS.num_train_epochs)
    eval_steps = FLAGS.eval_steps or epoch
    evaluate_at = functools.partial(
      fine_tuning.evaluate_in_training, job, model, development
    )
  best_checkpoint.train(
    model,
    job.train_input_fn,
    FLAGS.train_batch_size,
    job.num_train_steps,
    evaluate_at,
    eval_steps,
    job.keeper,
    job.release_files,
  )


def perform(run: runs.Run) -> dict[str, float]:
  """Does what the flags ask for with one model; returns its metrics."""
  job = prepare(run)
  tf.io.gfile.makedirs(run.output_dir)
  record = run_record.keep_record(
    run.output_dir, make_record(job), "train" in run.sets, job.is_trained
  )
  prepare_training(job)
  development = fine_tuning.development_sets(job)
  model = build_estimator(job)
  if "train" in run.sets:
    train(job, model, development)
  elif job.is_trained and checkpoints.best_checkpoint(run.output_dir):
    model.use(checkpoints.best_checkpoint(run.output_dir))
  results, evaluations = {}, []
  for dev in development if FLAGS.do_eval else ():
    evaluations.append(fine_tuning.evaluate(job, model, dev))
    classification_report.write_results(
      run.output_dir, dev.suffix, evaluations[-1]
    )
    for name, value in evaluations[-1].results.items():
      results[name + dev.suffix] = value
  if evaluations or "train" in run.sets:
    fine_tuning.write_report(job, evaluations, record)
  if FLAGS.do_predict:
    fine_tuning.predict(job, model)
  return results


def make_record(job: fine_tuning.Job) -> dict[str, dict]:
  """What `flags.json` is to say of a Job."""
  run = job.run
  own = {
    "task_name": run.task,
    "data_dir": run.data_dir,
    "output_dir": run.output_dir,
    "init_checkpoint": run.init_checkpoint,
    "seed": run.seed,
  }
  hashes = {
    set_type + suffix: content_hash(examples)
    for set_type, sets in job.example_sets.items()
    for suffix, examples in sets.items()
  }
  return run_record.make_record({**common_flags.flag_values(), **own}, hashes)


def prepare_training(job: fine_tuning.Job) -> None:
  """Writes the features to train on, if any, and counts the updates."""
  if "train" not in job.run.sets:
    return
  examples = job.example_sets["train"][""]
  job.train_input_fn, rows, _ = fine_tuning.write_features(
    job, examples, "train"
  )
  job.num_train_steps = count_train_steps(job.example_sets, job.settings, rows)


def answer() -> None:
  """Answers --predict_file or --interactive by the model in --output_dir."""
  common_flags.require("output_dir")
  common_flags.require_positive("predict_batch_size")
  given = ("predict_file", "interactive", "do_train", "do_eval", "do_predict")
  first, *others = [name for name in given if FLAGS[name].value]
  if others:
    raise UserError(
      f"--{first} and --{others[0]} exclude each other; give two commands"
    )
  path = FLAGS.predict_file
  if path and path != "-":
    common_flags.require_file("predict_file")
    if path.endswith((".csv", ".json", ".jsonl", ".gz")):
      raise UserError(
        f"--predict_file={path} would be read as lines of text; pass a table "
        f"as --test_file, with --task_name={CUSTOM} and --do_predict"
      )
  model = Classifier(
    FLAGS.output_dir, FLAGS.predict_batch_size, FLAGS.precision
  )
  if FLAGS.interactive:
    answers.converse(model)
  elif path == "-":
    if sys.stdin is None:
      raise UserError("--predict_file=-: standard input is closed")
    answers.answer_lines(model, sys.stdin.buffer, sys.stdout, "standard input")
  else:
    with tf.io.gfile.GFile(path, "rb") as reader:
      answers.answer_lines(model, reader, sys.stdout, path)


def main() -> None:
  if FLAGS.predict_file or FLAGS.interactive:
    answer()
    return
  check_flags()
  experiment.check_devices()
  planned = plan_runs()
  # What is wrong with the last task is said before the first is trained.
  of_one_seed = planned[: len(planned) // FLAGS.num_seeds]
  for run in of_one_seed if len(planned) > 1 else ():
    if FLAGS.do_train and "train" not in run.sets:
      # Its model is yet to be trained.
      read_examples(make_processor(run, (None, {})), None, run)
    else:
      prepare(run)
  results = [perform(run) for run in planned]
  if len(planned) > 1 and FLAGS.do_eval:
    print(runs.write_results(FLAGS.output_dir, planned, results))


if __name__ == "__main__":
  startup.run(main, define_flags)
