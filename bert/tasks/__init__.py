"""The tasks, a folder for each: its data, head, loss, scores and page.

May import `scripts`, but no other task, apart from what
`classification` and `embeddings` share with others.
"""
