"""The scripts as commands of an installed package: bert-classify, ...

`pip install -e .` makes a command of each row; pyproject.toml lists them, too.
"""

import pathlib
import runpy
import sys

COMMANDS = {
  "bert-choose": "run_multiple_choice",
  "bert-classify": "run_classifier",
  "bert-convert": "convert_checkpoint",
  "bert-download": "download",
  "bert-export": "export_model",
  "bert-features": "extract_features",
  "bert-fill-mask": "fill_mask",
  "bert-ner": "run_ner",
  "bert-pretrain": "run_pretraining",
  "bert-pretraining-data": "create_pretraining_data",
  "bert-serve": "serve",
  "bert-squad": "run_squad",
  "bert-visualize": "visualize",
  "bert-vocab": "build_vocab",
}


def main() -> None:
  """Runs the script of the command that this process was started as."""
  name = pathlib.Path(sys.argv[0]).stem
  # As __main__: that defines the flags, which an import never does.
  runpy.run_module(COMMANDS[name], run_name="__main__", alter_sys=True)
