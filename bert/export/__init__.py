"""From a trained model to other formats, and back.

Hugging Face, SavedModel, ONNX, LiteRT, and smaller models. May import `tasks`.
"""
