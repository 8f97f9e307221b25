"""Makes pre-training data of text: masked word pieces and next sentences.

    python create_pretraining_data.py --input_file=./sample_text.txt \\
      --output_file=/tmp/tf_examples.tfrecord \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=True \\
      --max_seq_length=128 --max_predictions_per_seq=20 \\
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5

The input has one sentence a line and an empty line between documents. A large
one is cut into shards by --shard_mb, which all cores, or, by --runner, many
machines, work on.
"""

from training import common_flags
import os
import time
from collections.abc import Sequence

from absl import flags, logging

from errors import UserError, plural
from pipeline import corpus, corpus_beam, corpus_workers
from pipeline.instances import (
  TrainingInstance,
  create_instances_from_document,
  create_masked_lm_predictions,
  create_training_instances,
  truncate_seq_pair,
  write_instance_to_example_files,
)
from training import summaries
from training import startup

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

# Corpora from this size on are better cut into shards.
_LARGE_MB = 64

# What --shard_mb counts.
_MB = 1_000_000

# Flags that mean nothing without masks.
_MASKING_FLAGS = (
  "max_predictions_per_seq",
  "masked_lm_prob",
  "do_whole_word_mask",
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_text_flags(max_seq_length=128)
  flags.adopt_module_key_flags(common_flags)  # So that --help lists them too.
  _define_file_flags()
  _define_instance_flags()


def _define_file_flags():
  flags.DEFINE_string(
    "input_file",
    None,
    "Text files in UTF-8, or gzip files of them (.gz): paths or patterns, "
    "separated by commas. One sentence a line, an empty line between "
    "documents.",
  )
  flags.DEFINE_string(
    "output_file",
    None,
    "TFRecord file to write; several, separated by commas, get the instances "
    "in turn.",
  )
  flags.DEFINE_float(
    "shard_mb",
    0,
    "Cut the input into shards of whole documents of so many MB, which bounds "
    "the memory and is shared by all cores; next sentences and the order are "
    "drawn within a shard. 0: one shard, as the original.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "num_workers",
    None,
    "Processes that share the shards; the output does not depend on it. "
    "Default: one for each core.",
    lower_bound=1,
  )
  flags.DEFINE_string(
    "runner",
    None,
    "Let Apache Beam share out the shards, by this runner, such as FnApiRunner "
    "(in this process) or DataflowRunner; flags unknown here go to it.",
  )


def _define_instance_flags():
  flags.DEFINE_bool(
    "do_whole_word_mask", False, "Mask all pieces of a word, or none."
  )
  flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "Most masked pieces of an instance.",
    lower_bound=1,
  )
  flags.DEFINE_float(
    "masked_lm_prob", 0.15, "Share of an instance's pieces to mask."
  )
  flags.DEFINE_integer(
    "random_seed", 12345, "Fixes what is drawn: equal commands, equal files."
  )
  flags.DEFINE_integer(
    "dupe_factor",
    10,
    "Passes over the input, each with other masks; with --no_masking 1.",
    lower_bound=1,
  )
  flags.DEFINE_float(
    "short_seq_prob",
    0.1,
    "How often a document's instances are made shorter than --max_seq_length.",
  )
  flags.DEFINE_bool(
    "next_sentence_prediction",
    True,
    "Make pairs, to tell whether B follows A; or single texts, which need no "
    "second document.",
  )
  flags.DEFINE_bool(
    "no_masking",
    False,
    "Leave masking to run_pretraining.py --dynamic_masking, which masks anew "
    "in every epoch; each instance is written once.",
  )


def check_flags() -> None:
  """Checks the flags that stand for themselves.

  Raises:
    ValueError: a flag is wrong.
  """
  common_flags.require("input_file", "output_file")
  shortest = 5 if FLAGS.next_sentence_prediction else 4
  if FLAGS.max_seq_length < shortest:
    raise UserError(
      f"--max_seq_length={FLAGS.max_seq_length} leaves too little room for "
      f"text; pass {shortest} or more"
    )
  if not 0 < FLAGS.masked_lm_prob < 1:
    raise UserError(
      f"--masked_lm_prob={FLAGS.masked_lm_prob} is not between 0 and 1; pass "
      f"0.15, as the paper, or --no_masking"
    )
  if not 0 <= FLAGS.short_seq_prob <= 1:
    raise UserError(
      f"--short_seq_prob={FLAGS.short_seq_prob} is not between 0 and 1"
    )
  if not FLAGS.shard_mb < float("inf"):
    raise UserError(f"--shard_mb={FLAGS.shard_mb} is not a finite number")
  if not FLAGS.no_masking:
    return
  for name in _MASKING_FLAGS:
    if not FLAGS[name].using_default_value:
      raise UserError(
        f"--{name} means nothing with --no_masking; leave one of them out"
      )
  if FLAGS.dupe_factor > 1 and not FLAGS["dupe_factor"].using_default_value:
    raise UserError(
      f"--dupe_factor={FLAGS.dupe_factor} would write equal rows again with "
      f"--no_masking; leave one of them out"
    )


def make_recipe() -> corpus.Recipe:
  """What the flags say about the making of records.

  Raises:
    ValueError: a flag or the vocabulary is wrong.
  """
  check_flags()
  tokenizer = common_flags.load_tokenizer()
  if not (FLAGS.no_masking or "[MASK]" in tokenizer.vocab):
    raise UserError(
      f"--vocab_file={FLAGS.vocab_file} has no line [MASK]; pass the vocab.txt "
      f"that came with the model, or --no_masking"
    )
  return corpus.Recipe(
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


def count_workers() -> int:
  """How many processes may share the shards."""
  if FLAGS.num_workers:
    return FLAGS.num_workers
  # Where a cluster shares out cores, these are ours.
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def log_found(found: corpus.Corpus, num_files: int, num_workers: int) -> None:
  """Says what there is to do, and how it would be done better."""
  who = f"--runner={FLAGS.runner}"
  if not FLAGS.runner:
    who = plural(min(num_workers, len(found.shards)), "worker")
  logging.info(
    "%s, %.2f MB: %s in %s for %s",
    plural(num_files, "file"),
    found.size / _MB,
    plural(found.documents, "document"),
    plural(len(found.shards), "shard"),
    who,
  )
  wants_shards = FLAGS.runner or (FLAGS.num_workers or 1) > 1
  if not FLAGS.shard_mb and (wants_shards or found.size > _LARGE_MB * _MB):
    logging.info(
      "One shard is held in memory as a whole and keeps one core busy; "
      "--shard_mb=8 would bound the memory and use all cores"
    )


def log_made(
  counts: corpus.Counts | None, seconds: float, outputs: Sequence[str]
) -> None:
  """Says what was written."""
  what = "All instances"  # Not every runner of Beam counts.
  if counts:
    positions = counts.instances * FLAGS.max_seq_length
    what = (
      f"{plural(counts.instances, 'instance')} of {counts.tokens} "
      f"tokens, {1 - counts.tokens / positions:.1%} padding, "
      f"{counts.unknown / counts.pieces:.2%} of the text unknown, "
      f"{counts.instances / seconds:.0f} instances/s"
    )
  logging.info(
    "%s, in %.1f s: they are in %s", what, seconds, ", ".join(outputs)
  )


def main(beam_arguments: Sequence[str] = ()) -> None:
  recipe = make_recipe()
  input_files = common_flags.find_files("input_file")
  outputs = FLAGS.output_file.split(",")
  common_flags.check_output_files(
    "output_file",
    outputs,
    [*input_files, FLAGS.vocab_file, FLAGS.spm_model_file],
  )
  num_workers = count_workers()
  pipeline = None
  if FLAGS.runner:
    # Beam has a flag of that name.
    workers = [f"--num_workers={FLAGS.num_workers}"] * bool(FLAGS.num_workers)
    pipeline = corpus_beam.beam_pipeline(
      FLAGS.runner, [*beam_arguments, *workers]
    )
  since = time.monotonic()
  found = corpus.scan(
    summaries.bar(input_files, unit="file"),
    FLAGS.shard_mb * _MB,
    recipe.min_documents,
  )
  log_found(found, len(input_files), num_workers)
  passes = found.documents * recipe.dupe_factor
  if pipeline:
    counts = corpus_beam.write_records_by_beam(found, recipe, outputs, pipeline)
  else:
    with summaries.bar(total=passes, unit="document") as bar:
      counts = corpus_workers.write_records(
        found, recipe, outputs, num_workers, bar.update
      )
  log_made(counts, time.monotonic() - since, outputs)


if __name__ == "__main__":
  startup.run(main, define_flags, passes_on="runner")
