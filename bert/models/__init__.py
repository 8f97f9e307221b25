"""A model on disk: its configuration, tokenizer, weights and task.

Reads and writes the original's checkpoints, Hugging Face's and
sentence-transformers' folders, and task.json. May import `contract`.
"""
