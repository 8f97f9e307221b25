"""The tokenizer of the package tensorflow-text as a graph."""

import tensorflow as tf

import tokenization
from bert.errors import UserError, first_line
from bert.export.text_graph import GraphTokenizer


class PackageTokenizer(GraphTokenizer):
  """Splits texts into the ids of word pieces with tensorflow-text.

  A program that loads the SavedModel has to import the package. Some characters
  are read otherwise than by the base class, which is as fast.

  Args:
    tokenizer: a FullTokenizer with a vocabulary of word pieces.

  Raises:
    UserError: the package cannot be imported, or the tokenizer is a
      SentencePiece model.
  """

  def __init__(self, tokenizer: tokenization.FullTokenizer):
    super().__init__(tokenizer)
    try:
      import tensorflow_text
    except ImportError as error:
      raise UserError(
        f"tensorflow_text cannot be imported ({first_line(error)}); install "
        f"the release of tensorflow-text for this TensorFlow"
      ) from error
    self._package = tensorflow_text.BertTokenizer(
      self._ids,
      token_out_type=tf.int64,
      lower_case=tokenizer.basic_tokenizer.do_lower_case,
      unknown_token=tokenizer.wordpiece_tokenizer.unk_token,
      max_bytes_per_word=self._max_word_length,
    )

  def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.cast(self._package.tokenize(texts), tf.int32)

  def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    raise NotImplementedError("ReaderGraph needs a GraphTokenizer")
