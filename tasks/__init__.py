"""What each task says of itself: its data, its outputs, its scores."""

import quiet_start  # noqa: F401  Before TensorFlow.
