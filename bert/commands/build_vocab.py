"""Learns a vocabulary from text: WordPiece, or a SentencePiece model.

    python build_vocab.py --input_file=wiki.txt.gz --output_file=vocab.txt \\
      --vocab_size=30522

Text is split into words as the tokenizer does. Every 50th line is held out to
report how well the vocabulary covers new text. Equal text and flags give equal
files.
"""

import os
from collections.abc import Mapping

from absl import logging

import tokenization
from bert import termination
from bert.data import files, progress, text_files, vocabulary
from bert.data.vocabulary import WordCounts
from bert.errors import UserError, plural
from bert.export import new_folder
from bert.flags import flag_table
from bert.flags.values import (
  COUNT,
  PATH,
  Flag,
  Flags,
  at_least,
  check_output_folder,
  table,
)
from bert.models.resolve import Overrides, load_tokenizer, resolve
from bert.scripts import startup

# Flags that have no effect with --extend, and those that need it.
_LEARNING_FLAGS = (
  *("vocab_size", "num_unused", "min_frequency"),
  *("model_type", "update_config"),
)
_EXTENDING_FLAGS = ("num_new", "init_checkpoint", "output_dir")

# Trainers reserve memory for --vocab_size pieces, however small the text.
_MAX_PIECES = 10**7


# fmt: off
FLAGS = table(
  (
    Flag("input_file", None,
         "UTF-8 text files, or gzip files (.gz) of them: comma-separated "
         "paths or patterns such as wiki/*.txt.", kind=PATH),
    Flag("output_file", None,
         "The vocab.txt, or SentencePiece model, to write.", kind=PATH),
    Flag("model_type", "wordpiece",
         "wordpiece: a vocab.txt; unigram or bpe: a SentencePiece model.",
         choices=("wordpiece", "unigram", "bpe")),
    Flag("vocab_size", 30522,
         "Maximum number of pieces, including special and unused ones.",
         check=at_least(1, _MAX_PIECES)),
    Flag("num_unused", 99,
         "Number of pieces [unused0], [unused1], ..., which never occur in "
         "text and can be replaced by words of a new domain.",
         check=at_least(0, _MAX_PIECES)),
    Flag("min_frequency", 2,
         "Minimum number of occurrences of a character, and of a wordpiece.",
         check=at_least(1, 2**31 - 1)),
    flag_table.LOWER_CASE.but(
      help="Lower-case and strip accents. With --extend, by default as its "
      "model does."),
    Flag("update_config", None,
         "A bert_config.json in which to set vocab_size to the number of "
         "pieces.", kind=PATH),
    Flag("extend", None,
         "A vocab.txt to extend by --num_new pieces, which replace [unused0], "
         "[unused1], ...; the rest are appended.", kind=PATH),
    Flag("num_new", 1000, "Number of pieces to add to --extend.", check=COUNT),
    Flag("init_checkpoint", None,
         "Checkpoint of the model that --extend belongs to, beside its "
         "bert_config.json. The extended model is written to --output_dir; "
         "the embedding of a new piece is the mean of those of the pieces "
         "that it replaces.", kind=PATH),
    flag_table.OFFLINE,
    Flag("output_dir", None,
         "Folder for the model with the extended vocabulary.", kind=PATH),
  )
)
# fmt: on


def write_vocabulary(
  flags: Flags, words: Mapping[str, int]
) -> tokenization.FullTokenizer:
  """Writes the vocabulary that the flags describe; returns its tokenizer."""
  path, is_wordpiece = flags.output_file, flags.model_type == "wordpiece"
  size, limits = flags.vocab_size, (flags.num_unused, flags.min_frequency)
  with termination.default_handlers():
    if is_wordpiece:
      pieces = vocabulary.learn_wordpiece(words, size, *limits)
      content = vocabulary.vocab_text(pieces)
    else:
      content = vocabulary.learn_sentencepiece(
        words, size, flags.model_type, *limits
      )
  files.write_file(path, content)
  paths = (path, None) if is_wordpiece else (None, path)
  return tokenization.FullTokenizer(paths[0], flags.do_lower_case, paths[1])


def load_old_vocabulary(flags: Flags) -> tokenization.FullTokenizer:
  """The tokenizer of --extend; it belongs to the model in --init_checkpoint."""
  given = f"--extend={flags.extend}"
  casing = flags.given.get("do_lower_case")
  overrides = Overrides(vocab_file=flags.extend, do_lower_case=casing)
  if flags.init_checkpoint:
    model = resolve(flags.init_checkpoint, overrides, is_start=True)
    old = model.tokenizer
  else:
    old = load_tokenizer(overrides)
  if not old.splits_words:
    raise UserError(f"{given} has no word pieces; pass a vocab.txt")
  if repeated := vocabulary.find_repeated(old, flags.extend):
    piece, first, last = repeated
    raise UserError(
      f"{given} has {piece!r} in lines {first} and {last}; replace line "
      f"{first}, whose id is unused, by a new piece"
    )
  if flags.init_checkpoint:
    path = os.path.join(model.folder, "vocab.txt")
    known = tokenization.load_vocab(path) if files.exists(path) else {}
    # An embedding belongs to a line. Lines that no piece uses may differ.
    if any(known.get(piece, n) != n for piece, n in old.vocab.items()):
      raise UserError(
        f"{given} has pieces in other lines than the vocabulary of "
        f"{model.checkpoint}; pass --extend={path}"
      )
  return old


def extend_vocabulary(
  flags: Flags, old: tokenization.FullTokenizer, counts: WordCounts
) -> int:
  """Writes the extended vocabulary or model; returns the number of pieces."""
  logging.info("Choosing %s", plural(flags.num_new, "piece"))
  replaced = vocabulary.choose_pieces(
    counts.words, old.wordpiece_tokenizer.tokenize, flags.num_new
  )
  pieces = vocabulary.extend_vocabulary(list(old.vocab), list(replaced))
  path = flags.output_file
  if flags.init_checkpoint:
    from bert.models import extended_model  # Needs NumPy.

    with new_folder.new_folder(flags.output_dir) as folder:
      extended_model.write_extended_model(
        flags.init_checkpoint,
        folder,
        list(old.vocab),
        pieces,
        replaced,
        flags.do_lower_case,
      )
    path = os.path.join(flags.output_dir, "vocab.txt")
  else:
    files.write_file(path, vocabulary.vocab_text(pieces))
  extended = tokenization.FullTokenizer(path, flags.do_lower_case)
  are_few = len(replaced) < flags.num_new
  print(
    f"{path}: {len(replaced):,} new pieces"
    f"{' (no other word of several pieces occurs twice)' if are_few else ''}, "
    f"{len(pieces):,} in total; the "
    f"first are {', '.join(list(replaced)[:10])}\n"
    f"before: {vocabulary.report(old, counts.heldout)}\n"
    f"after:  {vocabulary.report(extended, counts.heldout)}"
  )
  return len(pieces)


def check_extend_flags(flags: Flags) -> None:
  """Checks --extend and the flags that belong to it."""
  if not flags.extend:
    flags.warn_if_given("add --extend", *_EXTENDING_FLAGS)
    return
  flags.warn_if_given("omit it", *_LEARNING_FLAGS)
  flags.require_file("extend")
  flags.refuse_pipes("extend", [flags.extend])
  if flags.init_checkpoint or flags.output_dir:
    flags.require("init_checkpoint", "output_dir")
    flags.check_exclusive("output_dir", "output_file")
    check_output_folder(flags.output_dir)
    new_folder.check_is_new(flags.output_dir)


def check_flags(flags: Flags) -> list[str]:
  """Checks the files in the flags; returns those to read."""
  paths = flags.find_files("input_file")
  check_extend_flags(flags)
  if flags.extend and flags.output_dir:
    return paths
  flags.require("output_file")
  inputs = [*paths, flags.extend, flags.update_config]
  flags.check_output_files("output_file", [flags.output_file], inputs)
  if flags.update_config:
    flags.require_file("update_config")
    config = [flags.update_config]
    flags.check_output_files("update_config", config, paths)
  return paths


def main(flags: Flags) -> dict[str, int]:
  paths = check_flags(flags)
  if flags.update_config:
    import modeling  # Needs NumPy.

    config = modeling.BertConfig.from_json_file(flags.update_config)
  old = load_old_vocabulary(flags) if flags.extend else None
  if old:
    lower_cases = old.basic_tokenizer.do_lower_case
    flags = flags.changed(do_lower_case=lower_cases)
  logging.info("Counting words in %s", plural(len(paths), "file"))
  lines = (line for path in paths for line in text_files.read_lines(path))
  split = vocabulary.word_splitter(flags.model_type, flags.do_lower_case)
  counts = vocabulary.count_words(progress.bar(lines, unit=" lines"), split)
  given = f"--input_file={flags.input_file}"
  files.check_holds(counts.words, given, "words", "pass files with text")
  if old:
    return {"pieces": extend_vocabulary(flags, old, counts)}
  logging.info(
    "Learning %s from %s",
    plural(flags.vocab_size, "piece"),
    plural(len(counts.words), "distinct word"),
  )
  tokenizer = write_vocabulary(flags, counts.words)
  size = len(tokenizer.vocab)
  if size < flags.vocab_size:
    few, wanted = plural(size, "piece"), flags.vocab_size
    logging.warning("The text yields only %s of --vocab_size=%d", few, wanted)
  if flags.update_config:
    config.vocab_size = size
    files.write_file(flags.update_config, config.to_json_string())
  learned = size - len(vocabulary.special_pieces(flags.num_unused))
  print(
    f"{counts.lines:,} lines; {counts.words.total():,} words to learn from, "
    f"{len(counts.words):,} distinct\n"
    f"{flags.output_file}: {size:,} pieces, {learned:,} learned\n"
    + vocabulary.report(tokenizer, counts.heldout)
  )
  return {"pieces": size}


run, command = startup.script(main, FLAGS)
