"""Learns a vocabulary from text: WordPiece, or a SentencePiece model.

    python build_vocab.py --input_file=wiki.txt.gz --output_file=vocab.txt \\
      --vocab_size=30522

Text is split into words as by the tokenizer. Every 50th line is held out to
report how well the vocabulary covers new text. Equal text and flags give equal
files.
"""

import collections
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import quiet_start  # noqa: F401  Before TensorFlow.
from absl import flags, logging

import modeling
import tokenization
from errors import UserError, plural
from pipeline import files, new_pieces, progress, text_files
from tasks import extended_model
from training import common_flags, flag_checks, model_flags, startup

FLAGS = flags.FLAGS

# One in this number of lines with text is held out.
HELDOUT_LINES = 50

# Equal strings in this number of lines are counted before they are split.
_COUNTED_LINES = 2**16

# The WordPiece trainer reads words, not counts: up to this many per string.
_REPEATED_WORDS = 1000

# Flags that have no effect with --extend.
_LEARNING_FLAGS = ("vocab_size", "num_unused", "min_frequency")


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
  )
  flags.DEFINE_integer(
    "num_unused",
    99,
    "Number of pieces [unused0], [unused1], ..., which never occur in text and "
    "can be replaced by words of a new domain.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "min_frequency",
    2,
    "Minimum number of occurrences of a character, and of a wordpiece.",
    lower_bound=1,
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


class WordCounts(NamedTuple):
  """Counts of the words to learn from, the held-out words, and the lines."""

  words: collections.Counter
  heldout: collections.Counter
  lines: int


def word_splitter(
  model_type: str, do_lower_case: bool = True
) -> Callable[[str], list[str]]:
  """A function that splits text into the words that are split into pieces."""
  if model_type == "wordpiece":
    return tokenization.BasicTokenizer(do_lower_case).tokenize
  if do_lower_case:
    return lambda text: tokenization.lower_case(text).split()
  return str.split


def count_words(
  lines: Iterable[str], split: Callable[[str], list[str]]
) -> WordCounts:
  """Counts the words of lines, holding out every 50th line with text.

  Memory use depends on the number of distinct words, not of lines.
  """
  counts = collections.Counter(), collections.Counter()
  strings = collections.Counter(), collections.Counter()

  def split_strings():
    for words, counted in zip(counts, strings, strict=True):
      for string, count in counted.items():
        for word in split(string):
          words[word] += count
      counted.clear()

  num_lines = 0
  for line in lines:
    if line and not line.isspace():
      num_lines += 1
      strings[num_lines % HELDOUT_LINES == 0].update(line.split(" "))
      if num_lines % _COUNTED_LINES == 0:
        split_strings()
  split_strings()
  return WordCounts(*counts, num_lines)


def special_pieces(num_unused: int) -> list[str]:
  """The first pieces of a vocabulary, in the order of released ones."""
  unused = [f"[unused{index}]" for index in range(num_unused)]
  return ["[PAD]", *unused, tokenization.UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]


def learn_wordpiece(
  words: Mapping[str, int],
  vocab_size: int,
  num_unused: int = 99,
  min_frequency: int = 2,
) -> list[str]:
  """Learns WordPiece by merging the most frequent pairs of pieces.

  Args:
    words: counts of words.
    vocab_size: maximum number of pieces.
    num_unused: number of pieces [unused0], ... among them.
    min_frequency: minimum number of occurrences of a merged piece, and of a
      character. Words with a rarer character are ignored, because the tokenizer
      could not split them.

  Returns:
    The special pieces, the characters, and the merged pieces by frequency.

  Raises:
    UserError: `vocab_size` is too small.
  """
  import tokenizers

  longest = tokenization.MAX_WORD_LENGTH
  words = {word: n for word, n in words.items() if len(word) <= longest}
  characters = _count_characters(words)
  rare = {char for char, n in characters.items() if n < min_frequency}
  words = {word: n for word, n in words.items() if rare.isdisjoint(word)}
  # The trainer breaks ties by the ids of characters, which vary from run to run
  # unless the alphabet is given.
  alphabet = sorted({char for word in words for char in word})
  alphabet += sorted({"##" + char for word in words for char in word[1:]})
  given = special_pieces(num_unused) + alphabet
  if len(given) > vocab_size:
    raise _too_small(vocab_size, len(given))
  tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
  trainer = tokenizers.trainers.WordPieceTrainer(
    vocab_size=vocab_size,
    min_frequency=min_frequency,
    special_tokens=given,
    show_progress=False,
  )
  repeated = (
    " ".join([word] * min(_REPEATED_WORDS, count - start))
    for word, count in words.items()
    for start in range(0, count, _REPEATED_WORDS)
  )
  tokenizer.train_from_iterator(repeated, trainer)
  vocab = tokenizer.get_vocab()
  return sorted(vocab, key=vocab.get)


def _count_characters(words):
  characters = collections.Counter()
  for word, count in words.items():
    for char in word:
      characters[char] += count
  return characters


def _too_small(vocab_size, minimum):
  return UserError(
    f"--vocab_size={vocab_size} has no room for the special pieces, "
    f"--num_unused and the characters of the text; pass {minimum} or more, or "
    f"raise --min_frequency to ignore rare characters"
  )


def learn_sentencepiece(
  words: Mapping[str, int],
  vocab_size: int,
  model_type: str = "unigram",
  num_unused: int = 99,
  min_frequency: int = 2,
) -> bytes:
  """Learns a SentencePiece model (Kudo & Richardson 2018).

  Args:
    words, vocab_size, num_unused: see `learn_wordpiece`.
    model_type: "unigram" or "bpe".
    min_frequency: minimum number of occurrences of a character. Rarer ones
      become [UNK].

  Returns:
    The content of the model file.

  Raises:
    UserError: `vocab_size` is too small, or there is too little text.
  """
  import sentencepiece

  characters = _count_characters(words)
  characters[tokenization.WORD_START] += sum(words.values())
  kept = sum(n for n in characters.values() if n >= min_frequency)
  specials = special_pieces(num_unused)
  pad, *unused, unknown, cls, sep, mask = specials
  model = io.BytesIO()
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=(f"{word}\t{n}" for word, n in sorted(words.items())),
      input_format="tsv",
      model_writer=model,
      model_type=model_type,
      # With less, its error message lacks the minimum size.
      vocab_size=max(vocab_size, len(specials)),
      hard_vocab_limit=False,
      # The trainer drops the rarest characters, but accepts no less than 0.98.
      character_coverage=max(kept / (characters.total() or 1), 0.98),
      max_sentence_length=2**16,  # Longer words are ignored.
      num_threads=16,  # The result depends on it.
      bos_id=-1,
      eos_id=-1,
      pad_id=0,
      pad_piece=pad,
      unk_id=1 + num_unused,
      unk_piece=unknown,
      control_symbols=[*unused, cls, sep, mask],
      minloglevel=2,
    )
  except RuntimeError as error:
    too_small = re.search(r"than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
      raise _too_small(vocab_size, int(too_small[1])) from error
    raise UserError(
      f"SentencePiece cannot learn from this text ({error}); pass more text"
    ) from error
  return model.getvalue()


def report(
  tokenizer: tokenization.FullTokenizer, words: Mapping[str, int]
) -> str:
  """How well a tokenizer covers held-out words, given their counts."""
  if not words:
    return f"no lines held out, because there are fewer than {HELDOUT_LINES}"
  split = tokenizer.wordpiece_tokenizer.tokenize
  unknown = tokenizer.wordpiece_tokenizer.unk_token
  total = sum(words.values())
  num_pieces = sum(n * len(split(word)) for word, n in words.items())
  missed = {word: n for word, n in words.items() if unknown in split(word)}
  characters = _count_characters(words)
  known = sum(n for c, n in characters.items() if unknown not in split(c))
  text = (
    f"{total:,} held-out words: {1 - sum(missed.values()) / total:.2%} fully "
    f"known, {known / characters.total():.2%} of characters known, "
    f"{num_pieces / total:.2f} pieces per word"
  )
  if missed:
    # By count, and alphabetically for equal counts.
    ranked = sorted(missed.items(), key=lambda item: (-item[1], item[0]))
    listed = " ".join(f"{word} ({n:,})" for word, n in ranked[:10])
    text += f"\nmost frequent words that are not fully known: {listed}"
  return text


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
    pieces = learn_wordpiece(words, FLAGS.vocab_size, *sizes)
    files.write_file(path, "".join(f"{piece}\n" for piece in pieces))
    return tokenization.FullTokenizer(path, FLAGS.do_lower_case)
  model = learn_sentencepiece(words, FLAGS.vocab_size, FLAGS.model_type, *sizes)
  files.write_file(path, model)
  return tokenization.FullTokenizer(None, FLAGS.do_lower_case, path)


def load_old_vocabulary() -> tokenization.FullTokenizer:
  """The tokenizer of --extend; it belongs to the model in --init_checkpoint."""
  text_files.decode_utf8(FLAGS.extend, files.read_bytes(FLAGS.extend))
  old = tokenization.FullTokenizer(FLAGS.extend, FLAGS.do_lower_case)
  model_flags.check_vocabulary_file(old, "extend", FLAGS.extend)
  model_flags.warn_of_casing(old.vocab, FLAGS.extend)
  if FLAGS.init_checkpoint:
    prefix, config = extended_model.find_base(
      FLAGS.init_checkpoint, list(old.vocab), FLAGS.do_lower_case
    )
    if config.vocab_size > len(old.vocab):
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
  return (
    f"{path}: {len(replaced):,} new pieces, {len(pieces):,} in total; the "
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
  inputs = [*paths, FLAGS.extend] if FLAGS.extend else paths
  flag_checks.check_output_files("output_file", [FLAGS.output_file], inputs)
  if FLAGS.update_config:
    flag_checks.require_file("update_config")
    config = [FLAGS.update_config]
    flag_checks.check_output_files("update_config", config, paths)
  return paths


def main() -> None:
  paths = check_flags()
  if FLAGS.update_config:
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


if __name__ == "__main__":
  startup.run(main, define_flags)
