"""LiteRT (TensorFlow Lite): a trained model for phones and small devices."""

import tensorflow as tf

from bert.data import files, records
from bert.export.task_graph import TaskGraph


def write_lite(
  graph: TaskGraph, path: str, seq_length: int, quantize: str
) -> None:
  """Writes the model of one row as a .tflite file.

  Its inputs are `input_ids`, `input_mask` and `segment_ids`, int32 [1, S], or
  [1, 1, S] for one of several choices. Its outputs are those of
  `graph.compute`. Both have these names in the signature `serving_default`.
  `quantize` is a value of --quantize.
  """

  @tf.function(autograph=False)
  def serve(**features):
    return graph.compute(features)

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
