"""Tagging: a label for each word, such as named entities."""
