"""Multiple choice: which of several endings fits."""
