"""Fills [MASK] in texts with a pre-trained model, or scores texts without it.

python fill_mask.py --help
"""

from bert.commands.fill_mask import command

if __name__ == "__main__":
  command()
