"""One classifier on its way: features, evaluations, predictions, report."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
from pipeline import files
from reports import classification as classification_report
from tasks import answers, classification, glue, runs
from tasks import labels as label_types
from tasks.examples import (
  InputExample,
  file_based_convert_examples_to_features,
  file_based_input_fn_builder,
  first_rows,
  grouped,
  mean_by_example,
)
from training import best_checkpoint, estimator, summaries


@dataclasses.dataclass
class Job:
  """A Run, checked and read."""

  run: runs.Run
  task: glue.Task | None  # None for data of the user's own.
  tokenizer: object
  bert_config: modeling.BertConfig
  head: label_types.Head
  metric_names: list
  example_sets: dict  # set type -> suffix of result files -> InputExamples
  num_train_steps: int
  label_weights: list | None
  keeper: best_checkpoint.BestCheckpoint | None
  release_files: dict  # What stands beside the weights: name -> content.
  is_trained: bool  # Whether the output folder holds a checkpoint.
  settings: dict  # What `classifier.release_files` takes.
  eval_batch_size: int
  predict_batch_size: int
  train_input_fn: Callable | None = None


@dataclasses.dataclass
class DevelopmentSet:
  """Examples to evaluate on, written as features."""

  suffix: str  # Of the names of its files.
  examples: Sequence[InputExample]
  input_fn: Callable
  windows: np.ndarray | None  # Rows of each example, where not 1.

  @property
  def name(self) -> str:
    """What a reader calls it."""
    return f"{self.suffix.strip('_')} development set".strip()


def write_features(
  job: Job, examples: Sequence[InputExample], name: str
) -> tuple[Callable, int, np.ndarray | None]:
  """Writes `output_dir/NAME.tf_record`.

  Returns:
    The `input_fn` over it, its number of rows, and each example's number of
    rows, or None where all have one.
  """
  path = os.path.join(job.run.output_dir, f"{name}.tf_record")
  tf.io.gfile.makedirs(job.run.output_dir)
  length = job.settings["max_seq_length"]
  written = file_based_convert_examples_to_features(
    examples, job.head, length, job.tokenizer, path, job.settings["long_text"]
  )
  logging.info("%s: %d examples", path, written.examples)
  if written.cut:
    logging.info(
      "%s: %.1f %% of the examples are longer than --max_seq_length=%d and cut",
      path,
      100 * written.cut / written.examples,
      length,
    )
  is_training = name == "train"
  input_fn = file_based_input_fn_builder(
    path, length, is_training, drop_remainder=is_training, head=job.head
  )
  return input_fn, written.rows, written.windows


def development_sets(job: Job) -> list[DevelopmentSet]:
  """The sets to evaluate on, their features written."""
  sets = []
  for suffix, examples in job.example_sets.get("dev", {}).items():
    input_fn, _, windows = write_features(job, examples, f"eval{suffix}")
    sets.append(DevelopmentSet(suffix, examples, input_fn, windows))
  return sets


def evaluate(
  job: Job, model: estimator.Estimator, dev: DevelopmentSet
) -> classification_report.Evaluation:
  """The model's answers to a development set, and their metrics."""
  rows = list(
    model.predict(dev.input_fn, job.eval_batch_size, estimator.ModeKeys.EVAL)
  )
  label_ids = np.array([row["label_ids"] for row in rows])
  if dev.windows is not None:
    label_ids = label_ids[first_rows(dev.windows)]
  logits = mean_by_example(
    np.array([row["logits"] for row in rows]), dev.windows
  )
  results = classification.evaluate_logits(
    job.head, job.metric_names, label_ids, logits
  )
  results |= {"loss": results["eval_loss"], "global_step": model.global_step}
  losses = job.head.per_example_loss(tf.constant(logits), label_ids)
  return classification_report.Evaluation(
    dev.name,
    job.head,
    results,
    job.head.truth(label_ids),
    np.asarray(job.head.probabilities(logits)),
    losses.numpy(),
    dev.examples,
  )


def evaluate_in_training(
  job: Job,
  model: estimator.Estimator,
  development: Sequence[DevelopmentSet],
  step: int,
) -> str | None:
  """Evaluates after `step` updates; returns the reason to stop, if any."""
  keeper = job.keeper
  if keeper and keeper.has_evaluated(step):
    return keeper.stop_reason
  for dev in development:
    results = evaluate(job, model, dev).results
    model.write_scalars(
      "dev",
      {
        name if name == "global_step" else name + dev.suffix: value
        for name, value in results.items()
      },
    )
    shown = (
      f"{name} {results[name]:.4f}"
      for name in sorted(results)
      if "eval" in name
    )
    logging.info("step %d, %s: %s", step, dev.name, ", ".join(shown))
    if dev is development[0]:
      first_results = results
  return keeper.add(step, first_results, model.weights) if keeper else None


def write_report(
  job: Job,
  evaluations: Sequence[classification_report.Evaluation],
  record: Mapping,
) -> None:
  """Writes `report.html`."""
  folder = job.run.output_dir
  name = os.path.basename(os.path.abspath(folder))
  classification_report.write_report(
    os.path.join(folder, "report.html"),
    f"{runs.folder_of(job.run.task)}: {name}",
    evaluations,
    summaries.read_scalars(folder),
    record,
  )


def predict(job: Job, model: estimator.Estimator) -> None:
  """Writes what the model says of each row of the test sets."""
  for suffix, examples in job.example_sets["test"].items():
    input_fn, _, windows = write_features(job, examples, f"predict{suffix}")
    rows = model.predict(input_fn, job.predict_batch_size)
    logits = grouped((row["logits"] for row in rows), windows)
    predictions = answers.write_predictions(
      job.run.output_dir, suffix, job.head, examples, logits
    )
    logging.info(
      "%s/test_predictions%s.tsv: %d rows",
      job.run.output_dir,
      suffix,
      len(predictions),
    )
    submission = job.task and job.task.submission
    if submission:
      tf.io.gfile.makedirs(job.run.submission_dir)
      files.write_file(
        os.path.join(job.run.submission_dir, submission[suffix]),
        glue.submission_lines(job.task, predictions),
      )
