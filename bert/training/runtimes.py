"""The runtimes that can compute an encoder, and their precisions."""

from bert.errors import UserError, require_package

TENSORFLOW = "tensorflow"
RUNTIMES = (TENSORFLOW, "onnxruntime", "openvino")

# Of the layers of a model.
PRECISIONS = ("float32", "bfloat16", "float16")

# Of the encoder of another runtime, beside those of the layers.
INT8 = "int8"

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
  if precision not in (None, *PRECISIONS, INT8):
    known = ", ".join((*PRECISIONS, INT8))
    raise UserError(f"precision={precision!r} is not one of {known}")
  if runtime == TENSORFLOW:
    if precision == INT8:
      raise UserError(
        f"--precision={INT8} needs --runtime={' or '.join(RUNTIMES[1:])}"
      )
    return
  flag = f"--runtime={runtime}"
  supported = ["float32", INT8]
  if runtime == "openvino":
    supported.insert(1, "bfloat16")
  if precision not in (None, *supported):
    raise UserError(
      f"--precision={precision}: {flag} computes in {' or '.join(supported)}"
    )
  if precision == INT8:
    require_package("onnxruntime", f"--precision={INT8}", REQUIREMENTS)
  require_package(runtime, flag, REQUIREMENTS)
