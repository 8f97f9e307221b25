"""Finds the texts that are nearest in meaning to a query.

python search_texts.py --help
"""

from bert.commands.search_texts import command

if __name__ == "__main__":
  command()
