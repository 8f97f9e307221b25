"""Exports a model for programs that have TensorFlow, ONNX or LiteRT only.

python export_model.py --help
"""

from bert.commands.export_model import command

if __name__ == "__main__":
  command()
