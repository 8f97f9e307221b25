"""Search by meaning: an index of vectors, exact and approximate search.

May import `tasks`.
"""
