"""From rows to weights: the loop, the update, gradients, checkpoints.

Knows tasks by their contract only. May import `engine`.
"""
