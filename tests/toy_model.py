"""A model of one weight, whose every number follows from arithmetic.

Update number i, from 1, adds i to the weight, and as much noise as `params`
ask for. Its loss is the mean of the batch's rows; the metric `eval_score` is
the weight's distance, negated, to `params["target"]`. The weight starts
from 0, or from `params["initial_values"]`.
"""

import numpy as np
import tensorflow as tf

from bert import variables
from bert.engine import devices
from bert.training import estimator


def model_fn(features, labels, mode, params):
  """See the top; counts its traces, by mode, in `params["traces"]`."""
  del labels
  params.get("traces", []).append(mode)
  store = variables.current_store()
  if not store.initial_values:
    initial_values = {"weight": np.float32(0)}
    store.initial_values = params.get("initial_values", initial_values)
  weight = variables.get_variable("weight", [])
  rows = features["value"]
  loss = estimator.mean_over_real_rows(rows, features)
  if mode == estimator.ModeKeys.PREDICT:
    return estimator.EstimatorSpec(mode, predictions={"sum": rows + weight})
  if mode == estimator.ModeKeys.EVAL:

    def metric_fn(value, weight):
      assert np.all(weight == weight[0])
      score = -abs(weight[0] - params["target"])
      return {"eval_score": float(score), "eval_sum": float(value.sum())}

    weights = tf.fill(tf.shape(rows), tf.convert_to_tensor(weight))
    return estimator.EstimatorSpec(
      mode,
      loss=loss,
      eval_metrics=(metric_fn, {"value": rows, "weight": weights}),
    )
  moment = variables.get_slot(weight, "adam_m")
  step = variables.global_step()
  noise = tf.random.stateless_normal([], variables.dropout_seed())
  # The moment counts updates on its own, so losing it shows.
  size = moment.assign_add(1.0) + params.get("noise", 0.0) * noise
  with tf.control_dependencies([weight.assign_add(size)]):
    train_op = step.assign_add(1)
  return estimator.EstimatorSpec(
    mode, loss=loss, train_op=train_op, logged={"step size": size}
  )


def input_fn_of(values, is_training=False):
  """An input_fn over rows of one value each, in order.

  For training, all values of batch number i, from 0, are i, without end.
  """

  def input_fn(params):
    size = params["batch_size"]
    if is_training:
      dataset = tf.data.Dataset.range(params["first_step"], 2**31)
      return devices.endless(
        dataset.map(
          lambda place: {
            "value": tf.fill([size], tf.cast(place, tf.float32)),
            "is_real_example": tf.ones([size], tf.int32),
            "row_index": tf.range(size),
          }
        )
      )
    count = len(values)
    filled = -count % size
    dataset = tf.data.Dataset.from_tensor_slices(
      {
        "value": tf.constant([*values, *[0.0] * filled], tf.float32),
        "is_real_example": tf.constant([1] * count + [0] * filled),
        "row_index": tf.constant([*range(count), *[0] * filled]),
      }
    )
    return dataset.batch(size, drop_remainder=True)

  return input_fn


def toy(folder, target=6.0, noise=0.0, **config):
  """An Estimator of the model, and the list of its traces."""
  traces = []
  params = {"target": target, "noise": noise, "traces": traces}
  run_config = estimator.RunConfig(str(folder), **config)
  return estimator.Estimator(model_fn, run_config, params), traces


TRAIN = input_fn_of((), True)
