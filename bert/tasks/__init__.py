"""The tasks: their data, outputs and scores."""

from bert import quiet_start  # noqa: F401  Before TensorFlow.
