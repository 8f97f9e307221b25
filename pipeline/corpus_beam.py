"""A corpus's records on many machines, by Apache Beam.

It is an extra, imported only here and only for use: pip install -r
requirements-beam.txt.
"""

import dataclasses
import importlib
import logging
import os
import re
from collections.abc import Sequence

import tensorflow as tf

from errors import UserError
from pipeline.corpus import Corpus, Counts, Recipe, records_of_shard

# The counters of a pipeline.
_NAMESPACE = "create_pretraining_data"


def beam_pipeline(runner: str, arguments: Sequence[str]) -> object:
  """An empty pipeline of Apache Beam.

  Args:
    runner: Beam's --runner.
    arguments: its other options, as --name=value.

  Raises:
    ValueError: Beam is not installed, or knows no such runner or option.
  """
  for argument in arguments:
    if not re.match(r"--?\w", argument):
      raise UserError(
        f"unexpected argument {argument!r}; flags, Beam's too, are written "
        f"--name=value"
      )
  # It warns of what only Google's cloud needs.
  logging.disable(logging.WARNING)
  try:
    beam = importlib.import_module("apache_beam")
  except ImportError as error:
    raise UserError(
      f"--runner={runner} needs Apache Beam, and there is {error}; pip install "
      f"-r requirements-beam.txt, or leave the flag out"
    ) from error
  finally:
    logging.disable(logging.NOTSET)
  make_options = beam.pipeline.PipelineOptions
  options = make_options([f"--runner={runner}", *arguments])
  known = make_options([]).get_all_options()
  for name in options.get_all_options(retain_unknown_options=True):
    if name not in known:
      raise UserError(
        f"--{name} is neither a flag of this script nor an option of Apache "
        f"Beam; correct or leave it out"
      )
  return beam.Pipeline(options=options)


def write_records_by_beam(
  corpus: Corpus, recipe: Recipe, outputs: Sequence[str], pipeline: object
) -> Counts | None:
  """Writes the records of `write_records` by a Beam pipeline, in another order.

  The machines that take part need this project's modules and the files.

  Args:
    corpus, recipe, outputs: see `write_records`.
    pipeline: as from `beam_pipeline`.

  Returns:
    Counts, if the runner tells them.
  """
  import apache_beam as beam  # Only those who use it pay for loading it.

  folders = [f"{path}.beam.partial" for path in outputs]
  try:
    dealt = (
      pipeline
      | beam.Create(corpus.shards)
      | beam.Reshuffle()
      | beam.FlatMap(_dealt_records, recipe, len(outputs))
      | beam.Partition(lambda pair, _: pair[0], len(outputs))
    )
    for number, (folder, pairs) in enumerate(zip(folders, dealt, strict=True)):
      _ = (
        pairs
        | f"Records{number}" >> beam.Values()
        | f"Write{number}"
        >> beam.io.WriteToTFRecord(
          os.path.join(folder, "records"), num_shards=1, shard_name_template=""
        )
      )
    result = _run_pipeline(pipeline)
    for folder, path in zip(folders, outputs, strict=True):
      tf.io.gfile.rename(os.path.join(folder, "records"), path, overwrite=True)
    return _beam_counts(result)
  finally:
    for folder in folders:
      if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


def _dealt_records(shard, recipe, num_outputs):
  """Yields a shard's records, each with the number of its output."""
  from apache_beam import metrics

  records, counts = records_of_shard(shard, recipe)
  for name, value in dataclasses.asdict(counts).items():
    metrics.Metrics.counter(_NAMESPACE, name).inc(value)
  for place, record in enumerate(records, shard.index):
    yield place % num_outputs, record


def _run_pipeline(pipeline):
  """The result of a pipeline that has come to its end."""
  # Beam would log a traceback of what is one line.
  logger = logging.getLogger("apache_beam.runners.common")
  logger.setLevel(logging.CRITICAL)
  try:
    result = pipeline.run()
    result.wait_until_finish()
  except (ValueError, OSError, RuntimeError) as error:
    kind = ValueError if isinstance(error, ValueError) else OSError
    raise kind(re.sub(r" \[while running '.*", "", str(error))) from error
  return result


def _beam_counts(result):
  """The Counts of a pipeline, or None."""
  from apache_beam import metrics

  mine = metrics.MetricsFilter().with_namespace(_NAMESPACE)
  try:
    found = result.metrics().query(mine)["counters"]
  except NotImplementedError:
    return None
  values = {c.key.metric.name: c.committed or c.attempted for c in found}
  return Counts(**values) if values else None
