"""Evaluation and prediction with the model of an experiment, and its report."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from absl import logging

from bert import runtimes
from bert.contract import registry
from bert.contract.task import Evaluation, RowSet
from bert.data import files
from bert.data.sequences import groups_of
from bert.engine import inputs
from bert.engine.programs import ModeKeys
from bert.models import run_record, task_file
from bert.reports import model_card, training_page, verdict
from bert.scripts.comparison import Kept, keep
from bert.scripts.experiment import Experiment
from bert.training import summaries
from bert.training.estimator import Estimator

if TYPE_CHECKING:
  from bert.engine.graph_encoder import GraphEncoder


# Of larger training sets, `fit_head` takes a random sample.
_MOST_FITTED_ROWS = 10_000


class Evaluator:
  """Scores and uses one model.

  Args:
    model: the Estimator.
    encoder: the encoder of another runtime; None for TensorFlow.
    record: the content of the folder's flags.json.
    warnings: texts about the data, for the report.
  """

  def __init__(
    self,
    experiment: Experiment,
    model: Estimator,
    encoder: GraphEncoder | None,
    record: Mapping,
    warnings: Sequence[str],
  ):
    self._experiment, self._model = experiment, model
    self._task, self._settings = experiment.task, experiment.settings
    self._encoder, self._record, self._warnings = encoder, record, warnings

  def evaluate(self, rows: RowSet, kept: Kept | None = None) -> Evaluation:
    """The metrics of a labeled data set; adds what they are of to `kept`."""
    losses = []
    size = self._settings.eval_batch_size
    predictions = self._predictions(rows, size, self._eval_mode)
    predictions = _collect_losses(predictions, losses)
    if kept:
      predictions = keep(predictions, kept.outputs)
    answers = self._answers(rows, predictions)
    if kept:
      answers = keep(answers, kept.answers)
    evaluation = self._task.score(rows, answers)
    if losses and "eval_loss" not in evaluation.results:
      mean = float(np.mean(losses, dtype=np.float64))
      evaluation.results["loss"] = mean
    evaluation.results["global_step"] = self._model.global_step
    if not evaluation.counts and rows.examples:
      evaluation.counts = {"examples": len(rows.examples)}
    return evaluation

  def fit_head(self, rows: RowSet) -> None:
    """Sets the variables that the task fits to its training rows."""
    draw = np.random.default_rng(self._settings.seed)
    chosen = np.sort(draw.permutation(rows.num_rows)[:_MOST_FITTED_ROWS])
    predictions = self._model.predict_rows(
      inputs.EachRow(rows.read(), len(chosen), rows.transform, chosen),
      self._settings.eval_batch_size,
      self._eval_mode,
      self._task.output_axes(),
    )
    self._model.assign(self._task.fitted(predictions))

  def write_results(self, rows: RowSet, evaluation: Evaluation) -> None:
    """Writes the metrics; for int8, also compares them with float32."""
    encoder, settings = self._encoder, self._settings
    stem = os.path.join(settings.output_dir, f"eval_results{rows.suffix}")
    run_record.write_results(stem, evaluation.results, evaluation.details)
    if encoder is None or settings.precision != runtimes.INT8:
      return

    def compute_full():
      encoder.precision = "float32"
      results = self.evaluate(rows).results
      encoder.precision = runtimes.INT8
      return results

    from bert.engine import precision_loss

    path = precision_loss.path_of(encoder.model, settings.runtime, rows.suffix)
    small = {n: v for n, v in evaluation.results.items() if n != "global_step"}
    precision_loss.write(path, small, compute_full)

  def calibrate(self, rows: RowSet) -> None:
    """Calibrates the trained model on labeled rows.

    Another calibration of the same model gives the same numbers.
    """
    self._task.drop_calibration()
    self._model.retrace()
    size = self._settings.eval_batch_size
    predictions = self._predictions(rows, size)
    self._task.calibrate(self._answers(rows, predictions))
    task_file.write(self._settings.output_dir, self._task)
    self._model.retrace()

  def predict(self, rows: RowSet) -> dict[str, float]:
    """Writes the predictions; returns their metrics, if labels are known."""
    size, folder = self._settings.predict_batch_size, self._settings.output_dir
    predictions = self._predictions(rows, size)
    answers = self._answers(rows, predictions)
    evaluation = self._task.write(folder, rows, answers)
    if evaluation:
      evaluation.results["global_step"] = self._model.global_step
      self.write_results(rows, evaluation)
      self.report([evaluation])
    return evaluation.results if evaluation else {}

  @property
  def _eval_mode(self):
    """Without an evaluation loss, the program of the prediction is shared."""
    return ModeKeys.EVAL if self._task.has_eval_loss else ModeKeys.PREDICT

  def _predictions(self, rows, size, mode=ModeKeys.PREDICT):
    return self._model.predict_rows(
      inputs.EachRow(rows.read(), rows.num_rows, rows.transform),
      size,
      mode,
      self._task.output_axes(),
      # The loss of pre-training is a mean over batches, as in the original.
      in_order=rows.examples is None,
    )

  def _answers(self, rows, predictions):
    """Yields the answer to each example from the predictions of its rows."""
    is_known = rows.examples is not None
    examples = rows.examples if is_known else itertools.repeat(None)
    counts = rows.rows_per_example
    groups = ([row] for row in predictions)
    if counts is not None:
      groups = groups_of(predictions, counts)
    pairs = zip(examples, groups, strict=is_known)
    return itertools.starmap(self._task.answer, pairs)

  @property
  def has_report(self) -> bool:
    """Whether the folder has a report.html."""
    path = os.path.join(self._settings.output_dir, training_page.NAME)
    return files.exists(path)

  def report(
    self,
    evaluations: Sequence[Evaluation],
    comparisons: Mapping[str, str] | None = None,
  ) -> None:
    """Writes report.html, and logs the verdict.

    `comparisons` with another model, HTML, are by the names of data sets.
    """
    folder, task = self._settings.output_dir, self._task
    record = self._record
    if not task.kind:
      self._write_card(record, evaluations, {})
      return
    if not self._settings.do_train:  # It may calibrate a trained model.
      used = self._experiment.record.content
      given = {name: used["flags"][name] for name in self._settings.flags.given}
      record = {**record, "flags": {**record["flags"], **given}}
      for name in ("data", "examples"):  # It may evaluate other data.
        record[name] = {**record.get(name, {}), **used[name]}
    verdicts = {}
    for evaluation in evaluations:
      sample = evaluation.sample and evaluation.sample()
      if sample:
        verdicts[evaluation.name] = verdict.judge(sample)
    training_page.write(
      folder,
      task.kind if task.name == "custom" else task.name,
      evaluations,
      task.section,
      summaries.read_scalars(folder),
      record,
      task.style,
      verdicts=verdicts,
      comparisons=comparisons,
      warnings=self._warnings,
    )
    self._write_card(record, evaluations, verdicts)
    task.finish(folder, evaluations)
    for name, judged in verdicts.items():
      logging.info("%s: %s", name, judged)
      for line in judged.advice:
        logging.info("%s", line)

  def _write_card(self, record, evaluations, verdicts):
    """Writes the card of the model in the folder, if there is one."""
    task, tokenizer = self._task, self._task.tokenizer
    if not (self._settings.do_train or self._experiment.is_trained):
      return
    if not task.kind:  # A pre-trained model fills masks, given a vocabulary.
      if not tokenizer:
        return
      task_class = registry.task_class("fill_mask")
      settings = task_class.default_settings(self._experiment.config)
      task = task_class(settings, tokenizer)
    folder = self._settings.output_dir
    model_card.write(folder, task, record, evaluations, verdicts)


def _collect_losses(rows, losses):
  """Yields the rows, and moves their `batch_loss` to a list."""
  for row in rows:
    if "batch_loss" in row:
      losses.append(row.pop("batch_loss"))
    yield row
