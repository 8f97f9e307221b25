"""The contract between a task and everything that runs it.

`Task`, its `Settings`, the operations of its head, and the registry of tasks.
Imports `models` and the rooms after it for type hints only.
"""
