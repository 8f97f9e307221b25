"""Fine-tunes BERT to choose among continuations, evaluates it, and predicts.

python run_multiple_choice.py --help
"""

from bert.commands.run_multiple_choice import command

if __name__ == "__main__":
  command()
