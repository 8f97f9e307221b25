"""Writes the records of a corpus on many machines, with Apache Beam."""

import collections
import logging
import re
from collections.abc import Sequence

from bert.data import files
from bert.data.corpus import Corpus, CorpusConfig, records_of_shard
from bert.errors import UserError, import_optional

# Errors of a runner that lacks a package or cannot reach its files.
_USERS = (ValueError, OSError, RuntimeError, ImportError)

# The namespace of a pipeline's counters.
_NAMESPACE = "create_pretraining_data"


def beam_pipeline(runner: str, arguments: Sequence[str]) -> object:
  """An empty Beam pipeline for a --runner and other --name=value options."""
  # Beam warns that packages for Google Cloud are missing.
  logging.disable(logging.WARNING)
  try:
    beam = import_optional(
      "apache_beam", f"--runner={runner}", "requirements-beam.txt"
    )
  finally:
    logging.disable(logging.NOTSET)
  make_options = beam.pipeline.PipelineOptions
  options = make_options([f"--runner={runner}", *arguments])
  given = options.get_all_options(retain_unknown_options=True)
  for name in given.keys() - make_options([]).get_all_options():
    raise UserError(
      f"--runner={runner}: --{name} is neither a flag of this script nor an "
      f"option of Apache Beam; correct or omit it"
    )
  try:
    return beam.Pipeline(options=options)
  except (ValueError, ImportError, AttributeError) as error:
    raise UserError(f"--runner={runner}: {error}") from error


def write_records_by_beam(
  corpus: Corpus,
  config: CorpusConfig,
  paths: Sequence[str],
  prefix: str,
  pipeline: object,
) -> collections.Counter | None:
  """Like `write_records`, but with Beam; the order of records differs.

  Returns the counts, if the runner supports counters.
  """
  import apache_beam as beam

  outputs = [f"{prefix}beam-{number}/records" for number in range(len(paths))]
  dealt = (
    pipeline
    | beam.Create(corpus.shards)
    | beam.Reshuffle()
    | beam.FlatMap(_numbered_records, config, len(outputs))
    | beam.Partition(lambda pair, _: pair[0], len(outputs))
  )
  for number, (output, pairs) in enumerate(zip(outputs, dealt, strict=True)):
    write = beam.io.WriteToTFRecord(
      output, num_shards=1, shard_name_template=""
    )
    values = pairs | f"Records{number}" >> beam.Values()
    _ = values | f"Write{number}" >> write
  result = _run_pipeline(pipeline)
  for output, path in zip(outputs, paths, strict=True):
    files.rename(output, path)
  return _beam_counts(result)


def _numbered_records(shard, config, num_outputs):
  from apache_beam import metrics

  records, counts = records_of_shard(shard, config)
  for name, value in counts.items():
    metrics.Metrics.counter(_NAMESPACE, name).inc(value)
  for number, record in enumerate(records, shard.index):
    yield number % num_outputs, record


def _run_pipeline(pipeline):
  # Beam would log tracebacks of errors that are one line here.
  logger = logging.getLogger("apache_beam.runners.common")
  logger.setLevel(logging.CRITICAL)
  try:
    result = pipeline.run()
    result.wait_until_finish()
  except Exception as error:
    text = str(error)
    if type(error).__module__.startswith("apache_beam."):
      # The reason comes last, after the state of a job on other machines.
      text = text.strip().rpartition("\n")[2]
    elif not isinstance(error, _USERS):
      raise
    kind = UserError if isinstance(error, UserError) else OSError
    raise kind(re.sub(r" \[while running '.*", "", text)) from error
  return result


def _beam_counts(result):
  from apache_beam import metrics

  own = metrics.MetricsFilter().with_namespace(_NAMESPACE)
  try:
    counters = result.metrics().query(own)["counters"]
  except NotImplementedError:
    return None
  return collections.Counter(
    {c.key.metric.name: c.committed or c.attempted for c in counters}
  )
