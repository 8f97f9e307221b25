"""Learns a vocabulary from text: WordPiece, or a SentencePiece model.

    python build_vocab.py --input_file=wiki.txt.gz --output_file=vocab.txt \\
      --vocab_size=30522

Text is split into words as by the tokenizer. Every 50th line is held out to
report how well the vocabulary covers new text. Equal text and flags give equal
files.
"""

import os
from collections.abc import Mapping, Sequence

from absl import flags, logging

import tokenization
from bert.errors import UserError, plural
from bert.data import files, new_pieces, progress, text_files
from bert.data.vocabulary import (
  WordCounts,
  count_words,
  learn_sentencepiece,
  learn_wordpiece,
  report,
  special_pieces,
  word_splitter,
)
from bert.training import (
  common_flags,
  flag_checks,
  model_flags,
  startup,
  termination,
)

FLAGS = flags.FLAGS

# Flags that have no effect with --extend.
_LEARNING_FLAGS = ("vocab_size", "num_unused", "min_frequency")

# Trainers reserve memory for --vocab_size pieces, however small the text.
_MAX_PIECES = 10**7


def define_flags() -> None:
  """Defines the flags of this script."""
  flags.DEFINE_string(
    "input_file",
    None,
    "UTF-8 text files, or gzip files (.gz) of them: comma-separated paths or "
    "patterns such as wiki/*.txt.",
  )
  flags.DEFINE_string(
    "output_file", None, "The vocab.txt, or SentencePiece model, to write."
  )
  flags.DEFINE_enum(
    "model_type",
    "wordpiece",
    ["wordpiece", "unigram", "bpe"],
    "wordpiece: a vocab.txt; unigram or bpe: a SentencePiece model.",
  )
  flags.DEFINE_integer(
    "vocab_size",
    30522,
    "Maximum number of pieces, including special and unused ones.",
    lower_bound=1,
    upper_bound=_MAX_PIECES,
  )
  flags.DEFINE_integer(
    "num_unused",
    99,
    "Number of pieces [unused0], [unused1], ..., which never occur in text and "
    "can be replaced by words of a new domain.",
    lower_bound=0,
    upper_bound=_MAX_PIECES,
  )
  flags.DEFINE_integer(
    "min_frequency",
    2,
    "Minimum number of occurrences of a character, and of a wordpiece.",
    lower_bound=1,
    upper_bound=2**31 - 1,
  )
  flags.DEFINE_bool("do_lower_case", True, "Lower-case and strip accents.")
  flags.DEFINE_string(
    "update_config",
    None,
    "A bert_config.json in which to set vocab_size to the number of pieces.",
  )
  _define_extend_flags()


def _define_extend_flags():
  flags.DEFINE_string(
    "extend",
    None,
    "A vocab.txt to extend by --num_new pieces, which replace [unused0], "
    "[unused1], ...; the rest are appended.",
  )
  flags.DEFINE_integer(
    "num_new", 1000, "Number of pieces to add to --extend.", lower_bound=1
  )
  flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Checkpoint of the model that --extend belongs to, beside its "
    "bert_config.json. The extended model is written to --output_dir; the "
    "embedding of a new piece is the mean of those of the pieces that it "
    "replaces.",
  )
  common_flags.define_download_flag()
  flags.DEFINE_string(
    "output_dir", None, "Folder for the model with the extended vocabulary."
  )


def read_words(paths: Sequence[str]) -> WordCounts:
  """The words of files; UserError if there are none to learn from."""
  lines = (line for path in paths for line in text_files.read_lines(path))
  counts = count_words(
    progress.bar(lines, unit=" lines"),
    word_splitter(FLAGS.model_type, FLAGS.do_lower_case),
  )
  if not counts.words:
    raise UserError(
      f"--input_file={FLAGS.input_file} has no words; pass files with text"
    )
  return counts


def write_vocabulary(words: Mapping[str, int]) -> tokenization.FullTokenizer:
  """Writes the vocabulary that the flags describe; returns its tokenizer."""
  path, sizes = FLAGS.output_file, (FLAGS.num_unused, FLAGS.min_frequency)
  if FLAGS.model_type == "wordpiece":
    with termination.default_handlers():
      pieces = learn_wordpiece(words, FLAGS.vocab_size, *sizes)
    files.write_file(path, "".join(f"{piece}\n" for piece in pieces))
    return tokenization.FullTokenizer(path, FLAGS.do_lower_case)
  with termination.default_handlers():
    model = learn_sentencepiece(
      words, FLAGS.vocab_size, FLAGS.model_type, *sizes
    )
  files.write_file(path, model)
  return tokenization.FullTokenizer(None, FLAGS.do_lower_case, path)


def load_old_vocabulary() -> tokenization.FullTokenizer:
  """The tokenizer of --extend; it belongs to the model in --init_checkpoint."""
  text_files.check_utf8(FLAGS.extend)
  old = tokenization.FullTokenizer(FLAGS.extend, FLAGS.do_lower_case)
  if repeated := model_flags.find_repeated(old, FLAGS.extend):
    piece, first, last = repeated
    raise UserError(
      f"--extend={FLAGS.extend} has {piece!r} in lines {first} and {last}; "
      f"replace line {first}, whose id is unused, by a new piece"
    )
  model_flags.check_vocabulary_file(old, "extend", FLAGS.extend)
  model_flags.warn_of_casing(old.vocab, FLAGS.extend)
  if FLAGS.init_checkpoint:
    from bert.tasks import extended_model  # Needs NumPy.

    prefix, config = extended_model.find_base(
      FLAGS.init_checkpoint, list(old.vocab), FLAGS.do_lower_case
    )
    path = os.path.join(os.path.dirname(prefix), "vocab.txt")
    known = tokenization.load_vocab(path) if files.exists(path) else {}
    # Embeddings belong to lines. Those that no piece uses may be edited.
    if any(known.get(piece, n) != n for piece, n in old.vocab.items()):
      raise UserError(
        f"--extend={FLAGS.extend} has pieces in other lines than the "
        f"vocabulary of {prefix}; pass --extend={path}"
      )
    if not known and config.vocab_size > len(old.vocab):
      logging.warning(
        "%s has %d embeddings, more than the %d pieces of --extend; make sure "
        "that it is the vocabulary of the model",
        prefix,
        config.vocab_size,
        len(old.vocab),
      )
  return old


def extend_vocabulary(
  old: tokenization.FullTokenizer, counts: WordCounts
) -> str:
  """Writes what --extend asks for; returns how well it covers the text."""
  logging.info("Choosing %s", plural(FLAGS.num_new, "piece"))
  replaced = new_pieces.choose_pieces(
    counts.words, old.wordpiece_tokenizer.tokenize, FLAGS.num_new
  )
  pieces = new_pieces.extend_vocabulary(list(old.vocab), list(replaced))
  path = FLAGS.output_file
  if FLAGS.init_checkpoint:
    from bert.tasks import extended_model  # Needs NumPy.

    extended_model.write_extended_model(
      FLAGS.init_checkpoint,
      FLAGS.output_dir,
      list(old.vocab),
      pieces,
      replaced,
      FLAGS.do_lower_case,
    )
    path = os.path.join(FLAGS.output_dir, "vocab.txt")
  else:
    files.write_file(path, "".join(f"{piece}\n" for piece in pieces))
  extended = tokenization.FullTokenizer(path, FLAGS.do_lower_case)
  are_few = len(replaced) < FLAGS.num_new
  return (
    f"{path}: {len(replaced):,} new pieces"
    f"{' (no other word of several pieces occurs twice)' if are_few else ''}, "
    f"{len(pieces):,} in total; the "
    f"first are {', '.join(list(replaced)[:10])}\n"
    f"before: {report(old, counts.heldout)}\n"
    f"after:  {report(extended, counts.heldout)}"
  )


def _holds_model(folder):
  """Whether a folder has weights, not just the files of a killed run."""
  names = files.listdir(folder) if files.isdir(folder) else []
  return any(
    name.endswith((".index", ".safetensors")) and not files.is_partial(name)
    for name in names
  )


def check_extend_flags() -> None:
  """Checks --extend and the flags that belong to it."""
  unused = _LEARNING_FLAGS if FLAGS.extend else ("num_new",)
  for name in unused:
    if not FLAGS[name].using_default_value:
      which = "with" if FLAGS.extend else "without"
      raise UserError(f"--{name} has no effect {which} --extend; omit it")
  if not FLAGS.extend:
    for name in ("init_checkpoint", "output_dir"):
      if FLAGS[name].value:
        raise UserError(f"--{name} is for --extend only; omit it")
    return
  flag_checks.require_file("extend")
  flag_checks.refuse_pipes("extend", [FLAGS.extend])
  if FLAGS.model_type != "wordpiece" or FLAGS.update_config:
    raise UserError(
      "--extend is for word pieces, and writes the configuration to "
      "--output_dir; omit --model_type and --update_config"
    )
  if bool(FLAGS.init_checkpoint) != bool(FLAGS.output_dir):
    raise UserError(
      "--init_checkpoint and --output_dir belong together; pass both or none"
    )
  flag_checks.check_exclusive("output_dir", "output_file")
  if FLAGS.output_dir:
    flag_checks.check_output_folder(FLAGS.output_dir)
    if _holds_model(FLAGS.output_dir):
      raise UserError(
        f"--output_dir={FLAGS.output_dir} holds a model; pass another folder"
      )
    written = os.path.join(FLAGS.output_dir, "vocab.txt")
    if os.path.realpath(written) == os.path.realpath(FLAGS.extend):
      raise UserError(
        f"--output_dir={FLAGS.output_dir} holds --extend={FLAGS.extend}, which "
        f"would be overwritten; pass another folder"
      )


def check_flags() -> list[str]:
  """Checks the files in the flags; returns those to read."""
  paths = flag_checks.find_files("input_file")
  check_extend_flags()
  if FLAGS.output_dir:
    return paths
  flag_checks.require("output_file")
  if FLAGS.model_type == "wordpiece" and FLAGS.output_file.endswith(".json"):
    raise UserError(
      f"--output_file={FLAGS.output_file} would be read as JSON, but one piece "
      f"per line is written; pass another name, such as vocab.txt"
    )
  inputs = [*paths, FLAGS.extend, FLAGS.update_config]
  flag_checks.check_output_files("output_file", [FLAGS.output_file], inputs)
  if FLAGS.update_config:
    flag_checks.require_file("update_config")
    config = [FLAGS.update_config]
    flag_checks.check_output_files("update_config", config, paths)
  return paths


def main() -> None:
  paths = check_flags()
  if FLAGS.update_config:
    import modeling  # Needs NumPy.

    config = modeling.BertConfig.from_json_file(FLAGS.update_config)
  old = load_old_vocabulary() if FLAGS.extend else None
  logging.info("Counting words in %s", plural(len(paths), "file"))
  counts = read_words(paths)
  if old:
    print(extend_vocabulary(old, counts))
    return
  logging.info(
    "Learning %s from %s",
    plural(FLAGS.vocab_size, "piece"),
    plural(len(counts.words), "distinct word"),
  )
  tokenizer = write_vocabulary(counts.words)
  size = len(tokenizer.vocab)
  if size < FLAGS.vocab_size:
    logging.warning(
      "The text yields only %s, fewer than --vocab_size=%d",
      plural(size, "piece"),
      FLAGS.vocab_size,
    )
  if FLAGS.update_config:
    config.vocab_size = size
    files.write_file(FLAGS.update_config, config.to_json_string())
  learned = size - len(special_pieces(FLAGS.num_unused))
  print(
    f"{counts.lines:,} lines; {counts.words.total():,} words to learn from, "
    f"{len(counts.words):,} distinct\n"
    f"{FLAGS.output_file}: {size:,} pieces, {learned:,} learned\n"
    + report(tokenizer, counts.heldout)
  )


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
