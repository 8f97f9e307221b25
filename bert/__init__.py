"""BERT for TensorFlow 2: all that supports the core and the scripts."""
