"""The steps of a run: rows, model, training, evaluation, prediction, report.

    run_one(plan(flags))

The steps are the same for every task. A script's `plan` has read and checked
all that the run needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from bert import runtimes
from bert.data import files, folder_lock
from bert.engine import devices
from bert.models import checkpoints, run_weights
from bert.models.resolve import Model
from bert.scripts import comparison
from bert.scripts.evaluation import Evaluator
from bert.scripts.experiment import Experiment
from bert.scripts.rows import check_rows, make_rows
from bert.scripts.training_run import make_update, model_fn_maker, train
from bert.training.estimator import Estimator


def run_one(experiment: Experiment) -> dict[str, float]:
  """Runs an experiment in its folder; returns the metrics of its evaluations.

  With --dry_run, it prints an estimate instead, and returns nothing.
  """
  settings = experiment.settings
  if settings.dry_run:
    from bert.scripts import dry_run

    dry_run.print_estimate(experiment)
    return {}
  files.makedirs(settings.output_dir)
  with (
    folder_lock.lock_folder(settings.output_dir),
    devices.hosts_end_together(settings.strategy),
  ):
    experiment.read_output_dir()  # Another process may have just changed it.
    record = experiment.record.keep(
      settings.output_dir, settings.do_train, experiment.is_trained
    )
    return _run(experiment, record)


def _run(experiment: Experiment, record: Mapping) -> dict[str, float]:
  settings = experiment.settings
  row_sets = make_rows(experiment)
  warnings = check_rows(experiment, row_sets)
  encoder = _other_runtime(experiment)
  update = make_update(experiment, row_sets)
  model_fn = model_fn_maker(experiment, update, encoder)()
  model = Estimator(model_fn, settings.run_config())
  evaluator = Evaluator(experiment, model, encoder, record, warnings)
  step_before = model.global_step
  if update:
    train(experiment, model, row_sets, update, evaluator, record)
  else:
    _use_trained(experiment, model)
  if settings.calibrate and "dev" in settings.splits:
    evaluator.calibrate(row_sets["dev"][0])
  evaluations, comparisons, results = [], {}, {}
  other = None
  if folder := experiment.compared_with:
    other = comparison.load_other(folder, settings.eval_batch_size)
  for rows in row_sets["dev"] if settings.do_eval else ():
    kept = comparison.Kept() if other else None
    evaluations.append(evaluator.evaluate(rows, kept))
    evaluator.write_results(rows, evaluations[-1])
    if other:
      comparisons[rows.name] = comparison.section_of(
        other, experiment.task, rows, kept
      )
    for name, value in evaluations[-1].results.items():
      results[name + rows.suffix] = value
  # If nothing was left to train, an earlier report still holds.
  is_trained = model.global_step != step_before or not evaluator.has_report
  if evaluations or (update and is_trained):
    evaluator.report(evaluations, comparisons)
  for rows in row_sets.get("test", ()):
    scored = evaluator.predict(rows)
    results |= {name + rows.suffix: value for name, value in scored.items()}
  return results


def _other_runtime(experiment):
  """The encoder of --runtime, with the Estimator's weights; or None."""
  settings = experiment.settings
  if settings.runtime == runtimes.TENSORFLOW:
    return None
  from bert.engine.graph_encoder import GraphEncoder

  model = Model(experiment.config, experiment.task.tokenizer, "")
  return GraphEncoder(settings.runtime, settings.precision, model)


def _use_trained(experiment, model):
  """Loads the named checkpoint, or the finished or best model of a training."""
  settings = experiment.settings
  folder, named = settings.output_dir, settings.init_checkpoint
  trained = run_weights.own_checkpoint(folder, named)
  trained = trained or checkpoints.final_checkpoint(folder)
  if experiment.is_trained and trained:
    # An extended training may have left newer weights. But a released model
    # that a training started from has no head.
    shapes = checkpoints.Checkpoint(trained).shapes
    heads = experiment.task.head_shapes(experiment.config)
    if all(shapes.get(name) == list(s) for name, s in heads.items()):
      model.use(trained)
