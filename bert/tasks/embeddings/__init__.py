"""Vectors of texts: pooling, training by pairs, retrieval, features."""
