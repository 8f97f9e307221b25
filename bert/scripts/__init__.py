"""What all scripts share: settings, start of a command, the run of a task.

Knows tasks by their contract only. May import `training`.
"""
