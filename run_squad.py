"""Fine-tunes BERT on SQuAD 1.1 or 2.0, and answers its questions.

    python run_squad.py --do_train=True --do_predict=True \\
      --train_file=$SQUAD_DIR/train-v1.1.json \\
      --predict_file=$SQUAD_DIR/dev-v1.1.json \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2.0 \\
      --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_base/

For SQuAD 2.0, add --version_2_with_negative=True.

Training pads every batch to --max_seq_length, as in the original, whose loss
depends on it; --pad_to_max_length=False cuts batches to their longest row,
which is faster, and leaves padding out of the loss.
"""

import quiet_start  # noqa: F401  Before TensorFlow.
from training import common_flags
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from absl import flags, logging

import modeling
import tokenization
from errors import UserError, plural
from pipeline import files
from reports import squad as squad_report
from tasks import (
  squad,
  squad_decoding,
  squad_model,
  squad_reader,
  squad_records,
  squad_results,
)
from tasks.squad import (
  InputFeatures,
  SquadExample,
  convert_examples_to_features,
  read_squad_examples,
)
from tasks.squad_decoding import RawResult, get_final_text, write_predictions
from tasks.squad_model import ReadingSettings, create_model, model_fn_builder
from tasks.squad_reader import Reader
from tasks.squad_records import FeatureWriter
from tasks.squad_results import Answered
from training import (
  best_checkpoint,
  checkpoints,
  estimator,
  inputs,
  model_folder,
  run_record,
)
from training import experiment
from training import startup

# Code written for the original finds these here, and Reader.
__all__ = [
  "FeatureWriter",
  "InputFeatures",
  "RawResult",
  "Reader",
  "SquadExample",
  "convert_examples_to_features",
  "create_model",
  "get_final_text",
  "model_fn_builder",
  "read_squad_examples",
  "write_predictions",
]

FLAGS = flags.FLAGS

# The threshold that is to be found, and not given.
_AUTO = "auto"

# Answers that --interactive shows of a question.
_SHOWN = 5


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(
    ReadingSettings.max_seq_length, "is read in windows"
  )
  common_flags.define_run_flags()
  common_flags.define_fine_tuning_flags("f1 or exact_match", "f1")
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  flags.DEFINE_string(
    "train_file", None, "Questions to train on: JSON as SQuAD has it, or .gz."
  )
  flags.DEFINE_string(
    "predict_file", None, "Questions to answer, and to evaluate on."
  )
  flags.DEFINE_bool(
    "interactive", False, "Ask for texts and questions, and answer these."
  )
  _define_reading_flags()
  _define_answer_flags()


def _define_reading_flags():
  flags.DEFINE_integer(
    "doc_stride",
    ReadingSettings.doc_stride,
    "By how many word pieces a window of a long text lies behind the last.",
  )
  flags.DEFINE_integer(
    "max_query_length",
    ReadingSettings.max_query_length,
    "Word pieces that longer questions are cut to.",
  )
  flags.DEFINE_bool(
    "version_2_with_negative",
    False,
    "Whether questions may have no answer, as in SQuAD 2.0.",
  )
  flags.DEFINE_bool(
    "count_steps_on_windows",
    False,
    "Count --num_train_epochs on windows of texts, and not on questions.",
  )


def _define_answer_flags():
  flags.DEFINE_integer(
    "n_best_size", 20, "Answers to list of a question.", lower_bound=1
  )
  flags.DEFINE_integer(
    "max_answer_length", 30, "Most word pieces of an answer.", lower_bound=1
  )
  flags.DEFINE_string(
    "null_score_diff_threshold",
    "0.0",
    "In SQuAD 2.0, answer nothing where the odds of no answer are larger; "
    f"{_AUTO}: where the F1 of --predict_file is best, or, if it has no "
    "answers, where that of an earlier one was.",
  )
  flags.DEFINE_bool(
    "exact_answer_text",
    False,
    "Give answers as they stand in the text, character by character, and not "
    "by the original's alignment of words.",
  )
  flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Accepted for old commands; has no effect any more. --v=1 logs more.",
  )


@dataclasses.dataclass
class Questions:
  """The questions of a file, and where their windows are kept."""

  path: str
  examples: Sequence[SquadExample]
  is_training: bool
  windows: int = 0  # Once they are written.

  @property
  def records(self) -> str:
    """Path of the file of windows."""
    name = "train" if self.is_training else "eval"
    return os.path.join(FLAGS.output_dir, f"{name}.tf_record")


@dataclasses.dataclass
class Job:
  """What the flags ask for, checked and read."""

  tokenizer: tokenization.FullTokenizer
  bert_config: modeling.BertConfig
  settings: ReadingSettings
  questions: dict[str, Questions]  # "train" and "dev", or one of them.
  threshold: float | None  # None: to be found.
  is_trained: bool  # Whether the output folder holds a checkpoint.
  keeper: best_checkpoint.BestCheckpoint | None
  release_files: dict

  @property
  def task_name(self) -> str:
    """SQuAD 1.1 or 2.0."""
    return f"SQuAD {2.0 if self.settings.version_2_with_negative else 1.1}"


def check_flags() -> None:
  """Checks the flags that stand for themselves.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("output_dir")
  common_flags.check_fine_tuning_flags()
  if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
    raise UserError(
      "nothing to do; pass --do_train, --do_predict or --do_eval, or, with a "
      "trained model, --interactive"
    )
  given_threshold()
  wanted = wanted_files()
  answers = FLAGS.do_predict or FLAGS.do_eval or FLAGS.predict_file
  if "predict_file" in wanted and not answers:
    raise UserError(
      "--predict_file is missing; --eval_steps, --keep_best and "
      "--early_stopping_patience evaluate on it"
    )
  for name in wanted:
    common_flags.require(name)
    common_flags.require_file(name)


def wanted_files() -> dict[str, str]:
  """The flags whose files are read, and what their questions are for."""
  answers = FLAGS.do_predict or FLAGS.do_eval
  answers = answers or (FLAGS.do_train and common_flags.evaluates_in_training())
  wanted = {"train_file": FLAGS.do_train, "predict_file": answers}
  sets = {"train_file": "train", "predict_file": "dev"}
  return {name: sets[name] for name, is_wanted in wanted.items() if is_wanted}


def given_threshold() -> float | None:
  """--null_score_diff_threshold as a number; None if it is to be found.

  Raises:
    ValueError: it is neither.
  """
  given = FLAGS.null_score_diff_threshold
  if given == _AUTO:
    return None
  with contextlib.suppress(ValueError):
    if math.isfinite(float(given)):
      return float(given)
  raise UserError(
    f"--null_score_diff_threshold={given} is no finite number; pass one, or "
    f"{_AUTO}"
  )


def prepare() -> Job:
  """The Job of the flags; nothing is written yet.

  Raises:
    ValueError: a flag or a file is wrong.
  """
  if not FLAGS.do_train:
    FLAGS.init_checkpoint = model_folder.initial_weights(
      FLAGS.output_dir, FLAGS.init_checkpoint
    )
  tokenizer = common_flags.load_tokenizer()
  folder = model_folder.weights_folder(FLAGS.output_dir, FLAGS.init_checkpoint)
  settings = reading_settings(folder)
  settings.check()
  for name, value in dataclasses.asdict(settings).items():
    FLAGS[name].value = value  # For the record.
  bert_config = common_flags.load_config(tokenizer)
  shapes = squad_model.head_shapes(bert_config)
  has_head = experiment.check_init_checkpoint(
    bert_config, shapes, FLAGS.init_checkpoint
  )
  is_trained = experiment.check_output_dir(
    bert_config, shapes, FLAGS.output_dir
  )
  if not (FLAGS.do_train or has_head or is_trained):
    raise UserError(
      f"no model that answers questions in --output_dir={FLAGS.output_dir} or "
      f"--init_checkpoint={FLAGS.init_checkpoint}; add --do_train"
    )
  keeper = make_keeper(settings)
  questions = read_questions(settings)
  if "train" in questions:
    check_train_steps(questions["train"])
  return Job(
    tokenizer,
    bert_config,
    settings,
    questions,
    wanted_threshold(settings, questions, folder),
    is_trained,
    keeper,
    common_flags.release_files(bert_config),
  )


def reading_settings(folder: str | None) -> ReadingSettings:
  """How to read: as the flags say, or else as the trained model does.

  Args:
    folder: that the weights come from.
  """
  names = [field.name for field in dataclasses.fields(ReadingSettings)]
  given = {name: FLAGS[name].value for name in names}
  trained = None
  if folder and not FLAGS.do_train:
    trained = squad_model.read_settings(folder)
  for name in names if trained else ():
    if FLAGS[name].using_default_value:
      given[name] = getattr(trained, name)
  return ReadingSettings(**given)


def read_questions(settings: ReadingSettings) -> dict[str, Questions]:
  """The questions that the flags ask for; what is odd in them is logged.

  Args:
    settings: how they are read.

  Raises:
    ValueError: a file is wrong, or has no answers where they are needed.
  """
  sets = {}
  for flag, name in wanted_files().items():
    path = FLAGS[flag].value
    is_training = name == "train"
    examples = read_squad_examples(
      path, is_training, settings.version_2_with_negative
    )
    sets[name] = Questions(path, examples, is_training)
  needed = FLAGS.do_eval or (
    FLAGS.do_train and common_flags.evaluates_in_training()
  )
  if needed and not is_scored(sets["dev"], settings):
    lacking = next(e for e in sets["dev"].examples if not e.answers)
    raise UserError(
      f"--predict_file={FLAGS.predict_file} has no answer to question "
      f"{lacking.qas_id} to evaluate by; pass a file with answers, or "
      f"--do_predict alone"
    )
  return sets


def is_scored(questions: Questions, settings: ReadingSettings) -> bool:
  """Whether the answers to a file's questions are known."""
  return squad_results.has_answers(
    questions.examples, settings.version_2_with_negative
  )


def make_keeper(
  settings: ReadingSettings,
) -> best_checkpoint.BestCheckpoint | None:
  """What keeps the best weights of the training, if a flag asks for it.

  Args:
    settings: how questions are read.

  Raises:
    ValueError: --keep_best names no score, or the output folder's history is
      by another, or damaged.
  """
  wanted = FLAGS.keep_best or ("f1" if FLAGS.early_stopping_patience else None)
  if not (wanted and FLAGS.do_train):
    return None
  is_v2 = settings.version_2_with_negative
  names = ["f1", "exact", "best_f1", "best_exact"] if is_v2 else []
  names = names or ["f1", "exact_match"]
  if wanted not in names:
    raise UserError(f"--keep_best={wanted} is none of {', '.join(names)}")
  return best_checkpoint.BestCheckpoint(
    FLAGS.output_dir, wanted, FLAGS.early_stopping_patience
  )


def wanted_threshold(
  settings: ReadingSettings,
  questions: Mapping[str, Questions],
  folder: str | None,
) -> float | None:
  """The null_score_diff_threshold, or None to find it.

  Args:
    settings: how questions are read.
    questions: as `read_questions` returns them.
    folder: that the weights come from.

  Raises:
    ValueError: the flag does not suit the others, or a threshold is to be found
      where there are no answers, and none was before.
  """
  flag = FLAGS["null_score_diff_threshold"]
  if not settings.version_2_with_negative:
    if given_threshold() != 0:
      raise UserError(
        f"--{flag.name} is for --version_2_with_negative alone; leave it out"
      )
    return 0.0
  if flag.value != _AUTO:
    return given_threshold()
  if "dev" not in questions or is_scored(questions["dev"], settings):
    return None
  return squad_model.read_threshold(*threshold_folders(folder))


def threshold_folders(folder: str | None) -> list[str]:
  """Where a threshold may be stored: beside the answers, or by the weights.

  Args:
    folder: that the weights come from, or None.
  """
  return [path for path in (FLAGS.output_dir, folder) if path]


def count_train_steps(train: Questions, on_windows: bool | None = None) -> int:
  """Number of updates that --num_train_epochs takes.

  Args:
    train: the questions to train on.
    on_windows: whether windows count; as --count_steps_on_windows says if None.
  """
  if on_windows is None:
    on_windows = FLAGS.count_steps_on_windows
  rows = train.windows if on_windows else len(train.examples)
  return int(rows / FLAGS.train_batch_size * FLAGS.num_train_epochs)


def check_train_steps(train: Questions) -> None:
  """Raises ValueError if what steps are counted on fills no batch.

  Windows count for enough until they are written.
  """
  rows = plural(len(train.examples), "question")
  if FLAGS.count_steps_on_windows:
    if not train.windows:
      return
    rows = plural(train.windows, "window")
  if not count_train_steps(train):
    raise UserError(
      f"--num_train_epochs={FLAGS.num_train_epochs} over {rows} fill no batch "
      f"of --train_batch_size={FLAGS.train_batch_size}; raise the one or lower "
      f"the other"
    )


def make_record(job: Job) -> dict[str, dict]:
  """What `flags.json` is to say of a Job."""
  hashes = {}
  for name, questions in job.questions.items():
    with tf.io.gfile.GFile(questions.path, "rb") as reader:
      hashes[name] = hashlib.sha256(reader.read()).hexdigest()
  return run_record.make_record(
    {**common_flags.flag_values(), "task_name": job.task_name}, hashes
  )


def write_windows(job: Job, questions: Questions) -> None:
  """Writes a set's windows to output_dir, unless they are there already."""
  key = squad_records.cache_key(
    questions.path,
    FLAGS.spm_model_file or FLAGS.vocab_file,
    do_lower_case=FLAGS.do_lower_case,
    is_training=questions.is_training,
    **dataclasses.asdict(job.settings),
  )
  features = job.settings.features(
    questions.examples, job.tokenizer, questions.is_training
  )
  questions.windows, is_reused = squad_records.write_features(
    questions.records, key, features, questions.is_training
  )
  logging.info(
    "%s: %s of %s%s",
    questions.records,
    plural(questions.windows, "window"),
    plural(len(questions.examples), "question"),
    ", there already" if is_reused else "",
  )


def input_fn(job: Job, questions: Questions) -> Callable:
  """The `input_fn` over a set's windows."""
  is_training = questions.is_training
  spec = squad_records.feature_spec(job.settings.max_seq_length, is_training)
  read = inputs.input_fn_from_file(questions.records, spec, is_training)
  if not is_training:
    return read
  return lambda p: read({**p, "pad_to_max_length": trains_on_padding()})


def trains_on_padding() -> bool:
  """Whether training is the original's, padding and all.

  There the softmax over positions includes padding, whose logits tell on the
  loss. Without it a batch may be cut to its longest row.
  """
  return FLAGS.pad_to_max_length is not False


def build_estimator(job: Job) -> estimator.Estimator:
  """The Estimator of a Job."""
  steps = count_train_steps(job.questions["train"]) if FLAGS.do_train else None
  model_fn = model_fn_builder(
    job.bert_config,
    FLAGS.init_checkpoint,
    FLAGS.learning_rate,
    steps,
    steps and int(steps * FLAGS.warmup_proportion),
    FLAGS.use_tpu,
    FLAGS.use_tpu,
    FLAGS.precision,
    trains_on_padding(),
  )
  config = experiment.run_config(FLAGS.output_dir, FLAGS.seed)
  return estimator.Estimator(model_fn, config)


def train(job: Job, model: estimator.Estimator) -> None:
  """Trains, and makes `output_dir` a release of its own."""
  for name, content in job.settings.release_files().items():
    # First of all, since only these tell how the model reads.
    files.write_file(os.path.join(FLAGS.output_dir, name), content)
  questions = job.questions["train"]
  steps = count_train_steps(questions)
  logging.info(
    "Training %s: %g epochs are %d on %s, and %d on their %s",
    plural(steps, "update"),
    FLAGS.num_train_epochs,
    count_train_steps(questions, False),
    plural(len(questions.examples), "question"),
    count_train_steps(questions, True),
    plural(questions.windows, "window"),
  )
  evaluate_at, eval_steps = None, 0
  if common_flags.evaluates_in_training():
    evaluate_at = functools.partial(evaluate_in_training, job, model)
    epoch = math.ceil(steps / FLAGS.num_train_epochs)
    eval_steps = FLAGS.eval_steps or epoch
  best_checkpoint.train(
    model,
    input_fn(job, questions),
    FLAGS.train_batch_size,
    steps,
    evaluate_at,
    eval_steps,
    job.keeper,
    job.release_files,
  )


def evaluate_in_training(
  job: Job, model: estimator.Estimator, step: int
) -> str | None:
  """Evaluates after `step` updates; returns the reason to stop, if any."""
  keeper = job.keeper
  if keeper and keeper.has_evaluated(step):
    return keeper.stop_reason
  answered = answer_questions(job, model, FLAGS.eval_batch_size)
  predictions = predictions_of(answered, chosen_threshold(job, answered))
  results = squad_results.evaluate(answered, predictions)
  model.write_scalars("dev", {**results, "global_step": step})
  names = ("exact_match", "exact", "f1")
  shown = [f"{name} {results[name]:.2f}" for name in names if name in results]
  logging.info("step %d, development set: %s", step, ", ".join(shown))
  return keeper.add(step, results, model.weights) if keeper else None


def answer_questions(
  job: Job,
  model: estimator.Estimator,
  batch_size: int,
  write: Callable[[str, squad_decoding.Answer], object] | None = None,
) -> list[Answered]:
  """What the model says of each question of --predict_file.

  Args:
    job: a Job.
    model: its Estimator.
    batch_size: windows at a time.
    write: as `squad_results.answer_questions` takes it.
  """
  questions = job.questions["dev"]
  rows = model.predict(input_fn(job, questions), batch_size)
  # The windows are made once more, since their records hold no words.
  features = job.settings.features(questions.examples, job.tokenizer, False)
  exact_text = functools.partial(squad.exact_text, tokenizer=job.tokenizer)
  settings = squad_decoding.DecodingSettings(
    FLAGS.n_best_size,
    FLAGS.max_answer_length,
    FLAGS.do_lower_case,
    job.settings.version_2_with_negative,
    exact_text=exact_text if FLAGS.exact_answer_text else None,
  )
  return list(
    squad_results.answer_questions(
      questions.examples,
      features,
      (RawResult(**row) for row in rows),
      settings,
      write,
    )
  )


def chosen_threshold(job: Job, answered: Sequence[Answered]) -> float:
  """The null_score_diff_threshold, which may have to be found."""
  if job.threshold is None:
    return squad_results.best_threshold(answered)
  return job.threshold


def predictions_of(
  answered: Sequence[Answered], threshold: float
) -> dict[str, str]:
  """The answers by the questions' ids."""
  return {a.example.qas_id: a.prediction(threshold) for a in answered}


def predict(job: Job, model: estimator.Estimator) -> None:
  """Writes the answers to --predict_file, and, if it can be, their scores."""
  is_v2 = job.settings.version_2_with_negative
  with squad_decoding.answer_writer(
    None,
    in_output("nbest_predictions"),
    in_output("null_odds") if is_v2 else None,
  ) as write:
    answered = answer_questions(job, model, FLAGS.predict_batch_size, write)
  threshold = chosen_threshold(job, answered)
  path = in_output("predictions")
  with squad_decoding.answer_writer(path, None) as write:
    for a in answered:
      write(a.example.qas_id, a.answer._replace(text=a.prediction(threshold)))
  logging.info("%s: %s", path, plural(len(answered), "answer"))
  if is_scored(job.questions["dev"], job.settings):
    results = evaluate(job, model, answered)
    write_page(job, answered, results)
    return
  unknown = [e for e in job.questions["dev"].examples if not e.answers]
  logging.info(
    "%s: not scored, since %d of %s have no answer there; the first is %s",
    FLAGS.predict_file,
    len(unknown),
    plural(len(answered), "question"),
    unknown[0].qas_id,
  )
  scores = os.path.join(FLAGS.output_dir, "eval_results.json")
  if tf.io.gfile.exists(scores):
    logging.warning(
      "%s and answer.html beside it are of answers given earlier", scores
    )


def in_output(name: str) -> str:
  """Path of a JSON file in output_dir."""
  return os.path.join(FLAGS.output_dir, f"{name}.json")


def evaluate(
  job: Job, model: estimator.Estimator, answered: Sequence[Answered]
) -> dict[str, float]:
  """Writes and returns scores, and thresholds, of answers."""
  threshold = chosen_threshold(job, answered)
  results = squad_results.evaluate(
    answered, predictions_of(answered, threshold)
  )
  thresholds = {}
  if job.settings.version_2_with_negative:
    found = squad_results.best_threshold(answered)
    squad_model.write_threshold(FLAGS.output_dir, found)
    thresholds["null_score_diff_threshold"] = threshold
    thresholds["best_null_score_diff_threshold"] = found
    logging.info(
      "null_score_diff_threshold: %g; the F1 is best at %g", threshold, found
    )
  run_record.write_results(
    os.path.join(FLAGS.output_dir, "eval_results"),
    {**results, "global_step": model.global_step},
    {"predict_file": FLAGS.predict_file, **thresholds},
  )
  return {**results, **thresholds}


def write_page(
  job: Job, answered: Sequence[Answered], results: Mapping[str, float]
) -> None:
  """Writes `answer.html`."""
  predictions = predictions_of(answered, chosen_threshold(job, answered))
  name = os.path.basename(os.path.abspath(FLAGS.output_dir))
  squad_report.write_page(
    os.path.join(FLAGS.output_dir, "answer.html"),
    f"{job.task_name}: {name}",
    (
      squad_results.on_the_page(a, predictions[a.example.qas_id])
      for a in answered
    ),
    results,
  )


def converse() -> None:
  """Answers questions on texts that are typed in."""
  for name in ("do_train", "do_eval", "do_predict"):
    if FLAGS[name].value:
      raise UserError(
        f"--interactive and --{name} exclude each other; give two commands"
      )
  common_flags.require_positive("predict_batch_size")
  flag = FLAGS["n_best_size"]
  shown = _SHOWN if flag.using_default_value else flag.value
  squad_reader.converse(load_reader(), shown)


def load_reader() -> Reader:
  """The Reader of --output_dir, or else of --init_checkpoint.

  Raises:
    ValueError: there is none.
  """
  folder, model = FLAGS.output_dir, FLAGS.output_dir
  tokenizer = bert_config = None
  if not (folder and squad_reader.is_release(folder)):
    if not FLAGS.init_checkpoint:
      raise UserError(
        f"--output_dir={folder} does not hold a trained model; pass the "
        f"--output_dir of a training that has ended, or --init_checkpoint"
      )
    model = FLAGS.init_checkpoint
    folder = model_folder.weights_folder("", model)
    if FLAGS.vocab_file or FLAGS.spm_model_file:
      tokenizer = common_flags.load_tokenizer()
  settings = reading_settings(folder)
  if model == FLAGS.init_checkpoint and FLAGS.bert_config_file:
    FLAGS.max_seq_length = settings.max_seq_length
    bert_config = common_flags.load_config(tokenizer)
  threshold = given_threshold()
  if threshold is None:
    threshold = squad_model.read_threshold(folder)
  return Reader(
    model,
    bert_config,
    tokenizer,
    settings,
    {
      # What is to be shown of them does not change which are found.
      "n_best_size": max(FLAGS.n_best_size, FLAGS["n_best_size"].default),
      "max_answer_length": FLAGS.max_answer_length,
      "null_score_diff_threshold": threshold,
    },
    FLAGS.exact_answer_text,
    FLAGS.predict_batch_size,
    FLAGS.precision,
  )


def main() -> None:
  if FLAGS.interactive:
    converse()
    return
  check_flags()
  experiment.check_devices()
  job = prepare()
  tf.io.gfile.makedirs(FLAGS.output_dir)
  run_record.keep_record(
    FLAGS.output_dir, make_record(job), FLAGS.do_train, job.is_trained
  )
  for questions in job.questions.values():
    write_windows(job, questions)
  if FLAGS.do_train:
    check_train_steps(job.questions["train"])
  model = build_estimator(job)
  best_weights = checkpoints.best_checkpoint(FLAGS.output_dir)
  if FLAGS.do_train:
    train(job, model)
  elif job.is_trained and best_weights:
    model.use(best_weights)
  if FLAGS.do_predict:
    predict(job, model)
  elif FLAGS.do_eval:
    evaluate(job, model, answer_questions(job, model, FLAGS.eval_batch_size))


if __name__ == "__main__":
  startup.run(main, define_flags)
