"""Trains and evaluates vectors of texts, for semantic search.

python run_embeddings.py --help
"""

from bert.commands.run_embeddings import command

if __name__ == "__main__":
  command()
