"""From files to rows of features, without TensorFlow."""
