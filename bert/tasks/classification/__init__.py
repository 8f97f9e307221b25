"""Classification: GLUE, tables of a user, labels, scores and page."""
