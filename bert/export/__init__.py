"""From a trained model to other formats and programs, and back."""

from bert import quiet_start  # noqa: F401  Before TensorFlow.
