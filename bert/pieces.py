"""What every tokenizer needs: special pieces, and the file that it reads."""

from typing import NamedTuple

# SentencePiece's mark of the first piece of a word.
WORD_START = "\u2581"


class SpecialPieces(NamedTuple):
  """The pieces around texts, by their role."""

  cls: str = "[CLS]"  # Before the first text.
  sep: str = "[SEP]"  # After each text.
  mask: str = "[MASK]"
  pad: str = "[PAD]"
  between: int = 1  # Number of `sep` between two texts.
  has_segments: bool = True  # Whether the second text is another segment.

  def count(self, num_texts: int) -> int:
    """Number of special pieces around one or two texts."""
    return 2 if num_texts == 1 else 2 + self.between


def read_file(path: str) -> bytes:
  """The content of a local or remote file."""
  if "://" not in path:
    with open(path, "rb") as reader:
      return reader.read()
  import tensorflow as tf

  with tf.io.gfile.GFile(path, "rb") as reader:
    return reader.read()
