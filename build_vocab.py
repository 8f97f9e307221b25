"""Learns a vocabulary from text: WordPiece, or a SentencePiece model.

    python build_vocab.py --input_file=wiki.txt.gz --output_file=vocab.txt \\
      --vocab_size=30522

Words are cut as the tokenizer will cut them, so that what is learnt is what is
looked up. Every 50th line is held out, and shows how well the vocabulary does
on text that it was not learnt from. Equal text and flags give equal bytes.
"""

from training import common_flags
import collections
import dataclasses
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from absl import flags, logging

import modeling
import tokenization
from errors import UserError
from pipeline import files, text_files
from training import summaries
from training import startup

FLAGS = flags.FLAGS

# One line in so many that have text is held out.
HELDOUT_LINES = 50

# Lines whose words are counted before they are cut. A word is cut once for all
# its places in them; more would hold more of a text without blanks in memory.
_COUNTED_LINES = 2**16

# A trainer of WordPiece takes no counts, but words, so many to a string.
_REPEATED_WORDS = 1000

# Longer words are left out by SentencePiece, bytes.
_MAX_SENTENCE_LENGTH = 2**16

# Its message for too few pieces.
_TOO_SMALL = r"smaller than required_chars\. \d+ vs (\d+)"


def define_flags() -> None:
  """The flags of this script."""
  flags.DEFINE_string(
    "input_file",
    None,
    "Text files in UTF-8, or gzip files of them (.gz), separated by commas; "
    "patterns such as wiki/*.txt are welcome.",
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
    "Most pieces to have, the special and unused ones included.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "num_unused",
    99,
    "Pieces [unused0], [unused1], ... that text never yields: room for words "
    "of a later domain.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "min_frequency",
    2,
    "Characters and pieces that occur less often are not learnt.",
    lower_bound=1,
  )
  flags.DEFINE_bool("do_lower_case", True, "Lower-case and strip accents.")
  flags.DEFINE_string(
    "update_config",
    None,
    "A bert_config.json whose vocab_size is set to the number of pieces.",
  )


@dataclasses.dataclass
class WordCounts:
  """How often each word occurs in a text.

  Attributes:
    words: Counter of the words to learn from.
    heldout: Counter of the words of the lines held out.
    lines: number of lines with text, held out or not.
  """

  words: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  heldout: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  lines: int = 0


def word_cutter(
  model_type: str, do_lower_case: bool = True
) -> Callable[[str], list[str]]:
  """What cuts text into the words that a kind of model looks up."""
  if model_type == "wordpiece":
    return tokenization.BasicTokenizer(do_lower_case).tokenize
  if do_lower_case:
    return lambda text: tokenization.lower_case(text).split()
  return str.split


def count_words(
  lines: Iterable[str], cut: Callable[[str], list[str]]
) -> WordCounts:
  """Counts the words of lines, every 50th with text apart.

  Args:
    lines: iterable of str, read once and never held whole.
    cut: from a text without blanks to its words, see `word_cutter`.
  """
  counts = WordCounts()
  learnt, heldout = collections.Counter(), collections.Counter()

  def cut_counted():
    for chunks, words in ((learnt, counts.words), (heldout, counts.heldout)):
      for chunk, count in chunks.items():
        for word in cut(chunk):
          words[word] += count
      chunks.clear()

  for line in lines:
    if not line or line.isspace():
      continue
    counts.lines += 1
    is_heldout = counts.lines % HELDOUT_LINES == 0
    # Whatever else separates words, a blank always does.
    (heldout if is_heldout else learnt).update(line.split(" "))
    if counts.lines % _COUNTED_LINES == 0:
      cut_counted()
  cut_counted()
  return counts


def special_pieces(num_unused: int) -> list[str]:
  """The first pieces of a vocabulary, in the order of the released ones."""
  unused = [f"[unused{index}]" for index in range(num_unused)]
  return ["[PAD]", *unused, tokenization.UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]


def learn_wordpiece(
  words: Mapping[str, int],
  vocab_size: int,
  num_unused: int = 99,
  min_frequency: int = 2,
) -> list[str]:
  """A WordPiece vocabulary, from the most frequent joins of two pieces.

  Args:
    words: how often each word occurs.
    vocab_size: most pieces to return.
    num_unused: number of pieces [unused0], ... among them.
    min_frequency: of a join, and of a character. A word with a rarer character
      is left out: the tokenizer could not cut it either.

  Returns:
    The special pieces, the characters, and joins, the most frequent first;
    fewer than `vocab_size` if there are no more.

  Raises:
    ValueError: `vocab_size` has no room for the characters, or the package
      tokenizers is not there.
  """
  try:
    import tokenizers
  except ImportError as error:
    raise UserError(_not_installed("tokenizers>=0.20.2")) from error
  longest = tokenization.WordpieceTokenizer(()).max_input_chars_per_word
  words = {word: n for word, n in words.items() if len(word) <= longest}
  rare = {
    char for char, n in _count_characters(words).items() if n < min_frequency
  }
  words = {word: n for word, n in words.items() if rare.isdisjoint(word)}
  # The trainer breaks ties by its numbering of characters, which differs from
  # run to run unless they are given beforehand.
  alphabet = sorted({char for word in words for char in word})
  alphabet += sorted({"##" + char for word in words for char in word[1:]})
  given = special_pieces(num_unused) + alphabet
  if len(given) > vocab_size:
    raise UserError(_too_small(vocab_size, len(given)))
  tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
  trainer = tokenizers.trainers.WordPieceTrainer(
    vocab_size=vocab_size,
    min_frequency=min_frequency,
    special_tokens=given,
    show_progress=False,
  )
  tokenizer.train_from_iterator(_repeated(words), trainer)
  vocab = tokenizer.get_vocab()
  return sorted(vocab, key=vocab.get)


def _repeated(words):
  """Each word as often as it occurs, as texts of limited length."""
  for word, count in words.items():
    for start in range(0, count, _REPEATED_WORDS):
      yield " ".join([word] * min(_REPEATED_WORDS, count - start))


def _count_characters(words):
  characters = collections.Counter()
  for word, count in words.items():
    for char in word:
      characters[char] += count
  return characters


def _not_installed(requirement):
  name = re.match(r"\w+", requirement)[0]
  return f"the package {name} is missing; run pip install '{requirement}'"


def _too_small(vocab_size, least):
  return (
    f"--vocab_size={vocab_size} has no room for the special pieces, "
    f"--num_unused and the characters of the text; pass {least} or more, or "
    f"raise --min_frequency to leave out rare characters"
  )


def learn_sentencepiece(
  words: Mapping[str, int],
  vocab_size: int,
  model_type: str = "unigram",
  num_unused: int = 99,
  min_frequency: int = 2,
) -> bytes:
  """A SentencePiece model (Kudo & Richardson 2018), as the bytes of its file.

  Args:
    words: how often each word, between two blanks, occurs.
    vocab_size: most pieces of the model.
    model_type: "unigram" or "bpe".
    num_unused: number of pieces [unused0], ... among them.
    min_frequency: of a character; with rarer ones a word is in part [UNK].

  Raises:
    ValueError: `vocab_size` has no room for the characters, or there is
      nothing to learn from, or the package sentencepiece is not there.
  """
  try:
    import sentencepiece
  except ImportError as error:
    raise UserError(_not_installed("sentencepiece>=0.2.0")) from error
  characters = _count_characters(words)
  characters["\u2581"] += sum(words.values())  # Each word begins with one.
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
      # With room for the specials alone, the trainer says what it needs.
      vocab_size=max(vocab_size, len(specials)),
      hard_vocab_limit=False,
      # What this lets go are the rarest; the trainer takes no less.
      character_coverage=max(kept / (characters.total() or 1), 0.98),
      max_sentence_length=_MAX_SENTENCE_LENGTH,
      num_threads=16,  # Part of the result, so not the machine's number.
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
    too_small = re.search(_TOO_SMALL, str(error))
    if too_small:
      raise UserError(_too_small(vocab_size, int(too_small[1]))) from error
    raise UserError(
      f"SentencePiece cannot learn from this text ({error}); pass more text"
    ) from error
  return model.getvalue()


def report(
  tokenizer: tokenization.FullTokenizer, words: Mapping[str, int]
) -> str:
  """How well a tokenizer knows words, as lines for people.

  Args:
    tokenizer: a FullTokenizer.
    words: how often each word occurs, cut as `word_cutter` says.
  """
  unknown = tokenizer.wordpiece_tokenizer.unk_token

  def pieces(text):
    return tokenizer.wordpiece_tokenizer.tokenize(text)

  total = num_pieces = 0
  missed = collections.Counter()
  for word, count in words.items():
    cut = pieces(word)
    total += count
    num_pieces += count * len(cut)
    if unknown in cut:
      missed[word] = count
  if not total:
    return f"no line is held out of fewer than {HELDOUT_LINES}"
  characters = _count_characters(words)
  known = sum(n for c, n in characters.items() if unknown not in pieces(c))
  lines = [
    f"of {total:,} words held out, {1 - missed.total() / total:.2%} are known "
    f"in full, and {known / characters.total():.2%} of their characters; "
    f"{num_pieces / total:.2f} pieces a word"
  ]
  if missed:
    # By count, and of equal counts in the order of the alphabet.
    commonest = sorted(missed.items(), key=lambda item: (-item[1], item[0]))
    listed = " ".join(f"{word} ({n:,})" for word, n in commonest[:10])
    lines.append(f"commonest words not known in full: {listed}")
  return "\n".join(lines)


def check_flags() -> None:
  """Raises ValueError for a flag that no run could do with."""
  common_flags.require("output_file")
  common_flags.check_output_files("output_file", [FLAGS.output_file], [])


def load_config() -> modeling.BertConfig | None:
  """The configuration to update, if the flags name one."""
  if not FLAGS.update_config:
    return None
  common_flags.require_file("update_config")
  return modeling.BertConfig.from_json_file(FLAGS.update_config)


def input_files() -> list[str]:
  """The files to read, none of which is to be written."""
  paths = common_flags.find_files("input_file")
  read = {os.path.realpath(path) for path in paths}
  for name in ("output_file", "update_config"):
    if os.path.realpath(FLAGS[name].value or "") in read:
      raise UserError(
        f"--{name}={FLAGS[name].value} is a file of --input_file, too; pass "
        f"another"
      )
  return paths


def read_words(paths: Sequence[str]) -> WordCounts:
  """The words of files; ValueError if there are none to learn from."""
  lines = (line for path in paths for line in text_files.read_lines(path))
  counts = count_words(
    summaries.bar(lines, unit=" lines"),
    word_cutter(FLAGS.model_type, FLAGS.do_lower_case),
  )
  if not counts.words:
    raise UserError(
      f"--input_file={FLAGS.input_file} holds no words; pass files with text"
    )
  return counts


def learn(words: Mapping[str, int]) -> str | bytes:
  """The content of the file that the flags ask for."""
  sizes = (FLAGS.vocab_size, FLAGS.num_unused, FLAGS.min_frequency)
  if FLAGS.model_type == "wordpiece":
    return "".join(f"{piece}\n" for piece in learn_wordpiece(words, *sizes))
  size, *rest = sizes
  return learn_sentencepiece(words, size, FLAGS.model_type, *rest)


def load_tokenizer() -> tokenization.FullTokenizer:
  """The tokenizer that reads what was written."""
  is_wordpiece = FLAGS.model_type == "wordpiece"
  return tokenization.FullTokenizer(
    FLAGS.output_file if is_wordpiece else None,
    FLAGS.do_lower_case,
    None if is_wordpiece else FLAGS.output_file,
  )


def main() -> None:
  check_flags()
  config = load_config()
  paths = input_files()
  logging.info("Counting the words of %d files", len(paths))
  counts = read_words(paths)
  logging.info(
    "Learning %d pieces from %d words", FLAGS.vocab_size, len(counts.words)
  )
  files.write_file(FLAGS.output_file, learn(counts.words))
  tokenizer = load_tokenizer()
  size = len(tokenizer.vocab)
  if size < FLAGS.vocab_size:
    logging.warning(
      "The text has enough for %d pieces only, of the %d of --vocab_size",
      size,
      FLAGS.vocab_size,
    )
  if config:
    config.vocab_size = size
    files.write_file(FLAGS.update_config, config.to_json_string())
  print(
    f"{counts.lines:,} lines; {counts.words.total():,} words to learn from, "
    f"{len(counts.words):,} of them distinct\n"
    f"{FLAGS.output_file}: {size:,} pieces, "
    f"{size - len(special_pieces(FLAGS.num_unused)):,} of them learnt\n"
    + report(tokenizer, counts.heldout)
  )


if __name__ == "__main__":
  startup.run(main, define_flags)
