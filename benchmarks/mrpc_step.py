"""A training step of MRPC against the original's way, in turns.

    python benchmarks/mrpc_step.py BERT_DIR MRPC_DIR [ROUNDS]

Only measurements taken in turns can be compared, because the speed of a shared
machine changes from minute to minute. In each of ROUNDS rounds (20) an original
step (v1 graph, Session, padded to 128) is followed by steps of the same program
as in training, in float32 and bfloat16, on the next four batches of the first
epoch. Prints the medians over the rounds of the seconds and of the ratios.
"""

import statistics
import sys
import time

import machine
import numpy as np
import original
import tensorflow as tf

from bert import fusion
import modeling
import tokenization
from bert import variables
from bert.tasks import classification, examples, glue
from bert.training import startup

BATCHES = 4


def read_features(bert_dir, data_dir):
  """The features of MRPC's training set."""
  processor = glue.MrpcProcessor()
  return examples.convert_examples_to_features(
    processor.get_train_examples(data_dir),
    processor.get_labels(),
    original.LENGTH,
    tokenization.FullTokenizer(f"{bert_dir}/vocab.txt"),
  )


def batches_of(bert_dir, data_dir):
  """Batches of MRPC in the order of training."""
  features = read_features(bert_dir, data_dir)
  input_fn = examples.input_fn_builder(features, original.LENGTH, True, True)
  return input_fn({"batch_size": 32, "seed": 1})


def step_of(bert_dir, precision, element_spec):
  """A function that trains on a batch."""
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  model_fn = classification.model_fn_builder(
    config,
    2,
    f"{bert_dir}/bert_model.ckpt",
    5e-5,
    343,
    34,
    use_tpu=False,
    use_one_hot_embeddings=False,
    precision=precision,
  )
  store = variables.VariableStore()

  @tf.function(autograph=False, input_signature=[element_spec])
  def step(features):
    with store, fusion.enabled(True):
      spec = model_fn(features, None, "train", {})
    return {"loss": spec.loss, **spec.logged}

  return lambda features: step(features)["loss"].numpy()


def timed(run, arguments):
  """Mean seconds of `run` over the arguments."""
  start = time.perf_counter()
  for argument in arguments:
    run(argument)
  return (time.perf_counter() - start) / len(arguments)


def main(bert_dir, data_dir, rounds=20):
  startup.keep_freed_memory()
  print(machine.describe(), flush=True)
  rows = original.read(data_dir, bert_dir, "train")
  dataset = batches_of(bert_dir, data_dir)
  steps = {
    precision: step_of(bert_dir, precision, dataset.element_spec)
    for precision in ("float32", "bfloat16")
  }
  batches = list(dataset.take(BATCHES * rounds))
  with original.computation(), tf.Graph().as_default() as graph:
    placeholders, update = original.build(bert_dir, True)
    initial = tf.compat.v1.global_variables_initializer()
  session = tf.compat.v1.Session(graph=graph)
  session.run(initial)
  fed = original.feed(placeholders, rows, np.arange(32))

  def original_step(_):
    session.run(update, fed)

  original_step(None)
  for step in steps.values():
    step(batches[0])
  results = []
  for number in range(rounds):
    mine = batches[number * BATCHES :][:BATCHES]
    results.append([timed(original_step, [None])])
    results[-1] += [timed(step, mine) for step in steps.values()]
  theirs, *ours = zip(*results, strict=True)
  print(f"original: {statistics.median(theirs):.3f} s")
  for precision, seconds in zip(steps, ours, strict=True):
    ratios = map(float.__truediv__, theirs, seconds)
    print(
      f"{precision}: {statistics.median(seconds):.3f} s, ratio "
      f"{statistics.median(ratios):.2f}"
    )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
