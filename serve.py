"""Answers requests over HTTP with a trained model.

python serve.py --help
"""

from bert.commands.serve import command

if __name__ == "__main__":
  command()
