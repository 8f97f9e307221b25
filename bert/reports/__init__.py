"""Self-contained pages and pictures."""
