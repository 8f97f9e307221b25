"""The runtimes that can compute an encoder, and their precisions."""

from bert.errors import UserError, require_package

TENSORFLOW = "tensorflow"
RUNTIMES = (TENSORFLOW, "onnxruntime", "openvino")

# Of the layers of a model.
PRECISIONS = ("float32", "bfloat16", "float16")

# Lists the packages of the runtimes.
REQUIREMENTS = "requirements-export.txt"


def check_runtime(runtime: str, precision: str | None) -> None:
  """Checks a runtime before TensorFlow or a checkpoint is loaded.

  Args:
    runtime: one of `RUNTIMES`.
    precision: one of `PRECISIONS`; None for what the runtime prefers.
  """
  if runtime not in RUNTIMES:
    raise UserError(f"runtime={runtime!r} is not one of {', '.join(RUNTIMES)}")
  if precision not in (None, *PRECISIONS):
    raise UserError(
      f"precision={precision!r} is not one of {', '.join(PRECISIONS)}"
    )
  if runtime == TENSORFLOW:
    return
  flag = f"--runtime={runtime}"
  supported = ("float32", "bfloat16") if runtime == "openvino" else ("float32",)
  if precision not in (None, *supported):
    raise UserError(
      f"--precision={precision}: {flag} computes in {' or '.join(supported)}"
    )
  require_package(runtime, flag, REQUIREMENTS)
