"""Learns a vocabulary from text: WordPiece, or a SentencePiece model.

python build_vocab.py --help
"""

from bert.commands.build_vocab import command

if __name__ == "__main__":
  command()
