"""Search by meaning and by words: an index, exact and approximate search.

May import `tasks`.
"""
