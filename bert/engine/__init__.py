"""From rows to numbers: batches, programs, devices and other runtimes.

`compute_rows` runs rows through a program, `Predictor` does so with the weights
of a model on disk, and `LoadedModel` answers inputs.
Nothing here trains. May import `models`.
"""
