"""New word pieces for a vocabulary, from the words of a domain."""

import collections
import heapq
import re
from collections.abc import Callable, Mapping, Sequence

from tokenization import UNKNOWN

UNUSED = re.compile(r"\[unused\d+\]")

# Pieces that are joined at once. Without a limit, the memory for a word would
# grow with the cube of its length, and hashes or base64 would exhaust it.
_MAX_RUN = 8


def choose_pieces(
  words: Mapping[str, int],
  tokenize: Callable[[str], Sequence[str]],
  num_new: int,
) -> dict[str, list[str]]:
  """The new pieces that shorten the text most, and the pieces they replace.

  A candidate is a run of up to eight neighboring pieces in a word, joined to
  one piece. It saves the number of pieces that it replaces, less one, wherever
  the run occurs. The best candidate is taken again and again. Later ones are
  counted on the words as they are then. Words that cannot be split are ignored.

  Args:
    words: counts of words.
    tokenize: from a word to its pieces.
    num_new: maximum number of new pieces. There are fewer if no other word of
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
    if len(pieces) > 1 and UNKNOWN not in pieces and words[word] > 1:
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
  """The pieces, with one piece in place of each occurrence of a run."""
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
  """Yields the runs of two pieces or more."""
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
