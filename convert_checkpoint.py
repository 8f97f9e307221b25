"""Converts a model to Hugging Face's format, or from it to a release's.

python convert_checkpoint.py --help
"""

from bert.commands.convert_checkpoint import command

if __name__ == "__main__":
  command()
