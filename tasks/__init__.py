"""The tasks: their data, outputs and scores."""

import quiet_start  # noqa: F401  Before TensorFlow.
