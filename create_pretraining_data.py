"""Creates pre-training data from text: masked word pieces and next sentences.

    python create_pretraining_data.py --input_file=./sample_text.txt \\
      --output_file=/tmp/tf_examples.tfrecord \\
      --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=True \\
      --max_seq_length=128 --max_predictions_per_seq=20 \\
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5

The input has one sentence per line and an empty line between documents. Split
a large input into shards with --shard_mb. All cores process the
shards; --runner distributes them over many machines.
"""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence

from absl import logging

import modeling  # noqa: F401  Users read these from the original's scripts.
import optimization  # noqa: F401
import tokenization  # noqa: F401
from bert.data import corpus, corpus_beam, corpus_workers, instances, progress
from bert.data.instances import (
  TrainingInstance,
  create_instances_from_document,
  create_masked_lm_predictions,
  create_training_instances,
  truncate_seq_pair,
  write_instance_to_example_files,
)
from bert.errors import plural
from bert.flags import flag_table
from bert.flags.values import (
  COUNT,
  PATH,
  PROPORTION,
  Flag,
  Flags,
  at_least,
  table,
)
from bert.models.resolve import Overrides, load_tokenizer
from bert.scripts import startup

# Code written for the original finds these here.
__all__ = [
  "TrainingInstance",
  "create_instances_from_document",
  "create_masked_lm_predictions",
  "create_training_instances",
  "truncate_seq_pair",
  "write_instance_to_example_files",
]

# The unit of --shard_mb, and the size above which shards are recommended.
_MB = 1_000_000
_LARGE_MB = 64

# Below this share of continuation pieces, nearly all pieces are whole words.
_FEW_CONTINUATIONS = 0.01

# Flags that have no effect without masking.
_MASKING_FLAGS = (
  "max_predictions_per_seq",
  "masked_lm_prob",
  "do_whole_word_mask",
  "dupe_factor",
)


# fmt: off
FLAGS = table(
  flag_table.TEXT,
  (
    flag_table.sequence_length(
      "A longer document is divided into several examples."
    ),
    Flag("input_file", None,
         "UTF-8 text files, or gzip files (.gz) of them: comma-separated "
         "paths or patterns. One sentence per line, and an empty line between "
         "documents.", kind=PATH),
    Flag("output_file", None,
         "TFRecord file to write, or a comma-separated list of files that get "
         "the examples in turn.", kind=PATH),
    Flag("shard_mb", 0.0,
         "Split the input into shards of whole documents of this size in MB. "
         "Shards bound the memory and are processed in parallel. Random next "
         "sentences and the order of examples are drawn within a shard. 0: a "
         "single shard, as in the original.", check=at_least(0)),
    Flag("num_workers", None,
         "Number of processes that share the shards; it does not change the "
         "output. Default: the number of cores.", kind=int, check=COUNT),
    Flag("runner", None,
         "Process the shards with this runner of Apache Beam, such as "
         "FnApiRunner (in this process) or DataflowRunner. Unknown flags are "
         "passed to Beam."),
    Flag("random_seed", 12345,
         "Random seed. The same command gives the same files."),
    Flag("dupe_factor", 10,
         "Number of passes over the input, each with different masks; 1 with "
         "--no_masking.", check=COUNT),
    Flag("short_seq_prob", 0.1,
         "Probability that the examples of a document are shorter than "
         "--max_seq_length.", check=PROPORTION),
    Flag("next_sentence_prediction", True,
         "Create pairs of texts for next sentence prediction. Otherwise, "
         "create single texts, for which one document is enough."),
    Flag("no_masking", False,
         "Write each example once and without masks, for run_pretraining.py "
         "--dynamic_masking, which draws new masks in every epoch."),
  ),
  flag_table.masking(),
)
# fmt: on


def make_config(flags: Flags) -> corpus.CorpusConfig:
  """The CorpusConfig that the flags describe."""
  flags.require("input_file", "output_file")
  tokenizer = load_tokenizer(Overrides.of(flags.given))
  lower_cases = tokenizer.basic_tokenizer.do_lower_case
  flags = flags.changed(do_lower_case=lower_cases)
  names = [field.name for field in dataclasses.fields(corpus.CorpusConfig)]
  config = corpus.CorpusConfig(**{name: flags[name] for name in names})
  if flags.no_masking:
    flags.warn_if_given("omit it or --no_masking", *_MASKING_FLAGS)
    config = dataclasses.replace(
      config, dupe_factor=1, max_predictions_per_seq=0
    )
  instances.check_length(
    flags.max_seq_length, flags.next_sentence_prediction, tokenizer.special
  )
  # Check the special pieces before reading the text.
  instances.vocabulary_settings(
    tokenizer, flags.do_whole_word_mask, config.max_predictions_per_seq
  )
  return config


def count_workers(flags: Flags) -> int:
  """The number of processes that may share the shards."""
  if flags.num_workers:
    return flags.num_workers
  # On a shared machine, count only the cores assigned to this process.
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def log_corpus(
  flags: Flags, scanned: corpus.Corpus, num_files: int, num_workers: int
) -> None:
  """Logs the size of the corpus, and recommends shards for a large one."""
  workers = f"--runner={flags.runner}"
  if not flags.runner:
    workers = plural(min(num_workers, len(scanned.shards)), "worker")
  logging.info(
    "%s, %.2f MB: %s in %s for %s",
    plural(num_files, "file"),
    scanned.size / _MB,
    plural(scanned.num_documents, "document"),
    plural(len(scanned.shards), "shard"),
    workers,
  )
  wants_shards = flags.runner or (flags.num_workers or 1) > 1
  if not flags.shard_mb and (wants_shards or scanned.size > _LARGE_MB * _MB):
    logging.info(
      "A single shard is held in memory and processed by one core; "
      "--shard_mb=8 would bound the memory and use all cores"
    )


def log_counts(
  flags: Flags,
  counts: Mapping[str, int] | None,
  seconds: float,
  outputs: Sequence[str],
) -> None:
  """Logs the statistics of the records."""
  what = "all examples"  # Some Beam runners have no counters.
  if counts:
    num_instances, num_tokens = counts["instances"], counts["tokens"]
    padding = 1 - num_tokens / (num_instances * flags.max_seq_length)
    what = (
      f"{plural(num_instances, 'example')} of {num_tokens:,} tokens, "
      f"{padding:.1%} padding, "
      f"{counts['unknown'] / counts['pieces']:.2%} unknown pieces, "
      f"{num_instances / seconds:,.0f} examples/s,"
    )
    _log_whole_words(flags, counts)
  logging.info("Wrote %s in %.1f s to %s", what, seconds, ", ".join(outputs))


def _log_whole_words(flags, counts):
  """Warns if --do_whole_word_mask has little or no effect."""
  if not flags.do_whole_word_mask or flags.no_masking:
    return
  if counts["cut_words"]:
    logging.warning(
      "%d of %s have only words with more pieces than predictions; one word "
      "of each is partially masked",
      counts["cut_words"],
      plural(counts["instances"], "example"),
    )
  if counts["continuations"] < _FEW_CONTINUATIONS * counts["pieces"]:
    logging.warning(
      "--do_whole_word_mask has no effect: nearly all word pieces are whole "
      "words, as in Chinese, where each character is one"
    )


def main(flags: Flags, beam_arguments: Sequence[str] = ()) -> dict[str, int]:
  config = make_config(flags)
  input_files = flags.find_files("input_file")
  flags.refuse_pipes("input_file", input_files)
  outputs = flags.output_file.split(",")
  flags.check_output_files(
    "output_file",
    outputs,
    [*input_files, flags.vocab_file, flags.spm_model_file],
  )
  num_workers = count_workers(flags)
  pipeline = None
  if flags.runner:
    if flags.num_workers:  # Beam has a flag of the same name.
      workers = f"--num_workers={flags.num_workers}"
      beam_arguments = [*beam_arguments, workers]
    pipeline = corpus_beam.beam_pipeline(flags.runner, beam_arguments)
  start = time.monotonic()
  with corpus_workers.workspace(outputs) as (paths, prefix):
    scanned = corpus.scan(
      progress.bar(input_files, unit="file"),
      flags.shard_mb * _MB,
      2 if flags.next_sentence_prediction else 1,
      # A single shard is read from its start, and needs no copy of its text.
      prefix if flags.shard_mb else None,
    )
    log_corpus(flags, scanned, len(input_files), num_workers)
    job = (scanned, config, paths, prefix)
    if pipeline:
      counts = corpus_beam.write_records_by_beam(*job, pipeline)
    else:
      total = scanned.num_documents * config.dupe_factor
      with progress.bar(total=total, unit="document") as bar:
        counts = corpus_workers.write_records(*job, num_workers, bar.update)
  log_counts(flags, counts, time.monotonic() - start, outputs)
  return dict(counts or {})


run, command = startup.script(main, FLAGS, passes_on="runner")

if __name__ == "__main__":
  command()
