"""The runtimes that can compute an encoder, and their precisions."""

import os

from bert.errors import UserError, require_package

# Of the layers of a model.
PRECISIONS = ("float32", "bfloat16", "float16")

# Of the encoder of another runtime.
INT8 = "int8"

TENSORFLOW = "tensorflow"

# The runtimes, and what each computes in.
_PRECISIONS_OF = {
  TENSORFLOW: PRECISIONS,
  "onnxruntime": ("float32", INT8),
  "openvino": ("float32", "bfloat16", INT8),
}
RUNTIMES = tuple(_PRECISIONS_OF)

# Lists the packages of the runtimes.
REQUIREMENTS = "requirements-export.txt"


def check_runtime(runtime: str, precision: str | None) -> None:
  """Checks a runtime before TensorFlow or a checkpoint is loaded."""
  if runtime not in RUNTIMES:
    raise UserError(
      f"--runtime={runtime} is not one of {', '.join(RUNTIMES)}; pass one"
    )
  flag, known = f"--runtime={runtime}", _PRECISIONS_OF[runtime]
  if precision not in (None, *known):
    others = [name for name, of in _PRECISIONS_OF.items() if precision in of]
    remedy = f", or --runtime={' or '.join(others)}" if others else ""
    raise UserError(
      f"--precision={precision} is not one of {', '.join(known)}, those of "
      f"{flag}; pass one{remedy}"
    )
  if runtime != TENSORFLOW:
    require_package(runtime, flag, REQUIREMENTS)


# The threads of a runtime other than TensorFlow; None for one per core.
_threads = None


def use_threads(count: int | None) -> None:
  """Sets the number of threads of the runtimes that are loaded from now on."""
  global _threads
  _threads = count


def num_threads() -> int:
  """That number; by default that of the cores that this process may use."""
  return _threads or num_cores()


def num_cores() -> int:
  """Number of cores that this process may use."""
  is_linux = hasattr(os, "sched_getaffinity")
  return len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1
