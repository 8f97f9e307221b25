"""Encoder and preprocessing as SavedModels with TF-Hub's interface for text.

    encoder = hub.load("/tmp/encoder")
    preprocess = hub.load("/tmp/preprocess")
    encoder(preprocess(tf.constant(["a text"])))["pooled_output"]  # [1, H]

The interface is described at
https://www.tensorflow.org/hub/common_saved_model_apis/text.
"""

import os
import shutil
import tempfile
import types
import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

import modeling
from bert import variables
from bert.data import files, vocabulary
from bert.export import text_graph, text_rows
from bert.models import checkpoints
from bert.models.resolve import resolve
from bert.tasks.pretraining import task

SEQUENCES = ("input_word_ids", "input_mask", "input_type_ids")
_POSITIONS = "masked_lm_positions"
_TEXTS = tf.TensorSpec([None], tf.string, name="text")


def hub_outputs(
  bert: modeling.BertModel,
) -> dict[str, tf.Tensor | list[tf.Tensor]]:
  """The outputs of an encoder by their names on TF-Hub."""
  return {
    "pooled_output": bert.get_pooled_output(),
    "default": bert.get_pooled_output(),
    "sequence_output": bert.get_sequence_output(),
    "encoder_outputs": bert.get_all_encoder_layers(),
  }


class _Encoding(tf.Module):
  # Lists, because the properties of tf.Module are not saved.
  variables = trainable_variables = ()
  more_inputs = ()

  def _input_specs(self):
    return {
      name: tf.TensorSpec([None, None], tf.int32, name=name)
      for name in (*SEQUENCES, *self.more_inputs)
    }

  def _trace(self):
    for training in (True, False):
      self.__call__.get_concrete_function(self._input_specs(), training)

  def _track(self, names):
    self.variables = [self._store[name] for name in names]
    self.trainable_variables = list(self.variables)


class _Weights(variables.VariableStore):
  """The variables of an encoder that another program trains.

  That program counts the steps, so the seed of each dropout mask is random.
  """

  def get(self, name, *args, **kwargs):
    if name == "global_step":
      return tf.random.uniform([], maxval=2**31 - 1, dtype=tf.int32)
    return super().get(name, *args, **kwargs)


class Encoder(_Encoding):
  """The encoder in the folder of a model, for `hub.load` and `hub.KerasLayer`.

  `mlm` is the same with the head of masked words, if the checkpoint has it;
  `vocab_file` is an asset, `do_lower_case` a variable.
  """

  def __init__(self, model_dir: str):
    super().__init__("encoder")
    model = resolve(model_dir)
    self._config = model.config
    encoder = modeling.variable_shapes(model.config)
    head = task.variable_shapes(model.config, False)
    weights = checkpoints.load_weights(model.checkpoint, encoder | head, head)
    self._store = _Weights(initial_values=weights)
    self._trace()
    self._track(encoder)
    if not weights.skipped & head.keys():
      self.mlm = _MaskedWords(self, [*encoder, *head])
    case = np.array(model.tokenizer.basic_tokenizer.do_lower_case)
    constants = variables.VariableStore(initial_values={"do_lower_case": case})
    self.do_lower_case = constants.get(
      "do_lower_case", [], None, tf.bool, False
    )
    path = model.vocab_file or model.spm_model_file
    if path.endswith(".json") and model.tokenizer.splits_words:
      folder = tempfile.mkdtemp()
      weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
      path = os.path.join(folder, "vocab.txt")
      files.write_file(path, vocabulary.vocab_text(model.tokenizer.vocab))
    self.vocab_file = tf.saved_model.Asset(path)

  @tf.function(autograph=False)
  def __call__(
    self, inputs: Mapping[str, tf.Tensor], training: bool = False
  ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
    """The vectors of a batch, from the three SEQUENCES, int32 [B, S].

    `pooled_output` and `default`, float [B, H], are equal; `sequence_output` is
    float [B, S, H], and so are the L `encoder_outputs`.
    """
    sequences = (inputs[name] for name in SEQUENCES)
    with self._store:
      return hub_outputs(modeling.BertModel(self._config, training, *sequences))

  def serving(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """The signatures: `pooled_output` and `sequence_output` of the inputs."""

    @tf.function(autograph=False)
    def serve(**inputs):
      outputs = self(inputs)
      return {n: outputs[n] for n in ("pooled_output", "sequence_output")}

    signature = serve.get_concrete_function(**self._input_specs())
    return {"serving_default": signature}


class _MaskedWords(_Encoding):
  more_inputs = (_POSITIONS,)

  def __init__(self, encoder, names):
    super().__init__("mlm")
    self._encoder = encoder
    self._config, self._store = encoder._config, encoder._store
    self._trace()
    self._track(names)

  @tf.function(autograph=False)
  def __call__(self, inputs, training=False):
    """`Encoder.__call__`, and `mlm_logits` [B, P, V] at positions [B, P]."""
    positions = inputs[_POSITIONS]
    sequences = {name: inputs[name] for name in SEQUENCES}
    outputs = self._encoder(sequences, training)
    with self._store:
      logits = task.masked_lm_logits(
        self._config,
        task.gather_indexes(outputs["sequence_output"], positions),
        self._store["bert/embeddings/word_embeddings"],
      )
    shape = [*modeling.get_shape_list(positions), self._config.vocab_size]
    return {**outputs, "mlm_logits": tf.reshape(logits, shape)}


class Preprocessor(tf.Module):
  """From texts to the encoder's inputs, for `hub.load` and `hub.KerasLayer`.

  `seq_length` is S of `__call__`. `tokenize` goes from texts, string [N], to
  ids, int32 [N, (words), (pieces)]; `tokenize.get_special_tokens_dict()` has
  the ids of special pieces.
  """

  def __init__(self, tokenizer: text_graph.GraphTokenizer, seq_length: int):
    super().__init__("preprocess")
    self.tokenize = _Tokenize(tokenizer)
    self._vocab = types.MappingProxyType(tokenizer.tokenizer.vocab)
    self._seq_length = seq_length
    length = tf.TensorSpec([], tf.int32)
    for shape in ([None, None], [None, None, None]):
      segment = tf.RaggedTensorSpec(shape, tf.int32)
      for segments in ([segment], [segment, segment]):
        self.bert_pack_inputs.get_concrete_function(segments, length)

  def serving(self) -> dict[str, tf.types.experimental.PolymorphicFunction]:
    """The signatures."""
    return {"serving_default": self.__call__}

  @tf.function(input_signature=[_TEXTS], autograph=False)
  def __call__(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
    """The encoder's inputs, int32 [N, S], for texts, string [N]."""
    length = tf.constant(self._seq_length)
    rows = self.bert_pack_inputs([self.tokenize(text)], length)
    shape = [None, self._seq_length]
    return {name: tf.ensure_shape(row, shape) for name, row in rows.items()}

  @tf.function(autograph=False)
  def bert_pack_inputs(
    self, inputs: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int = 128
  ) -> dict[str, tf.Tensor]:
    """The encoder's inputs, int32 [N, S], for one or two outputs of `tokenize`.

    They may lack the axis of words. The longer segment is truncated first.
    """
    flat = [s.merge_dims(1, 2) if s.shape.rank == 3 else s for s in inputs]
    length = tf.convert_to_tensor(seq_length)
    rows = text_rows.pack_truncated(flat, self._vocab, length)
    return dict(zip(SEQUENCES, rows.values(), strict=True))


class _Tokenize(tf.Module):
  def __init__(self, tokenizer):
    super().__init__("tokenize")
    self._tokenizer = tokenizer
    self.get_special_tokens_dict.get_concrete_function()

  @tf.function(input_signature=[_TEXTS], autograph=False)
  def __call__(self, text):
    return self._tokenizer(text)

  @tf.function(autograph=False)
  def get_special_tokens_dict(self):
    """The ids of the special pieces, and the vocabulary's size."""
    vocab = self._tokenizer.tokenizer.vocab
    names = {
      "padding_id": "[PAD]",
      "start_of_sequence_id": "[CLS]",
      "end_of_segment_id": "[SEP]",
      "mask_id": "[MASK]",
    }
    ids = {name: vocab.get(piece, 0) for name, piece in names.items()}
    ids["vocab_size"] = max(vocab.values()) + 1
    return {name: tf.constant(value, tf.int32) for name, value in ids.items()}
