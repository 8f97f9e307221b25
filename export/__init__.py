"""From a trained model to other formats and programs, and back."""
