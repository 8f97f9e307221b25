"""Creates pre-training data from text: masked word pieces and next sentences.

    python create_pretraining_data.py --input_file=./sample_text.txt \\
      --output_file=/tmp/tf_examples.tfrecord \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=True \\
      --max_seq_length=128 --max_predictions_per_seq=20 \\
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5

The input has one sentence per line and an empty line between documents. Split
a large input into shards with --shard_mb. All cores work on them, or many
machines with --runner.
"""

import os
import time
from collections.abc import Mapping, Sequence

from absl import flags, logging

from bert.errors import UserError, plural
from bert.data import corpus, corpus_beam, corpus_workers, instances, progress
from bert.data.instances import (
  TrainingInstance,
  create_instances_from_document,
  create_masked_lm_predictions,
  create_training_instances,
  truncate_seq_pair,
  write_instance_to_example_files,
)
from bert.training import common_flags, flag_checks, model_flags, startup

# Code written for the original finds these here.
__all__ = [
  "TrainingInstance",
  "create_instances_from_document",
  "create_masked_lm_predictions",
  "create_training_instances",
  "truncate_seq_pair",
  "write_instance_to_example_files",
]

FLAGS = flags.FLAGS

# The unit of --shard_mb, and the size above which shards are recommended.
_MB = 1_000_000
_LARGE_MB = 64

# Flags that have no effect without masking.
_MASKING_FLAGS = (
  "max_predictions_per_seq",
  "masked_lm_prob",
  "do_whole_word_mask",
)


def define_flags() -> None:
  """Defines the flags of this script."""
  common_flags.define_text_flags(
    128, "A longer document is divided into several examples."
  )
  _define_file_flags()
  _define_instance_flags()


def _define_file_flags():
  flags.DEFINE_string(
    "input_file",
    None,
    "UTF-8 text files, or gzip files (.gz) of them: comma-separated paths or "
    "patterns. One sentence per line, and an empty line between documents.",
  )
  flags.DEFINE_string(
    "output_file",
    None,
    "TFRecord file to write, or a comma-separated list of files that get the "
    "examples in turn.",
  )
  flags.DEFINE_float(
    "shard_mb",
    0,
    "Split the input into shards of whole documents of this size in MB. Shards "
    "bound the memory and are processed in parallel. Random next sentences and "
    "the order of examples are drawn within a shard. 0: a single shard, as in "
    "the original.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "num_workers",
    None,
    "Number of processes that share the shards; it does not change the output. "
    "Default: the number of cores.",
    lower_bound=1,
  )
  flags.DEFINE_string(
    "runner",
    None,
    "Process the shards with this runner of Apache Beam, such as FnApiRunner "
    "(in this process) or DataflowRunner. Unknown flags are passed to Beam.",
  )


def _define_instance_flags():
  common_flags.define_masking_flags()
  flags.DEFINE_integer(
    "random_seed", 12345, "Random seed. The same command gives the same files."
  )
  flags.DEFINE_integer(
    "dupe_factor",
    10,
    "Number of passes over the input, each with different masks; 1 with "
    "--no_masking.",
    lower_bound=1,
  )
  flags.DEFINE_float(
    "short_seq_prob",
    0.1,
    "Probability that the examples of a document are shorter than "
    "--max_seq_length.",
  )
  flags.DEFINE_bool(
    "next_sentence_prediction",
    True,
    "Create pairs of texts for next sentence prediction. Otherwise, create "
    "single texts, for which one document is enough.",
  )
  flags.DEFINE_bool(
    "no_masking",
    False,
    "Write each example once and without masks, for run_pretraining.py "
    "--dynamic_masking, which draws new masks in every epoch.",
  )


def check_flags() -> None:
  """Raises UserError if a flag is wrong or contradicts another."""
  flag_checks.require("input_file", "output_file")
  instances.check_length(FLAGS.max_seq_length, FLAGS.next_sentence_prediction)
  flag_checks.check_masking_flags()
  if not 0 <= FLAGS.short_seq_prob <= 1:
    raise UserError(
      f"--short_seq_prob={FLAGS.short_seq_prob} must be between 0 and 1"
    )
  if not FLAGS.shard_mb < float("inf"):
    raise UserError(f"--shard_mb={FLAGS.shard_mb} must be a finite number")
  if not FLAGS.no_masking:
    return
  for name in _MASKING_FLAGS:
    if not FLAGS[name].using_default_value:
      raise UserError(
        f"--{name} has no effect with --no_masking; omit one of them"
      )
  if FLAGS.dupe_factor > 1 and not FLAGS["dupe_factor"].using_default_value:
    raise UserError(
      f"--dupe_factor={FLAGS.dupe_factor} would repeat rows with --no_masking; "
      f"omit one of them"
    )


def make_config() -> corpus.CorpusConfig:
  """The CorpusConfig that the flags describe.

  Raises:
    UserError: a flag or the vocabulary is wrong.
  """
  check_flags()
  config = corpus.CorpusConfig(
    vocab_file=FLAGS.vocab_file,
    spm_model_file=FLAGS.spm_model_file,
    do_lower_case=FLAGS.do_lower_case,
    max_seq_length=FLAGS.max_seq_length,
    dupe_factor=1 if FLAGS.no_masking else FLAGS.dupe_factor,
    short_seq_prob=FLAGS.short_seq_prob,
    masked_lm_prob=FLAGS.masked_lm_prob,
    max_predictions_per_seq=(
      0 if FLAGS.no_masking else FLAGS.max_predictions_per_seq
    ),
    random_seed=FLAGS.random_seed,
    do_whole_word_mask=FLAGS.do_whole_word_mask,
    next_sentence_prediction=FLAGS.next_sentence_prediction,
  )
  tokenizer = model_flags.load_tokenizer()
  special = tokenizer.special
  instances.check_length(
    FLAGS.max_seq_length, FLAGS.next_sentence_prediction, special
  )
  if tokenizer.splits_words:
    model_flags.warn_of_casing(tokenizer.vocab, FLAGS.vocab_file)
  if not (FLAGS.no_masking or special.mask in tokenizer.vocab):
    raise UserError(
      f"--vocab_file={FLAGS.vocab_file} has no line {special.mask}; pass the "
      f"vocab.txt that came with the model, or --no_masking"
    )
  return config


def count_workers() -> int:
  """The number of processes that may share the shards."""
  if FLAGS.num_workers:
    return FLAGS.num_workers
  # On a shared machine, count only the cores assigned to this process.
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def log_corpus(found: corpus.Corpus, num_files: int, num_workers: int) -> None:
  """Logs the size of the corpus, and recommends shards for a large one."""
  workers = f"--runner={FLAGS.runner}"
  if not FLAGS.runner:
    workers = plural(min(num_workers, len(found.shards)), "worker")
  logging.info(
    "%s, %.2f MB: %s in %s for %s",
    plural(num_files, "file"),
    found.size / _MB,
    plural(found.num_documents, "document"),
    plural(len(found.shards), "shard"),
    workers,
  )
  wants_shards = FLAGS.runner or (FLAGS.num_workers or 1) > 1
  if not FLAGS.shard_mb and (wants_shards or found.size > _LARGE_MB * _MB):
    logging.info(
      "A single shard is held in memory and processed by one core; "
      "--shard_mb=8 would bound the memory and use all cores"
    )


def log_counts(
  counts: Mapping[str, int] | None, seconds: float, outputs: Sequence[str]
) -> None:
  """Logs the statistics of the records."""
  what = "all examples"  # Some Beam runners have no counters.
  if counts:
    num_instances, num_tokens = counts["instances"], counts["tokens"]
    padding = 1 - num_tokens / (num_instances * FLAGS.max_seq_length)
    what = (
      f"{plural(num_instances, 'example')} of {num_tokens:,} tokens, "
      f"{padding:.1%} padding, "
      f"{counts['unknown'] / counts['pieces']:.2%} unknown pieces, "
      f"{num_instances / seconds:,.0f} examples/s,"
    )
  logging.info("Wrote %s in %.1f s to %s", what, seconds, ", ".join(outputs))


def main(beam_arguments: Sequence[str] = ()) -> None:
  config = make_config()
  input_files = flag_checks.find_files("input_file")
  flag_checks.refuse_pipes("input_file", input_files)
  outputs = FLAGS.output_file.split(",")
  flag_checks.check_output_files(
    "output_file",
    outputs,
    [*input_files, FLAGS.vocab_file, FLAGS.spm_model_file],
  )
  num_workers = count_workers()
  pipeline = None
  if FLAGS.runner:
    if FLAGS.num_workers:  # Beam has a flag of this name, too.
      workers = f"--num_workers={FLAGS.num_workers}"
      beam_arguments = [*beam_arguments, workers]
    pipeline = corpus_beam.beam_pipeline(FLAGS.runner, beam_arguments)
  start = time.monotonic()
  with corpus_workers.workspace(outputs) as (paths, prefix):
    found = corpus.scan(
      progress.bar(input_files, unit="file"),
      FLAGS.shard_mb * _MB,
      2 if FLAGS.next_sentence_prediction else 1,
      # A single shard is read from its start, and needs no copy of its text.
      prefix if FLAGS.shard_mb else None,
    )
    log_corpus(found, len(input_files), num_workers)
    job = (found, config, paths, prefix)
    if pipeline:
      counts = corpus_beam.write_records_by_beam(*job, pipeline)
    else:
      total = found.num_documents * config.dupe_factor
      with progress.bar(total=total, unit="document") as bar:
        counts = corpus_workers.write_records(*job, num_workers, bar.update)
  log_counts(counts, time.monotonic() - start, outputs)


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags, passes_on="runner")


if __name__ == "__main__":
  command()
