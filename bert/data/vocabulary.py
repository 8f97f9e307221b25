"""Learns a vocabulary from counts of words: WordPiece, or SentencePiece.

    counts = count_words(lines, word_splitter("wordpiece"))
    pieces = learn_wordpiece(counts.words, vocab_size=30522)

Every 50th line is held out to report how well the vocabulary covers new text.
Equal counts and arguments give equal results.
"""

import collections
import heapq
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tokenization
from bert.data import files
from bert.errors import UserError

# One in this number of lines with text is held out.
HELDOUT_LINES = 50

# Equal strings in this number of lines are counted before they are split.
_COUNTED_LINES = 2**16

# The WordPiece trainer reads words, not counts: up to this many per string.
_REPEATED_WORDS = 1000

UNUSED = re.compile(r"\[unused\d+\]")

# Pieces that are joined at once. Without a limit, the memory for a word would
# grow with the cube of its length, and hashes or base64 would exhaust it.
_MAX_RUN = 8


class WordCounts(NamedTuple):
  """Counts of the words to learn from, the held-out words, and the lines."""

  words: collections.Counter
  heldout: collections.Counter
  lines: int


def word_splitter(
  model_type: str, do_lower_case: bool = True
) -> Callable[[str], list[str]]:
  """A function that splits text into the words that pieces are made of."""
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
    vocab_size: maximum number of pieces, special and unused ones included.
    num_unused: number of pieces [unused0], [unused1], ...
    min_frequency: minimum count of a merged piece, and of a character. Words
      with rarer characters are ignored: the tokenizer could not split them.

  Returns:
    The special pieces, the characters, and the merged pieces by frequency.
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

  `model_type` is "unigram" or "bpe"; characters that are rarer than
  `min_frequency` become [UNK]. Returns the content of the model file.
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
      # With a smaller size, the error lacks the minimum.
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
  """Describes how well a tokenizer covers held-out words, by their counts."""
  if not words:
    return f"no lines held out, because there are fewer than {HELDOUT_LINES}"
  split = tokenizer.wordpiece_tokenizer.tokenize
  unknown = tokenizer.unk_token
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
    ranked = sorted(missed.items(), key=lambda item: (-item[1], item[0]))
    listed = " ".join(f"{word} ({n:,})" for word, n in ranked[:10])
    text += f"\nmost frequent words that are not fully known: {listed}"
  return text


# New pieces for a vocabulary, from the words of a domain.


def choose_pieces(
  words: Mapping[str, int],
  tokenize: Callable[[str], Sequence[str]],
  num_new: int,
) -> dict[str, list[str]]:
  """The new pieces that shorten the text most, and the pieces they replace.

  A candidate is a run of up to eight neighboring pieces in a word, joined to
  one piece. It saves the number of pieces that it replaces, less one, wherever
  the run occurs. The best candidate is taken again and again, and the words are
  counted anew each time. There are fewer than `num_new` if no other word of
  several pieces occurs twice.
  """
  split, runs = {}, collections.defaultdict(set)
  saved = collections.Counter()

  def count(word, sign):
    for run in _runs(split[word]):
      saved[run] += sign * words[word] * (len(run) - 1)
      (runs[run].add if sign > 0 else runs[run].discard)(word)

  for word in sorted(words):
    pieces = list(tokenize(word))
    is_known = tokenization.UNKNOWN not in pieces
    if len(pieces) > 1 and is_known and words[word] > 1:
      split[word] = pieces
      count(word, 1)
  # The counts of a run only fall, so an entry of the heap is at least as good
  # as the run is now.
  heap = [(-gain, run) for run, gain in saved.items()]
  heapq.heapify(heap)
  chosen = {}
  while heap and len(chosen) < num_new:
    gain, run = heapq.heappop(heap)
    if -gain != saved[run]:
      if saved[run] > 0:
        heapq.heappush(heap, (-saved[run], run))
      continue
    piece = join_pieces(run)
    chosen[piece] = [old for part in run for old in chosen.get(part, [part])]
    for word in sorted(runs[run]):
      count(word, -1)
      split[word] = _merged(split[word], run, piece)
      count(word, 1)
      for other in _runs(split[word]):
        if piece in other:
          heapq.heappush(heap, (-saved[other], other))
  return chosen


def join_pieces(run: Sequence[str]) -> str:
  """A run of pieces as one piece: ["im", "##mun"] is "immun"."""
  return run[0] + "".join(piece.removeprefix("##") for piece in run[1:])


def _merged(pieces, run, piece):
  merged, index = [], 0
  while index < len(pieces):
    if tuple(pieces[index : index + len(run)]) == run:
      merged.append(piece)
      index += len(run)
    else:
      merged.append(pieces[index])
      index += 1
  return merged


def _runs(pieces):
  for start in range(len(pieces)):
    for end in range(start + 2, min(start + _MAX_RUN, len(pieces)) + 1):
      yield tuple(pieces[start:end])


def extend_vocabulary(pieces: Sequence[str], new: Sequence[str]) -> list[str]:
  """The pieces, with new ones in place of [unused...], and then at the end."""
  waiting = iter(new)
  replaced = [
    next(waiting, piece) if UNUSED.fullmatch(piece) else piece
    for piece in pieces
  ]
  return [*replaced, *waiting]


def vocab_text(pieces: Iterable[str]) -> str:
  """The content of a `vocab.txt`: one piece a line, in the order of ids."""
  return "".join(f"{piece}\n" for piece in pieces)


def find_repeated(
  tokenizer: tokenization.FullTokenizer, path: str
) -> tuple[str, int, int] | None:
  """A piece that a vocabulary repeats, its first line and its last, or None."""
  # A piece gets the id of its last line, so the ids of repeated lines are free.
  unused = set(range(len(tokenizer.vocab))) ^ set(tokenizer.vocab.values())
  if not unused:
    return None
  first = min(unused)
  piece = files.read_bytes(path).split(b"\n")[first].decode().strip()
  return piece, first + 1, tokenizer.vocab[piece] + 1
