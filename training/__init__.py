"""From rows of features to trained weights, and answers from them."""
