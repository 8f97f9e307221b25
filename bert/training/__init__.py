"""From rows of features to trained weights, and answers from them."""

from bert import quiet_start  # noqa: F401  Before TensorFlow.
