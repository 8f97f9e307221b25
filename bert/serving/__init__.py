"""The server: batches of requests, REST, guard and page.

May import `search` and `export`.
"""
