"""From files to rows: text, tables, corpora and records, without TensorFlow.

TensorFlow loads for remote paths (`gs://`) only. May import the core.
"""
