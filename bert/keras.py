"""Keras 3 layers: the tokenizer, and the encoder to train in a Keras model.

    import keras
    from bert.keras import Encoder, Preprocess

    texts = keras.Input([], dtype="string")
    encoder = Encoder("uncased_L-12_H-768_A-12")
    outputs = encoder(Preprocess("uncased_L-12_H-768_A-12")(texts))
    x = keras.layers.Dropout(0.1)(outputs["pooled_output"])
    model = keras.Model(texts, keras.layers.Dense(2)(x))

This is the only module that imports Keras. Inputs and outputs have the names
that encoders have on TF-Hub, see
https://www.tensorflow.org/hub/common_saved_model_apis/transformer_encoders.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from bert import variables  # First: `bert` makes TensorFlow load late.
import keras
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert.data import files
from bert.data.vocabulary import vocab_text
from bert.errors import UserError
from bert.export import saved_model, text_graph
from bert.export.new_folder import check_is_new, new_folder
from bert.layers import POOLER
from bert.models import checkpoints
from bert.models.resolve import Model, resolve

if keras.backend.backend() != "tensorflow":
  raise UserError(
    f"KERAS_BACKEND={keras.backend.backend()}: the layers of bert.keras need "
    f"tensorflow; set it before the first import of Keras"
  )


@keras.saving.register_keras_serializable("bert")
class Preprocess(keras.layers.Layer):
  """From texts, string [B], to the encoder's inputs, int32 [B, S].

  The output is a dict: `input_word_ids`, `input_mask` and `input_type_ids`. A
  list of two string tensors is a batch of pairs. Longer ones are truncated.

  Args:
    folder: the folder or name of a model, as for `bert.load`.
    seq_length: S.
    vocabulary: word pieces in the order of their ids, instead of a folder.
    do_lower_case: whether to lower-case text; with `vocabulary`.
  """

  def __init__(
    self,
    folder: str | os.PathLike | None = None,
    seq_length: int = 128,
    vocabulary: list[str] | None = None,
    do_lower_case: bool = True,
    **kwargs,
  ):
    super().__init__(**kwargs)
    if vocabulary is None:
      model = resolve(os.fspath(folder or ""))
      self.tokenizer = model.tokenizer
    else:
      with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "vocab.txt")
        files.write_file(path, vocab_text(vocabulary))
        self.tokenizer = tokenization.FullTokenizer(path, do_lower_case)
    self.seq_length = seq_length
    graph = text_graph.GraphTokenizer(self.tokenizer)
    self._preprocess = saved_model.Preprocessor(graph, seq_length)

  def call(self, inputs: tf.Tensor | list[tf.Tensor]) -> dict[str, tf.Tensor]:
    """The encoder's inputs of texts, or of two lists of texts."""
    texts = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    segments = [
      self._preprocess.tokenize(tf.reshape(tf.convert_to_tensor(text), [-1]))
      for text in texts
    ]
    rows = self._preprocess.bert_pack_inputs(segments, self.seq_length)
    return {
      name: tf.ensure_shape(row, [None, self.seq_length])
      for name, row in rows.items()
    }

  def compute_output_spec(self, inputs) -> dict[str, keras.KerasTensor]:
    """The shapes and dtypes of the output, for Keras's functional models."""
    del inputs
    return {
      name: keras.KerasTensor([None, self.seq_length], "int32", name=name)
      for name in saved_model.SEQUENCES
    }

  def get_config(self) -> dict:
    """What a saved Keras model records: no folder is needed to load it."""
    return {
      **super().get_config(),
      "seq_length": self.seq_length,
      "vocabulary": list(self.tokenizer.vocab),
      "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
    }


class _Lender(variables.VariableStore):
  """Lends the variables of a Keras layer to the model by their names."""

  def __init__(self, weights, seed):
    super().__init__(seed)
    self._weights = weights

  def get(self, name, *args, **kwargs):
    return self._weights[name].value


@keras.saving.register_keras_serializable("bert")
class Encoder(keras.layers.Layer):
  """BERT as a layer, with weights that Keras trains and saves.

  In training (`training=True`), it applies dropout, with other masks in each
  call. The weights are float32; `dtype`, by default Keras's global policy,
  decides the precision of the layers, as "mixed_bfloat16" does.

  Args:
    folder: the folder or name of a model, as for `bert.load`.
    config: the fields of a BertConfig, for new weights instead of a folder.
    precision: instead of `dtype`; "bfloat16" is short for "mixed_bfloat16".
    seed: determines the dropout masks.
  """

  def __init__(
    self,
    folder: str | os.PathLike | None = None,
    config: Mapping[str, object] | None = None,
    precision: str | None = None,
    seed: int = 1,
    **kwargs,
  ):
    if precision:
      is_mixed = precision != "float32"
      kwargs["dtype"] = f"mixed_{precision}" if is_mixed else precision
    super().__init__(**kwargs)
    weights = {}
    if config is None:
      model = resolve(os.fspath(folder or ""))
      self.config = model.config
      shapes = modeling.variable_shapes(self.config)
      saved = checkpoints.load_weights(model.checkpoint, shapes, POOLER)
      weights = {name: saved[name] for name in shapes if name in saved}
      if len(weights) < len(shapes):
        logging.warning(
          "%s has no pooler; it is initialized randomly", saved.prefix
        )
    else:
      self.config = modeling.BertConfig.from_dict(config)
      shapes = modeling.variable_shapes(self.config)
    self.seed = seed
    self._named = {
      name: self._add(name, shape, weights.get(name))
      for name, shape in shapes.items()
    }
    step = self.add_weight(
      [], "zeros", "int64", trainable=False, name="global_step"
    )
    lent = {**self._named, "global_step": step}
    self._step, self._store = step, _Lender(lent, seed)

  def _add(self, name, shape, value):
    """A Keras variable; its own names must not have slashes."""
    if value is not None:
      value = tf.convert_to_tensor(value)
      initializer = lambda shape, dtype: tf.cast(value, dtype)  # noqa: E731
    elif name.endswith("gamma"):
      initializer = "ones"
    elif name.endswith(("bias", "beta")):
      initializer = "zeros"
    else:
      deviation = self.config.initializer_range
      initializer = keras.initializers.TruncatedNormal(stddev=deviation)
    return self.add_weight(
      shape,
      initializer,
      "float32",
      autocast=False,  # The model casts what its precision asks for.
      name=name.replace("/", "."),
    )

  def __call__(self, inputs, *args, **kwargs):
    """`call`, with inputs that are checked before Keras changes the error."""
    names, given = saved_model.SEQUENCES, type(inputs).__name__
    if isinstance(inputs, Mapping):
      given = ", ".join(inputs)
    if not isinstance(inputs, Mapping) or not inputs.keys() >= {*names}:
      raise UserError(
        f"an Encoder reads a dict of {', '.join(names)}, not {given}; pass the "
        f"output of Preprocess, or these names"
      )
    return super().__call__(inputs, *args, **kwargs)

  def call(
    self, inputs: Mapping[str, tf.Tensor], training: bool = False
  ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
    """The vectors of a batch of inputs, int32 [B, S]; see `Preprocess`.

    Returns:
      `pooled_output` and `default`, [B, H], which are equal;
      `sequence_output`, [B, S, H]; `encoder_outputs`, a list of the outputs of
      the layers; all of the layer's `compute_dtype`.
    """
    ids, mask, segments = (inputs[name] for name in saved_model.SEQUENCES)
    with self._store:
      bert = modeling.BertModel(
        self.config,
        bool(training),
        ids,
        mask,
        segments,
        precision=self.compute_dtype,
      )
      outputs = saved_model.hub_outputs(bert)
    if training:
      self._step.assign_add(1)
    return tf.nest.map_structure(
      lambda x: tf.cast(x, self.compute_dtype), outputs
    )

  def variable(self, name: str) -> keras.Variable:
    """The Keras variable of a weight, by its name in released checkpoints."""
    return self._named[name]

  def get_config(self) -> dict:
    """What a saved Keras model records: no folder is needed to load it."""
    return {
      **super().get_config(),
      "config": self.config.to_dict(),
      "seed": self.seed,
    }


def save_release(
  output_dir: str, encoder: Encoder, preprocess: Preprocess
) -> None:
  """Writes an encoder, to a new folder, like an unzipped release."""
  check_is_new(output_dir)
  tokenizer = preprocess.tokenizer
  model = Model(encoder.config, tokenizer, "")
  contents = {
    "bert_config.json": model.config_json(),
    "vocab.txt": vocab_text(tokenizer.vocab),
  }
  weights = {name: v.value for name, v in encoder._named.items()}
  with new_folder(output_dir) as new:
    checkpoints.write_release(new, weights, contents)
