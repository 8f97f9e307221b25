"""Tests of the kernels: values, gradients, and what is compiled."""

import collections
import functools
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
import scripts
import task_folders
import tensorflow as tf
from tensorflow.python.eager import context

import bert
import run_classifier
from bert import kernels, layers
from bert.data import records
from bert.tasks.classification import examples
from bert.training import estimator
from bert.training.model_fn import ModelOptions, build_model_fn


def matrix(seed=0):
  rng = np.random.default_rng(seed)
  return tf.constant(rng.normal(size=[512, 128]), tf.float32)


def with_gradient(function, x, is_enabled):
  """function(x), its gradient for an upstream gradient, and its graph."""

  @tf.function(autograph=False)
  def run(x, upstream):
    with kernels.enabled(is_enabled):
      y = function(x)
      return y, tf.gradients(y, x, upstream)[0]

  upstream = tf.cast(matrix(1), x.dtype)
  concrete = run.get_concrete_function(x, upstream)
  return [*concrete(x, upstream), concrete.graph.as_graph_def()]


def number_of_programs(graph_def):
  """Number of functions that XLA must compile."""
  functions = graph_def.library.function
  return sum(f.attr["_XlaMustCompile"].b for f in functions)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_values_and_gradient(precision):
  x = tf.cast(matrix(), precision)
  gelu = functools.partial(kernels.activate, layers.gelu)
  plain, plain_gradient, _ = with_gradient(gelu, x, False)
  compiled, gradient, graph_def = with_gradient(gelu, x, True)
  assert number_of_programs(graph_def) == 2
  assert compiled.dtype == gradient.dtype == x.dtype
  tolerance = 1e-5 if precision == "float32" else 2**-6
  for a, b in ((compiled, plain), (gradient, plain_gradient)):
    a, b = (tf.cast(y, tf.float32) for y in (a, b))
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


def test_a_compiled_step_may_contain_programs():
  """XLA takes them into the program around them."""

  @tf.function(jit_compile=True, autograph=False)
  def run(x):
    with kernels.enabled(True):
      y = kernels.activate(layers.gelu, x)
      return y, tf.gradients(y, x)[0]

  x = matrix()
  np.testing.assert_allclose(run(x)[0], layers.gelu(x), atol=1e-6)


def run_with_onednn(nodeid):
  """Runs a test in a process whose TensorFlow starts with oneDNN."""
  command = [sys.executable, "-m", "pytest", "-p", "no:xdist", nodeid]
  result = subprocess.run(
    command,
    cwd=scripts.ROOT,
    env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"},
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stdout + result.stderr


def fused_products(run):
  """What a first call multiplies: {(type, what it is fused with): number}.

  A residual that is added as well makes no difference.
  """
  with context.collect_graphs() as graphs:
    run()
  return collections.Counter(
    (
      tf.as_dtype(node.attr["T"].type).name,
      b"+".join(x for x in node.attr["fused_ops"].list.s if x != b"Add"),
    )
    for graph in graphs
    for node in graph.node
    if re.fullmatch("_?(Mkl|Native|Fused)*MatMul", node.op)
  )


def predictions_of(folder, golden, precision):
  """Functions that predict with a Predictor, and with an Estimator."""
  ask = bert.load(folder, precision=precision)
  task = task_folders.TASKS["classification"]
  options = ModelOptions(precision=precision)
  model_fn = build_model_fn(
    task, golden.config, f"{folder}/bert_model.ckpt", None, options
  )
  config = estimator.RunConfig(os.path.join(folder, precision))
  model = estimator.Estimator(model_fn, config)
  columns = [golden.inputs[name].tolist() for name in records.SEQUENCES]
  rows = [examples.InputFeatures(*row, 0) for row in zip(*columns, strict=True)]
  input_fn = run_classifier.input_fn_builder(rows, 32, False, False)
  return {
    "Predictor": lambda: ask(["the city", "many years"]),
    "Estimator": lambda: list(model.predict(input_fn, len(rows))),
  }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN is for x86")
def test_the_products_of_a_whole_model_are_fused(
  request, golden, goldens, tmp_path
):
  """Those of a classifier, as a Predictor and an Estimator build it."""
  if not kernels.has_onednn():
    run_with_onednn(request.node.nodeid)
    return
  folder = task_folders.write(tmp_path, "classification", golden, goldens)
  layers_below = golden.config.num_hidden_layers - 1
  # Query, key, value and two outputs. The output layer has a bias, too.
  biases = 5 * (layers_below + 1) + 1
  for name, run in predictions_of(folder, golden, "float32").items():
    found = fused_products(run)
    found.pop(("float32", b""))  # Of segments, and of einsum.
    assert found == {
      ("float32", b"BiasAdd+GeluApproximate"): layers_below + 1,
      ("float32", b"BiasAdd"): biases,
      ("float32", b"BiasAdd+Tanh"): 1,  # The pooler.
    }, name
  for name, run in predictions_of(folder, golden, "bfloat16").items():
    found = fused_products(run)
    kinds = {fused for dtype, fused in found if dtype == "bfloat16"}
    assert kinds == {b""}, name
    assert found["bfloat16", b""] >= biases - 1 + layers_below + 1
