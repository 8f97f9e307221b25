"""Vectors of sentences by bert.load, and by sentence-transformers.

    python benchmarks/encoding.py MODEL_DIR TEXTS [PYTHON ROUNDS]

Encodes the lines of TEXTS by the model of sentence-transformers in MODEL_DIR,
32 at a time, in float32 and bfloat16 with TensorFlow, and with OpenVINO. PYTHON
is the Python of an environment with sentence-transformers, which takes turns.
Prints the seconds of ROUNDS (3) runs, without loading the model, and the
largest difference of the vectors in float32.
"""

import os
import subprocess
import sys
import tempfile

import machine
import numpy as np

from bert.engine import loaded_model
from bert.search import text_index

JOBS = {
  "TensorFlow, float32": {},
  "TensorFlow, bfloat16": {"precision": "bfloat16"},
  "OpenVINO": {"runtime": "openvino"},
}

# For each line on stdin, encodes the texts and prints the seconds.
PEER = """
import sys, time
import numpy, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(int(sys.argv[4]))
model = SentenceTransformer(sys.argv[1], device="cpu")
model.max_seq_length = 128
texts = open(sys.argv[2], encoding="utf-8").read().splitlines()
print("ready", flush=True)
for line in sys.stdin:
  start = time.perf_counter()
  vectors = model.encode(texts, batch_size=32)
  print(time.perf_counter() - start, flush=True)
  numpy.save(sys.argv[3], vectors)
"""


def start_peer(python, model_dir, texts, vectors):
  """A function that returns the seconds of sentence-transformers."""
  threads = str(len(os.sched_getaffinity(0)))
  process = subprocess.Popen(
    [python, "-c", PEER, model_dir, texts, vectors, threads],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    # Waiting threads must not take the processor from the other side.
    env=os.environ | {"OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"},
  )
  process.stdout.readline()

  def seconds():
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())

  return seconds


def main(model_dir, texts_file, python="", rounds=3):
  print(machine.describe(), flush=True)
  with open(texts_file, encoding="utf-8") as reader:
    texts = reader.read().splitlines()
  found = {}
  sides = {}
  with tempfile.TemporaryDirectory() as folder:
    theirs = os.path.join(folder, "vectors.npy")
    if python:
      peer = start_peer(python, model_dir, texts_file, theirs)
      sides["sentence-transformers"] = peer
    for name, options in JOBS.items():
      model = loaded_model.load(model_dir, max_seq_length=128, **options)

      def encode(name=name, model=model):
        found[name] = text_index.encode(model, texts)

      sides[name] = lambda encode=encode: machine.timed(encode)
    machine.in_turns(sides, int(rounds), warmups=1)
    if python:
      difference = np.abs(found[next(iter(JOBS))] - np.load(theirs)).max()
      print(f"largest difference of the vectors: {difference:.1e}")


if __name__ == "__main__":
  main(*sys.argv[1:])
