"""A trained model for multiple choice as a graph."""

import tensorflow as tf

from bert.export import text_rows
from bert.export.task_graph import TaskGraph, Tensors, text_input
from bert.export.text_graph import GraphTokenizer
from bert.tasks.chooser import Chooser


class ChooserGraph(TaskGraph):
  """A Chooser as a graph.

  Its inputs are `context` and `question`, string [N], and `choices`, string
  [N, C]. An empty string is no choice, so that rows may have different numbers
  of them. Its outputs are `choice`, int64 [N], the index of the likeliest, or
  -1 for a row without choices, and `probabilities`, float [N, C].
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
    is_choice = tf.strings.length(choices) > 0
    rows = tf.where(is_choice)[:, 0]
    context, question, choice = (
      self.tokenizer(texts).merge_dims(1, 2)
      for texts in (context, question, choices[is_choice])
    )
    context, question = (tf.gather(x, rows) for x in (context, question))
    features = text_rows.pack_truncated(
      [context, self._continued(context, question, choice)],
      self.tokenizer.tokenizer.vocab,
      self.seq_length,
      pads=False,
    )
    return self._choose(features, is_choice)

  def _continued(self, context, question, choice):
    """Question and choice, truncated as in `multiple_choice.make_row`."""
    sizes = [x.row_lengths() for x in (context, question, choice)]
    room = tf.constant(self.seq_length - 3, tf.int64)
    _, room_b = text_rows.share_room(sizes[0], sizes[1] + sizes[2], room)
    kept, asked = text_rows.share_room(sizes[2], sizes[1], room_b)
    texts = text_rows.heads(question, asked), text_rows.heads(choice, kept)
    return tf.concat(texts, axis=1)

  def answer_rows(self, features: Tensors) -> Tensors:
    """The outputs for rows of choices, int32 [R, C * S] each."""
    shape = [tf.shape(features["input_mask"])[0], -1, self.seq_length]
    parted = {name: tf.reshape(x, shape) for name, x in features.items()}
    is_choice = parted["input_mask"][:, :, 0] > 0
    chosen = {name: x[is_choice] for name, x in parted.items()}
    return self._choose(chosen, is_choice)

  def _choose(self, features, is_choice):
    """The outputs for rows of the choices that there are."""
    scores = tf.tensor_scatter_nd_update(
      tf.fill(tf.shape(is_choice), -1e9),
      tf.where(is_choice),
      self._numbers(features)["scores"],
    )
    probabilities = tf.nn.softmax(scores) * tf.cast(is_choice, tf.float32)
    has_choices = tf.reduce_any(is_choice, axis=1)
    # The argmax of rows of length 0 is an error.
    padded = tf.pad(scores, [[0, 0], [0, 1]], constant_values=-1e9)
    return {
      "choice": tf.where(has_choices, tf.argmax(padded, axis=1), -1),
      "probabilities": probabilities,
    }
