"""Reads weights in Hugging Face's format: safetensors files.

Kernels are transposed, and the names are those of `huggingface_names`.
"""

import json
import os
import shlex
from typing import NamedTuple

import numpy as np

from bert import strict_json
from bert.data import downloads, files
from bert.errors import UserError
from bert.models.huggingface_names import (
  DECODERS,
  DECODER_BIASES,
  name_without_tensorflow,
  variable_name,
)

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"

# Names of the dense layer of a head.
_OF_HEAD = "classifier.dense."

# The number of updates, which is no tensor but an entry of the metadata.
STEP = "global_step"

# Raised by files of another structure.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


def find_weights(folder: str) -> str | None:
  """The file of the weights in a folder; None if it has none."""
  for name in (WEIGHTS_NAME, INDEX_NAME):
    path = os.path.join(folder, name)
    if files.exists(path):
      return path
  for name in ("pytorch_model.bin", "tf_model.h5"):
    check_needs_no_conversion(os.path.join(folder, name))
  return None


def check_needs_no_conversion(path: str) -> None:
  """Raises UserError, with a program that converts it, for an older format."""
  folder, name = os.path.split(path)
  # JSON's strings are also Python's, and need no escapes inside '...'.
  source, directory, target = (
    json.dumps(text, ensure_ascii=False)
    for text in (path, folder or ".", os.path.join(folder, WEIGHTS_NAME))
  )
  if name.endswith((".bin", ".pt", ".pth")):
    problem, installed = "is a pickle, which could run any code", "PyTorch is"
    program = (
      f"import torch, safetensors.torch as s; s.save_file({{k: v.clone()."
      f'contiguous() for k, v in torch.load({source}, map_location="cpu", '
      f'weights_only=True).items()}}, {target}, {{"format": "pt"}})'
    )
  elif name == "tf_model.h5":
    problem = "has a format of TensorFlow that is not read"
    installed = "transformers 4 and TensorFlow are"
    program = (
      f"import transformers as t; f = {directory}; "
      f'getattr(t, "TF" + t.AutoConfig.from_pretrained(f).architectures[0])'
      f".from_pretrained(f).save_pretrained(f, safe_serialization=True)"
    )
  else:
    return
  if files.exists(path):
    downloads.check_config(folder)
    raise UserError(
      f"{path} {problem}; convert it where {installed} installed: python -c "
      f"{shlex.quote(program)}"
    )


def is_weights(path: str) -> bool:
  """Whether a path is that of their weights, rather than of a checkpoint."""
  return path.endswith((".safetensors", ".safetensors.index.json"))


def weight_files(path: str) -> list[str]:
  """The file of the weights, and the files that it names."""
  if not path.endswith(".json"):
    return [path]
  try:
    content = strict_json.loads(files.read_bytes(path))
    names = sorted(set(content["weight_map"].values()))
    if any(os.path.basename(name) != name for name in names):
      raise ValueError("a file is in another folder")
  except _DAMAGE as error:
    raise files.damaged(path, f"its weight_map: {error}") from error
  folder = os.path.dirname(path)
  return [path, *(os.path.join(folder, name) for name in names)]


def exchanged(variable: str, value: np.ndarray) -> np.ndarray:
  """Our variable's value as their tensor has it, or the reverse."""
  return value.T if variable.endswith("/kernel") else value


class _Tensor(NamedTuple):
  path: str
  dtype: str
  shape: list[int]
  start: int
  size: int
  order: str = "C"


# Numpy has no bfloat16, the upper half of a float32.
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Weights:
  """Weights in safetensors files, under the names of our variables.

  It has the methods of TensorFlow's `CheckpointReader`. Tensors of theirs that
  are no variables of ours keep their names.
  """

  def __init__(self, path: str):
    self._path = path
    self._tensors, self._decoder, self._step = {}, None, None
    biases, theirs = {}, {}
    for file in weight_files(path):
      if not file.endswith(".safetensors"):
        continue
      tensors, step = _read_header(file)
      self._step = self._step if step is None else step
      for name, tensor in tensors.items():
        if name in DECODERS:
          self._decoder = name, tensor
        elif name in DECODER_BIASES:
          biases = {"cls/predictions/output_bias": tensor}
        elif not name.endswith("position_ids"):
          ours = variable_name(name) or name
          # Old files of RoBERTa have an unused pooler beside the head's layer.
          if not theirs.get(ours, "").startswith(_OF_HEAD):
            self._tensors[ours], theirs[ours] = tensor, name
    self._tensors = biases | self._tensors

  def get_variable_to_shape_map(self) -> dict[str, list[int]]:
    """Name and shape of each variable."""
    shapes = {
      name: tensor.shape[::-1] if name.endswith("/kernel") else tensor.shape
      for name, tensor in self._tensors.items()
    }
    return shapes if self._step is None else {**shapes, STEP: []}

  def get_tensor(self, name: str) -> np.ndarray:
    """The value of a variable, float32; int64 for the step."""
    if name == STEP and self._step is not None:
      return self._step
    if name == "cls/predictions/output_bias" and self._decoder:
      words = self._tensors.get("bert/embeddings/word_embeddings")
      decoder, tensor = self._decoder
      tied = words and np.array_equal(_read(tensor), _read(words))
      self._decoder = None  # Compared once.
      if not tied:
        raise UserError(
          f"{self._path}: {decoder} differs from the word embeddings, which "
          f"BERT does not support; pass a model with tied embeddings"
        )
    return exchanged(name, _read(self._tensors[name]))


def _read_header(path):
  """Dict from the name of each tensor in a file to its _Tensor; its step."""
  try:
    size = files.size(path)
    with files.open_file(path) as reader:
      length = int.from_bytes(reader.read(8), "little")
      if length > size - 8:
        raise ValueError("it ends early")
      header = strict_json.loads(reader.read(length))
    metadata = header.pop("__metadata__", {})
    step, tensors = metadata.get(STEP), {}
    for name, entry in header.items():
      start, end = entry["data_offsets"]
      dtype, shape, order = entry["dtype"], entry["shape"], "C"
      if metadata.get("format") == "tf":
        if name.endswith("/kernel:0"):  # The transpose, in the same bytes.
          shape, order = shape[::-1], "F"
        name = name_without_tensorflow(name)
      tensors[name] = _Tensor(
        path, dtype, shape, 8 + length + start, end - start, order
      )
    # Otherwise other programs might read other values from the same file.
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.size)):
      if tensor.start != end:
        raise ValueError("its tensors overlap, or leave gaps")
      end += tensor.size
    if end != size:
      raise ValueError("its tensors do not reach its end")
    return tensors, None if step is None else np.int64(step)
  except _DAMAGE as error:
    raise files.damaged(path, error) from error


def _read(tensor: _Tensor) -> np.ndarray:
  """The value of a tensor, as float32 unless it is no float."""
  dtype = _DTYPES.get(tensor.dtype)
  if dtype is None:
    raise UserError(
      f"{tensor.path}: values of type {tensor.dtype} are not supported; save "
      f"the model in float32"
    )
  with files.open_file(tensor.path) as reader:
    reader.seek(tensor.start)
    content = reader.read(tensor.size)
  value = np.frombuffer(content, dtype).reshape(
    tensor.shape, order=tensor.order
  )
  if tensor.dtype == "BF16":
    return (value.astype(np.uint32) << 16).view(np.float32)
  return value.astype(np.float32)
