"""SQuAD: questions about a text, their windows, answers and scores."""
