"""Fine-tunes BERT on a classification task, evaluates it, and predicts.

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \\
      --data_dir=$GLUE_DIR/MRPC --vocab_file=$BERT_BASE_DIR/vocab.txt \\
      --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
      --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \\
      --output_dir=/tmp/mrpc_output/
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence

import common_flags  # Before TensorFlow, which it asks to start up quietly.
import tensorflow as tf
from absl import flags, logging

import checkpoints
import estimator
import metrics
import modeling
import optimization
import variables
from examples import (
  DataProcessor,
  InputExample,
  InputFeatures,
  PaddingInputExample,
  convert_examples_to_features,
  convert_single_example,
  file_based_convert_examples_to_features,
  file_based_input_fn_builder,
  input_fn_builder,
  label_id,
)
from glue import (
  PROCESSORS,
  ColaProcessor,
  MnliProcessor,
  MrpcProcessor,
  XnliProcessor,
)

# Code written for the original finds all of these here.
__all__ = [
  "PROCESSORS",
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


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_model_flags(max_seq_length=128)
  common_flags.define_run_flags()
  common_flags.define_tpu_flags()
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  flags.DEFINE_string(
    "task_name", None, f"Task: one of {', '.join(sorted(PROCESSORS))}."
  )
  flags.DEFINE_string("data_dir", None, "Folder with the task's files.")
  flags.DEFINE_bool("do_train", False, "Train on the training set.")
  flags.DEFINE_bool("do_eval", False, "Evaluate on the development set.")
  flags.DEFINE_bool("do_predict", False, "Predict the test set.")
  flags.DEFINE_integer("train_batch_size", 32, "Rows of one update.")
  flags.DEFINE_integer("eval_batch_size", 8, "Rows evaluated at a time.")
  flags.DEFINE_integer("predict_batch_size", 8, "Rows predicted at a time.")
  flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.")
  flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the updates in which the learning rate rises to its peak.",
  )


def head_shapes(
  bert_config: modeling.BertConfig, num_labels: int
) -> dict[str, list[int]]:
  """Name and shape of the variables that a classifier adds to BERT."""
  return {
    "output_weights": [num_labels, bert_config.hidden_size],
    "output_bias": [num_labels],
  }


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  labels: tf.Tensor,
  num_labels: int,
  use_one_hot_embeddings: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """BERT with a linear classifier on its pooled output (section 4.1).

  Args:
    bert_config: a BertConfig.
    is_training: whether dropout is on.
    input_ids, input_mask, segment_ids: integer [B, S].
    labels: integer [B].
    num_labels: number of classes, C.
    use_one_hot_embeddings: see BertModel.

  Returns:
    loss (scalar), per_example_loss [B], logits [B, C], probabilities [B, C].
  """
  model = modeling.BertModel(
    bert_config,
    is_training,
    input_ids,
    input_mask,
    segment_ids,
    use_one_hot_embeddings,
  )
  pooled_output = model.get_pooled_output()
  if is_training:
    pooled_output = modeling.dropout(pooled_output, 0.1)
  shapes = head_shapes(bert_config, num_labels)
  weights = variables.get_variable(
    "output_weights",
    shapes["output_weights"],
    modeling.create_initializer(0.02),
  )
  bias = variables.get_variable(
    "output_bias", shapes["output_bias"], tf.compat.v1.zeros_initializer()
  )
  logits = tf.nn.bias_add(
    tf.matmul(pooled_output, weights, transpose_b=True), bias
  )
  per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=labels, logits=logits
  )
  return (
    tf.reduce_mean(per_example_loss),
    per_example_loss,
    logits,
    tf.nn.softmax(logits),
  )


def model_fn_builder(
  bert_config: modeling.BertConfig,
  num_labels: int,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of a classifier, for `estimator.Estimator`.

  `init_checkpoint` is where weights start from, or None; the other arguments
  are those of `create_model` and `optimization.create_optimizer`.
  """

  def model_fn(features, labels, mode, params):
    del labels, params
    checkpoints.initialize_from(
      init_checkpoint, head_shapes(bert_config, num_labels)
    )
    label_ids = features["label_ids"]
    loss, per_example_loss, logits, probabilities = create_model(
      bert_config,
      mode == estimator.ModeKeys.TRAIN,
      features["input_ids"],
      features["input_mask"],
      features["segment_ids"],
      label_ids,
      num_labels,
      use_one_hot_embeddings,
    )
    if mode == estimator.ModeKeys.PREDICT:
      return estimator.EstimatorSpec(
        mode, predictions={"probabilities": probabilities}
      )
    if mode == estimator.ModeKeys.EVAL:
      return estimator.EstimatorSpec(
        mode,
        loss=estimator.mean_over_real_rows(per_example_loss, features),
        eval_metrics=(
          metrics.classification_metrics,
          {
            "label_ids": label_ids,
            "predictions": tf.argmax(logits, axis=-1),
            "per_example_loss": per_example_loss,
          },
        ),
      )
    rate = optimization.learning_rate_schedule(
      variables.global_step(), learning_rate, num_train_steps, num_warmup_steps
    )
    train_op = optimization.create_optimizer(
      loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu
    )
    return estimator.EstimatorSpec(
      mode, loss=loss, train_op=train_op, logged={"learning rate": rate}
    )

  return model_fn


@dataclasses.dataclass
class Job:
  """What the flags ask for, checked and read."""

  tokenizer: object
  bert_config: modeling.BertConfig
  labels: list
  example_sets: dict  # set type -> suffix of result files -> InputExamples
  num_train_steps: int
  vocabulary_file: dict  # file name -> content


def check_flags() -> tuple[DataProcessor, list[str]]:
  """Checks the flags that stand for themselves.

  Returns:
    The task's processor, and the types of the sets that are needed.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("data_dir", "task_name", "output_dir")
  common_flags.require_positive(
    "train_batch_size",
    "eval_batch_size",
    "predict_batch_size",
    "save_checkpoints_steps",
    "log_steps",
    "learning_rate",
    "num_train_epochs",
  )
  if not 0 <= FLAGS.warmup_proportion <= 1:
    raise ValueError(
      f"--warmup_proportion={FLAGS.warmup_proportion} is not between 0 and 1"
    )
  by_name = {name.lower(): task for name, task in PROCESSORS.items()}
  name = FLAGS.task_name.lower()
  if name not in by_name:
    raise ValueError(
      f"--task_name={FLAGS.task_name} is not one of "
      f"{', '.join(sorted(PROCESSORS))}"
    )
  wanted = [
    set_type
    for set_type, do in (
      ("train", FLAGS.do_train),
      ("dev", FLAGS.do_eval),
      ("test", FLAGS.do_predict),
    )
    if do
  ]
  if not wanted:
    raise ValueError(
      "nothing to do; pass --do_train, --do_eval or --do_predict"
    )
  return by_name[name](), wanted


def prepare() -> Job:
  """The Job that the flags describe; nothing is written yet.

  Raises:
    ValueError: a flag or a file is wrong.
  """
  processor, wanted = check_flags()
  tokenizer = common_flags.load_tokenizer()
  bert_config = common_flags.load_config(tokenizer)
  labels = processor.get_labels()
  heads = head_shapes(bert_config, len(labels))
  has_head = common_flags.check_init_checkpoint(bert_config, heads)
  is_trained = common_flags.check_output_dir(bert_config, heads)
  if not (FLAGS.do_train or has_head or is_trained):
    raise ValueError(
      f"no classifier of {len(labels)} labels in "
      f"--output_dir={FLAGS.output_dir} or "
      f"--init_checkpoint={FLAGS.init_checkpoint}; add --do_train"
    )
  if is_trained:
    check_labels(labels, FLAGS.output_dir)
  elif not FLAGS.do_train:
    prefix = checkpoints.find_checkpoint(FLAGS.init_checkpoint)
    check_labels(labels, os.path.dirname(prefix))
  example_sets = {
    set_type: processor.get_example_sets(FLAGS.data_dir, set_type)
    for set_type in wanted
  }
  for set_type in wanted:
    for example in itertools.chain(*example_sets[set_type].values()):
      if set_type == "test":
        example.label = None  # Whatever stands there is no label.
      else:
        label_id(example, labels)
  return Job(
    tokenizer,
    bert_config,
    labels,
    example_sets,
    count_train_steps(example_sets),
    common_flags.vocabulary_file(),
  )


def check_labels(labels: Sequence[str], folder: str):
  """Raises ValueError if the model in `folder` was trained on other labels."""
  path = os.path.join(folder, "labels.json")
  if not tf.io.gfile.exists(path):
    return
  with tf.io.gfile.GFile(path, "rb") as reader:
    trained = json.loads(reader.read())
  if trained != list(labels):
    raise ValueError(
      f"{path} has the labels {', '.join(map(str, trained))}, and "
      f"--task_name={FLAGS.task_name} has {', '.join(map(str, labels))}; "
      f"pass the task that the model was trained on"
    )


def count_train_steps(
  example_sets: Mapping[str, Mapping[str, Sequence[InputExample]]],
) -> int:
  """Number of updates that --num_train_epochs takes.

  Raises:
    ValueError: it is none.
  """
  if not FLAGS.do_train:
    return 0
  rows = len(example_sets["train"][""])
  if not rows:
    raise ValueError(
      f"--task_name={FLAGS.task_name} has no example to train on"
    )
  steps = int(rows / FLAGS.train_batch_size * FLAGS.num_train_epochs)
  if steps < 1:
    raise ValueError(
      f"--num_train_epochs={FLAGS.num_train_epochs} over {rows} rows fill no "
      f"batch of --train_batch_size={FLAGS.train_batch_size}; raise the one "
      f"or lower the other"
    )
  return steps


def build_estimator(job: Job) -> estimator.Estimator:
  """The Estimator of a Job."""
  config = common_flags.run_config()
  model_fn = model_fn_builder(
    job.bert_config,
    len(job.labels),
    FLAGS.init_checkpoint,
    FLAGS.learning_rate,
    job.num_train_steps,
    int(job.num_train_steps * FLAGS.warmup_proportion),
    FLAGS.use_tpu,
    use_one_hot_embeddings=FLAGS.use_tpu,
  )
  return estimator.Estimator(model_fn, config)


def write_features(
  job: Job, examples: Sequence[InputExample], name: str
) -> Callable:
  """Writes `output_dir/NAME.tf_record`; returns the `input_fn` over it."""
  path = os.path.join(FLAGS.output_dir, f"{name}.tf_record")
  file_based_convert_examples_to_features(
    examples, job.labels, FLAGS.max_seq_length, job.tokenizer, path
  )
  logging.info("%s: %d examples", path, len(examples))
  is_training = name == "train"
  return file_based_input_fn_builder(
    path, FLAGS.max_seq_length, is_training, drop_remainder=is_training
  )


def train(job: Job, model: estimator.Estimator) -> None:
  """Trains, and makes `output_dir` a release of its own."""
  input_fn = write_features(job, job.example_sets["train"][""], "train")
  model.train(input_fn, FLAGS.train_batch_size, job.num_train_steps)
  released_config = modeling.BertConfig.from_dict(
    {**job.bert_config.to_dict(), "do_lower_case": FLAGS.do_lower_case}
  )
  checkpoints.write_release(
    FLAGS.output_dir,
    model.weights,
    {
      "bert_config.json": released_config.to_json_string(),
      "labels.json": json.dumps(job.labels, ensure_ascii=False) + "\n",
      **job.vocabulary_file,
    },
  )
  logging.info("The trained model is in %s", FLAGS.output_dir)


def evaluate(job: Job, model: estimator.Estimator) -> None:
  """Writes and logs the metrics of each development set."""
  for suffix, examples in job.example_sets["dev"].items():
    input_fn = write_features(job, examples, f"eval{suffix}")
    result = model.evaluate(input_fn, FLAGS.eval_batch_size)
    lines = [f"{key} = {result[key]}" for key in sorted(result)]
    output_file = os.path.join(FLAGS.output_dir, f"eval_results{suffix}.txt")
    checkpoints.write_file(output_file, "\n".join(lines) + "\n")
    logging.info("%s: %s", output_file, ", ".join(lines))


def predict(job: Job, model: estimator.Estimator) -> None:
  """Writes the probabilities of each class for each row of the test sets."""
  for suffix, examples in job.example_sets["test"].items():
    input_fn = write_features(job, examples, f"predict{suffix}")
    rows = model.predict(input_fn, FLAGS.predict_batch_size)
    output_file = os.path.join(FLAGS.output_dir, f"test_results{suffix}.tsv")
    checkpoints.write_file(
      output_file,
      "".join("\t".join(map(str, row["probabilities"])) + "\n" for row in rows),
    )
    logging.info("%s: %d rows", output_file, len(examples))


def main() -> None:
  job = prepare()
  model = build_estimator(job)
  if FLAGS.do_train:
    train(job, model)
  if FLAGS.do_eval:
    evaluate(job, model)
  if FLAGS.do_predict:
    predict(job, model)


if __name__ == "__main__":
  common_flags.run(main, define_flags)
