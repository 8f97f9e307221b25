"""Pre-training: masked words and next sentences."""
