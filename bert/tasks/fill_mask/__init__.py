"""Masked words: which words fit in a text."""
