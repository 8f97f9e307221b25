"""Trained models as graphs: rows in, numbers out; or text in, answer out.

A TaskGraph has the signature `serving_default`, from rows to the outputs of the
task. A TextGraph has it from texts to answers, and `serve_examples`, from
serialized rows, as the scripts write them.
"""

from collections.abc import Callable

import tensorflow as tf
from absl import logging

from bert.data import records
from bert.engine.loaded_model import LoadedModel
from bert.export import text_rows
from bert.export.text_graph import GraphTokenizer
from bert.tasks.classification import label_types

Tensors = dict[str, tf.Tensor]


class TaskGraph(tf.Module):
  """A model with rows as its input.

  `compute` goes from rows, int32 [R, S] for each of `records.SEQUENCES`, or
  [R, N, S] of a task with several sequences in a row, to the outputs.
  """

  def __init__(self, model: LoadedModel):
    super().__init__("task")
    self.weights = model.predictor.variables
    self.seq_length = model.task.settings.max_seq_length
    self.compute = model.predictor.compute
    spec = model.task.feature_spec(False)["input_ids"]
    self.row_axes = len(spec.cut_axes)
    shape = [None] * (1 + self.row_axes)
    self._specs = {
      name: tf.TensorSpec(shape, tf.int32, name) for name in records.SEQUENCES
    }
    # One graph serves texts and rows.
    self.answer_rows = tf.function(
      self.compute, input_signature=[self._specs], autograph=False
    )

  def serving(self) -> dict[str, Callable]:
    """The signatures of a SavedModel."""

    @tf.function(autograph=False)
    def serve(**features):
      return self.answer_rows(features)

    return {"serving_default": serve.get_concrete_function(**self._specs)}


class TextGraph(TaskGraph):
  """A classifier, or a model of vectors, with text as its input.

  The outputs of a classifier are `label`, string [N], `labels`, string [N, C],
  and `probabilities`, float [N, C], of these labels; of several labels, `label`
  joins those with a probability above 0.5 by `|`. The output of a regression is
  `value`, float64 [N]; of a model of vectors, `vector`, float [N, H*].
  """

  def __init__(self, model: LoadedModel, tokenizer: GraphTokenizer):
    super().__init__(model)
    self.tokenizer = tokenizer
    self._settings = model.task.settings
    names = [field.name for field in model.required]
    self._texts = {n: tf.TensorSpec([None], tf.string, n) for n in names}
    self._label_type = None
    self._prompt = ""
    if model.kind == "vectors":
      self._prompt = self._settings.prompt_text()
    if model.kind == "classification":
      self._label_type = model.task.label_type

  @tf.function(autograph=False)
  def __call__(self, *texts: tf.Tensor) -> Tensors:
    """The answers to texts, a string tensor [N] for each input."""
    first, *others = texts
    if self._prompt:
      first = tf.strings.join([self._prompt, first])
    features, text_of = text_rows.read_texts(
      self.tokenizer, self._settings, [first, *others]
    )
    return self._named(self.answer_rows(features), text_of)

  def serving(self) -> dict[str, Callable]:
    self.__call__.get_concrete_function(*self._texts.values())

    @tf.function(autograph=False)
    def serve(**texts):
      return self(*(texts[name] for name in self._texts))

    @tf.function(
      input_signature=[tf.TensorSpec([None], tf.string, name="examples")],
      autograph=False,
    )
    def serve_examples(examples):
      return self._named(self.answer_rows(_parse(examples)))

    return {
      "serving_default": serve.get_concrete_function(**self._texts),
      "serve_examples": serve_examples.get_concrete_function(),
    }

  def _named(self, outputs, text_of=None):
    """The answers for the outputs of rows, each of its own text by default."""
    if not self._label_type:
      return {"vector": outputs["vectors"]}
    logits = outputs["logits"]
    if text_of is not None:
      logits = tf.math.segment_mean(logits, text_of)
    if not self._label_type.labels:
      # In float32, large numbers that are close together would be equal.
      logits = tf.cast(logits, tf.float64)
      return {"value": self._label_type.probabilities(logits)[:, 0]}
    probabilities = self._label_type.probabilities(logits)
    names = tf.broadcast_to(
      tf.constant(self._label_type.labels), tf.shape(probabilities)
    )
    if isinstance(self._label_type, label_types.Multilabel):
      given = tf.ragged.boolean_mask(names, probabilities > 0.5)
      label = tf.strings.reduce_join(
        given, axis=1, separator=label_types.LABEL_SEPARATOR
      )
    else:
      best = tf.argmax(probabilities, axis=1)
      label = tf.gather(tf.constant(self._label_type.labels), best)
    return {"label": label, "labels": names, "probabilities": probabilities}


def _parse(examples):
  feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
  parsed = tf.io.parse_example(
    examples, dict.fromkeys(records.SEQUENCES, feature)
  )
  return {
    name: tf.cast(values.to_tensor(), tf.int32)
    for name, values in parsed.items()
  }


def make_graph(model: LoadedModel, reads_text: bool) -> TaskGraph:
  """The graph of a model; with text as its input if it can be."""
  tokenizer = model.task.tokenizer
  if not reads_text or model.kind not in ("classification", "vectors"):
    return TaskGraph(model)
  if not tokenizer.splits_words:
    logging.warning(
      "The exported model reads rows, not text: TensorFlow computes tokenizers "
      "of word pieces only"
    )
    return TaskGraph(model)
  return TextGraph(model, GraphTokenizer(tokenizer))
