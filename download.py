"""Downloads data and models, once.

python download.py --help
"""

from bert.commands.download import command

if __name__ == "__main__":
  command()
