"""The contract between a task and everything that runs it.

`Task`, its `Settings`, the operations of its head, and the registry of tasks.
It knows the rooms below by type hints only.
"""
