"""BERT for TensorFlow 2: all that supports the core and the scripts.

import bert

model = bert.load("/tmp/mrpc_output")
model(("It rains.", "Rain falls."))  # {"label": "1", ...}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import os

  from bert.tasks.loaded_model import LoadedModel


def load(
  model: str | os.PathLike, task: str | None = None, **options
) -> LoadedModel:
  """A trained model of any task, ready to answer; see `LoadedModel`.

  Args:
    model: the `output_dir` of a finished training; or the folder or name of a
      release, or hf://OWNER/NAME, which are downloaded once.
    task: "vectors" or "fill_mask", of a pre-trained model. Default: the task
      that the folder was trained on, and vectors without one.
    **options: `batch_size` (rows at a time), `precision` ("float32",
      "bfloat16", ...) and `runtime` ("tensorflow", "onnxruntime", "openvino");
      of vectors also `layers`, `pooling`, `normalize`, `max_seq_length` and
      `long_text`; of masks `top_k`.

  Raises:
    UserError: there is no such model, task or option.
  """
  from bert.tasks import loaded_model

  return loaded_model.load(model, task, **options)
