"""Shows what a model does with text.

python visualize.py --help
"""

from bert.commands.visualize import command

if __name__ == "__main__":
  command()
