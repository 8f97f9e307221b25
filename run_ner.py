"""Fine-tunes BERT to label words, evaluates it, and finds entities in text.

python run_ner.py --help
"""

from bert.commands.run_ner import command

if __name__ == "__main__":
  command()
