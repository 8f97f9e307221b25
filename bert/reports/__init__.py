"""What the pages of all tasks share: tables, charts, and the verdict.

Pages are self-contained. A task's own part is its `page`. May import `data`.
"""
