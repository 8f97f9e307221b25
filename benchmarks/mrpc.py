"""The MRPC command as a whole, and against steps made the original's way.

    python benchmarks/mrpc.py BERT_DIR MRPC_DIR [SEEDS]

Runs run_classifier.py once a seed (batch 32, length 128, 3 epochs, learning
rate 5e-5) and times the process, the first update included. The other side is
a v1 graph in a Session, every batch padded to 128, as the original trains: its
step is timed before and after and multiplied by the number of steps, without
start-up, input or evaluation, so the ratio is on the low side.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np
import tensorflow as tf

import modeling
import optimization
import run_classifier

BATCH, LENGTH, STEPS = 32, 128, 343


def original_step_seconds(bert_dir):
  """Median seconds of a v1 training step on rows padded to 128."""
  config = modeling.BertConfig.from_json_file(f"{bert_dir}/bert_config.json")
  rng = np.random.default_rng(0)
  ids = rng.integers(0, config.vocab_size, [BATCH, LENGTH])
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ones = np.ones([BATCH, LENGTH], np.int32)
    loss, *_ = run_classifier.create_model(
      config, True, tf.constant(ids), ones, 0 * ones, ids[:, 0] % 2, 2, False
    )
    update = optimization.create_optimizer(loss, 5e-5, STEPS, 34, False)
    session.run(tf.compat.v1.global_variables_initializer())
    return machine.seconds(lambda: session.run([loss, update]), 5)[0]


def run_command(bert_dir, data_dir, seed):
  """(whole seconds, seconds to the first update, development accuracy)."""
  with tempfile.TemporaryDirectory() as output_dir:
    command = [
      sys.executable,
      run_classifier.__file__,
      "--task_name=MRPC",
      "--do_train=true",
      "--do_eval=true",
      f"--data_dir={data_dir}",
      f"--vocab_file={bert_dir}/vocab.txt",
      f"--bert_config_file={bert_dir}/bert_config.json",
      f"--init_checkpoint={bert_dir}/bert_model.ckpt",
      f"--max_seq_length={LENGTH}",
      f"--train_batch_size={BATCH}",
      "--learning_rate=5e-5",
      "--num_train_epochs=3",
      f"--seed={seed}",
      "--log_steps=1",
      f"--output_dir={output_dir}",
    ]
    start = time.perf_counter()
    first = None
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
      for line in run.stderr:
        if first is None and "step 1/" in line:
          first = time.perf_counter() - start
    assert run.returncode == 0
    whole = time.perf_counter() - start
    with open(f"{output_dir}/eval_results.txt", encoding="utf-8") as reader:
      accuracy = float(re.search("eval_accuracy = (.*)", reader.read())[1])
  return whole, first, accuracy


def main(bert_dir, data_dir, seeds=3):
  print(machine.describe(), flush=True)
  steps, runs = [original_step_seconds(bert_dir)], []
  for seed in range(1, seeds + 1):
    runs.append(run_command(bert_dir, data_dir, seed))
    steps.append(original_step_seconds(bert_dir))
    names = ("whole_seconds", "first_step_seconds", "accuracy")
    print(json.dumps(dict(zip(names, runs[-1], strict=True))), flush=True)
  whole, first, accuracy = zip(*runs, strict=True)
  original = STEPS * statistics.median(steps)
  print(
    f"whole command: median {statistics.median(whole):.0f} s; first update "
    f"after {statistics.median(first):.1f} s; mean accuracy "
    f"{statistics.mean(accuracy):.3f}"
  )
  print(
    f"{STEPS} steps the original's way: {original:.0f} s "
    f"({original / STEPS:.2f} s a step); ratio "
    f"{original / statistics.median(whole):.2f}"
  )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:3], *map(int, sys.argv[3:]))
