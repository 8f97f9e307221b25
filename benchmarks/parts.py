"""What each part of "What makes it fast" in docs/speed.md saves.

    python benchmarks/parts.py [ROUNDS]

Builds an update of a 6 x 384 classifier with 32 rows of 56 positions, and the
vectors of all positions, as the scripts do, and again with one part at a time
replaced by the plain form. All versions take turns on the same rows, in another
order in each round. Prints the milliseconds as built, and for each part the
median over ROUNDS (15) of the time without it, divided by the time with it.
"nothing" stands for a second version as built; its ratio shows the noise, since
the time also depends on where a version lies in memory. The embeddings keep
their LayerNorm and dropout.
"""

import contextlib
import functools
import random
import statistics
import sys
from unittest import mock

import encoder_steps
import machine
import tensorflow as tf
import training_step

from bert import fusion
from bert import layers
import modeling
import optimization
from bert import variables

LAYERS, HIDDEN, BATCH, LENGTH = 6, 384, 32, 56


def plain_gelu(x):
  """GELU, of which TensorFlow derives the gradient."""
  return layers._gelu_and_gradient(x)[0]


def plain_normalize(x, weights):
  """LayerNorm, of which TensorFlow derives the gradient."""
  return layers._normalize_and_gradient(x, *weights)[0]


def sum_of_rows(x):
  """The sum over all axes but the last, as a reduction."""
  return tf.reduce_sum(layers.reshape_to_matrix(x), axis=0)


def bias_in_product(x, bias):
  """A bias that TensorFlow may combine with the product before it."""
  return tf.nn.bias_add(x, bias), lambda upstream: (
    upstream,
    layers._sum_of_rows(upstream),
  )


def wide_dropout(x, dropout_prob, seed=None):
  """Dropout with a random float32 for each element."""
  if not dropout_prob:
    return x
  seed = variables.dropout_seed() if seed is None else seed
  uniform = tf.random.stateless_uniform(tf.shape(x), seed)
  keep = tf.cast(uniform >= dropout_prob, x.dtype)
  return x * (keep / (1 - dropout_prob))


def update_one_by_one(self, group, rate):
  """Updates each vector by itself."""
  return [
    operation
    for grad, variable, m, v in group
    for operation in self._update(grad, variable, m, v, rate, False)
  ]


def replaced(module, name, value):
  """A context in which an attribute of a module has another value."""
  return lambda: mock.patch.object(module, name, value)


_OPTIMIZER = optimization.AdamWeightDecayOptimizer
_NO_PROGRAMS = replaced(fusion, "enabled", lambda _: contextlib.nullcontext())

UPDATES = {
  "fused GELU": _NO_PROGRAMS,
  "GELU's gradient in closed form": replaced(layers, "gelu", plain_gelu),
  "LayerNorm's gradient in closed form": replaced(
    modeling, "normalize", plain_normalize
  ),
  "bias gradients by matrix multiplication": replaced(
    layers, "_sum_of_rows", sum_of_rows
  ),
  "unfused bias": replaced(layers, "_add_bias_and_gradient", bias_in_product),
  "fused update": replaced(optimization, "_MIN_COMPILED", 2**62),
  "small variables updated together": replaced(
    _OPTIMIZER, "_update_vectors", update_one_by_one
  ),
  "16 bits for dropout": replaced(modeling, "dropout", wide_dropout),
}
FORWARDS = {
  "fused GELU": lambda: _without_fusion(),
  "GELU fused by oneDNN": replaced(fusion, "combines", lambda x: False),
  "16-bit weights": replaced(
    variables, "storage_dtype", lambda precision: tf.float32
  ),
}


@contextlib.contextmanager
def _without_fusion():
  with _NO_PROGRAMS(), FORWARDS["GELU fused by oneDNN"]():
    yield


def measure(job, build, parts, rounds):
  """Prints the time of a job, and for each part what it saves."""
  plain_forms = {
    None: contextlib.nullcontext,
    "nothing": contextlib.nullcontext,
  }
  steps = {}
  for part, plain in (plain_forms | parts).items():
    with plain():
      steps[part] = build()
      steps[part]()  # Traces.
  times = {part: [] for part in steps}
  rng = random.Random(1)
  for _ in range(rounds):
    for part in rng.sample(list(steps), len(steps)):
      times[part].append(machine.seconds(steps[part], 2, 1)[0])
  base = times.pop(None)
  print(f"{job}: {1000 * statistics.median(base):.0f} ms", flush=True)
  for part, found in times.items():
    ratios = [b / a for a, b in zip(base, found, strict=True)]
    print(
      f"  without {part}: {statistics.median(ratios):.2f} times", flush=True
    )


def main(rounds=15):
  print(machine.describe(), flush=True)
  # It warns of functions that are traced anew, as they are here on purpose.
  tf.get_logger().setLevel("ERROR")
  config = training_step.make_config(LAYERS, HIDDEN)
  for precision in ("float32", "bfloat16"):
    for job, build, parts in (
      ("update", training_step.build_step, UPDATES),
      ("vectors", encoder_steps.build_forward, FORWARDS),
    ):
      # XLA's programs are kept by activation and shape.
      fusion._compiled.cache_clear()
      measure(
        f"{job} {precision}",
        functools.partial(build, config, BATCH, LENGTH, precision),
        parts,
        rounds,
      )


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
