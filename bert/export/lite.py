"""LiteRT (TensorFlow Lite): a trained model for phones and small devices."""

import tensorflow as tf

import modeling
from bert.export.task_graph import TaskGraph
from bert.data import files, records


class _Encoder(modeling.BertModel):
  """Computes the last layer at all positions.

  LiteRT lacks an operation of the faster computation for one position.
  """

  def sequence_output_at(self, positions, site=6):
    del positions, site  # The first position, without dropout.
    return self._output(self._layer(self._last)[0])[:, :1]


def write_lite(
  graph: TaskGraph, path: str, seq_length: int, quantize: str
) -> None:
  """Writes the model of one row as a .tflite file.

  Its inputs are `input_ids`, `input_mask` and `segment_ids`, int32 [1, S], or
  [1, 1, S] for one of several choices. Its outputs are those of
  `graph.numbers`. Both have these names in the signature
  `serving_default`.

  Args:
    graph: the model.
    path: the file.
    seq_length: S.
    quantize: "none" stores weights as float32, "float16" in half the size.
      "dynamic" stores the weights of products as int8, in a quarter of it, and
      quantizes the activations as they come.
  """

  @tf.function(autograph=False)
  def serve(**features):
    return graph.numbers(features, _Encoder)

  specs = {
    name: tf.TensorSpec([1] * graph.row_axes + [seq_length], tf.int32, name)
    for name in records.SEQUENCES
  }
  converter = tf.lite.TFLiteConverter.from_concrete_functions(
    [serve.get_concrete_function(**specs)], graph
  )
  if quantize != "none":
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
  if quantize == "float16":
    converter.target_spec.supported_types = [tf.float16]
  files.write_file(path, converter.convert())
