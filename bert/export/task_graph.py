"""Trained models as graphs: text in, answer out.

A TaskGraph has the signature `serving_default`, from texts to answers, and the
signature `serve_examples`, from serialized `tf.train.Example`s of rows, as the
scripts write them, to the model's outputs for each row.
"""

from collections.abc import Callable

import tensorflow as tf

import modeling
from bert.export import text_rows
from bert.export.text_graph import GraphTokenizer
from bert.data import records
from bert.tasks import labels as label_types
from bert.tasks.classification import Reading
from bert.tasks.classifier import Classifier
from bert.tasks.features import FeatureExtractor
from bert.training.predictor import Predictor

Tensors = dict[str, tf.Tensor]


def text_input(name: str, rank: int = 1) -> tf.TensorSpec:
  """The spec of a string tensor of that rank."""
  return tf.TensorSpec([None] * rank, tf.string, name)


class TaskGraph(tf.Module):
  """Base class of models with text as their input.

  Args:
    predictor: computes rows.
    tokenizer: a GraphTokenizer; None if only `numbers` is used.

  Attributes:
    inputs: the name and the shape of each tensor of texts.
    seq_length: maximum length of a row.
    weights: the variables.
  """

  inputs = (text_input("text"),)

  def __init__(self, predictor: Predictor, tokenizer: GraphTokenizer | None):
    super().__init__("task")
    self.tokenizer = tokenizer
    self.weights = predictor.variables
    self._predictor = predictor
    sequence = tf.TensorSpec([None, None], tf.int32)
    # One graph serves texts and rows.
    self._numbers = tf.function(
      lambda features: self.numbers(features),
      input_signature=[dict.fromkeys(records.SEQUENCES, sequence)],
      autograph=False,
    )

  def answer(self, *texts: tf.Tensor) -> Tensors:
    """The answers to texts, a string tensor for each of `inputs`."""
    raise NotImplementedError

  def numbers(
    self,
    features: Tensors,
    encoder: type[modeling.BertModel] = modeling.BertModel,
  ) -> Tensors:
    """The outputs that are numbers, for rows.

    Args:
      features: int32 [R, S], one for each of `records.SEQUENCES`.
      encoder: the class of the encoder.
    """
    return self._predictor.compute(features, encoder)

  def answer_rows(self, features: Tensors) -> Tensors:
    """The outputs for rows, see `numbers`."""
    return self._numbers(features)

  @tf.function(autograph=False)
  def __call__(self, *texts: tf.Tensor) -> Tensors:
    """See `answer`."""
    return self.answer(*texts)

  def serving(self) -> dict[str, Callable]:
    """The signatures of a SavedModel."""
    texts = {spec.name: spec for spec in self.inputs}
    self.__call__.get_concrete_function(*texts.values())

    @tf.function(autograph=False)
    def serve(**texts):
      return self(*(texts[spec.name] for spec in self.inputs))

    @tf.function(
      input_signature=[tf.TensorSpec([None], tf.string, name="examples")],
      autograph=False,
    )
    def serve_examples(examples):
      return self.answer_rows(self._parse(examples))

    return {
      "serving_default": serve.get_concrete_function(**texts),
      "serve_examples": serve_examples.get_concrete_function(),
    }

  def _parse(self, examples):
    """The features of serialized rows, padded to the longest."""
    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(
      examples, dict.fromkeys(records.SEQUENCES, feature)
    )
    return {
      name: tf.cast(values.to_tensor(), tf.int32)
      for name, values in parsed.items()
    }


class ClassifierGraph(TaskGraph):
  """A Classifier as a graph.

  Its outputs are `label`, string [N], `labels`, string [N, C], and
  `probabilities`, float [N, C], of these labels; of several labels, `label`
  joins those with a probability above 0.5 by `|`. The output of a regression is
  `value`, float64 [N].
  """

  def __init__(self, classifier: Classifier, tokenizer: GraphTokenizer | None):
    super().__init__(classifier.predictor, tokenizer)
    self._label_type = classifier.label_type
    self._reading = classifier.reading
    self.seq_length = classifier.reading.max_seq_length
    if classifier.is_pair:
      self.inputs = (text_input("text_a"), text_input("text_b"))

  def answer(self, *texts: tf.Tensor) -> Tensors:
    features, text_of = text_rows.read_texts(
      self.tokenizer, self._reading, texts
    )
    logits = self._numbers(features)["logits"]
    return self._named(tf.math.segment_mean(logits, text_of))

  def numbers(self, features, encoder=modeling.BertModel):
    logits = self._predictor.compute(features, encoder)["logits"]
    probabilities = self._label_type.probabilities(logits)
    return {"logits": logits, "probabilities": probabilities}

  def answer_rows(self, features: Tensors) -> Tensors:
    return self._named(self._numbers(features)["logits"])

  def _named(self, logits):
    """The answers for logits [N, C]."""
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


class VectorGraph(TaskGraph):
  """A FeatureExtractor with pooling as a graph: `vector`, float [N, H*]."""

  def __init__(
    self, extractor: FeatureExtractor, tokenizer: GraphTokenizer | None
  ):
    super().__init__(extractor.predictor, tokenizer)
    self._reading = Reading(extractor.max_seq_length)
    self.seq_length = extractor.max_seq_length

  def answer(self, *texts: tf.Tensor) -> Tensors:
    features, _ = text_rows.read_texts(self.tokenizer, self._reading, texts)
    return self._numbers(features)

  def numbers(self, features, encoder=modeling.BertModel):
    return {"vector": self._predictor.compute(features, encoder)["vectors"]}
