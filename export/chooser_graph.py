"""A trained model for multiple choice as a graph."""

import tensorflow as tf

from export import text_rows
from export.task_graph import TaskGraph, Tensors, text_input
from export.text_graph import GraphTokenizer
from tasks.chooser import Chooser


class ChooserGraph(TaskGraph):
  """A Chooser as a graph.

  Its inputs are `context` and `question`, string [N], and `choices`, string
  [N, C]. An empty string is no choice, so that rows may have different numbers
  of them. Its outputs are `choice`, int64 [N], the index of the likeliest, and
  `probabilities`, float [N, C].
  """

  inputs = (
    text_input("context"),
    text_input("question"),
    text_input("choices", rank=2),
  )

  def __init__(self, chooser: Chooser, tokenizer: GraphTokenizer | None):
    super().__init__(chooser.predictor, tokenizer)
    self.seq_length = chooser.max_seq_length

  def answer(
    self, context: tf.Tensor, question: tf.Tensor, choices: tf.Tensor
  ) -> Tensors:
    # The blank ends a word, so both texts keep their pieces.
    continued = question[:, tf.newaxis] + " " + choices
    context, continued = (
      self.tokenizer(texts).merge_dims(1, 2)
      for texts in (context, tf.reshape(continued, [-1]))
    )
    rows = tf.repeat(tf.range(tf.shape(choices)[0]), tf.shape(choices)[1])
    features = text_rows.pack_truncated(
      [tf.gather(context, rows), continued],
      self.tokenizer.tokenizer.vocab,
      self.seq_length,
    )
    return self._choose(features, tf.strings.length(choices) > 0)

  def answer_rows(self, features: Tensors) -> Tensors:
    """The outputs for rows of choices, int32 [R, C * S] each."""
    length = self.seq_length
    is_choice = features["input_mask"][:, ::length] > 0
    flat = {name: tf.reshape(x, [-1, length]) for name, x in features.items()}
    return self._choose(flat, is_choice)

  def _choose(self, features, is_choice):
    scores = tf.reshape(self._numbers(features)["scores"], tf.shape(is_choice))
    probabilities = tf.nn.softmax(tf.where(is_choice, scores, -1e9))
    return {
      "choice": tf.argmax(probabilities, axis=1),
      "probabilities": probabilities,
    }
