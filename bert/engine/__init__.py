"""From rows to numbers: batches, programs, devices and other runtimes.

`Predictor` computes the outputs of rows, and `LoadedModel` answers inputs.
Nothing here trains. May import `models`.
"""
