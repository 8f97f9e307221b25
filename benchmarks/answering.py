"""The first answer of a process, its memory, and 4,000 sentences.

    python benchmarks/answering.py MODEL_DIR ONNX_DIR [ROUNDS NAME=PYTHON ...]

Starts, in turns, processes that load a model of vectors, encode one sentence
and end: bert.load with the checkpoint in MODEL_DIR, by TensorFlow and by
onnxruntime, and with the folder that export_model.py --format=onnx made of it.
Each further NAME is one of "runtime", the Python of an environment made from
requirements-runtime.txt, with the wheel; and "torch", "openvino" and
"fastembed", those of environments with sentence-transformers or fastembed,
which load the folder in the environment variable PEER_DIR. Prints the seconds
of ROUNDS (5) rounds, the peak memory of each, and the seconds of 4,000
sentences, without loading.
"""

import os
import statistics
import subprocess
import sys

import machine

_OURS = """
import bert
model = bert.load(sys.argv[1], **{options})
def encode(texts):
  return [answer["vector"] for answer in model(list(texts))]
"""

_THEIRS = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu", backend="{backend}")
model.max_seq_length = 128
def encode(texts):
  return model.encode(list(texts), batch_size=32)
"""

_FASTEMBED = """
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
TextEmbedding.add_custom_model(
  "the/model", PoolingType.MEAN, False, ModelSource(hf="the/model"), 384,
  model_file="model.onnx",
)
model = TextEmbedding("the/model", specific_model_path=sys.argv[1])
def encode(texts):
  return list(model.embed(list(texts), batch_size=32))
"""

# Prints the seconds from the start of the process, the peak memory in MB, and,
# if there are texts, the seconds of encoding them.
_PROGRAM = """
import os, sys, time
{load}
encode(["It rains."])
with open("/proc/self/stat") as reader:
  begin = int(reader.read().rpartition(")")[2].split()[19])
with open("/proc/uptime") as reader:
  now = float(reader.read().split()[0])
print(now - begin / os.sysconf("SC_CLK_TCK"))
with open("/proc/self/status") as reader:
  print(next(int(x.split()[1]) for x in reader if "VmHWM" in x) / 1024)
if len(sys.argv) > 2:
  with open(sys.argv[2], encoding="utf-8") as reader:
    texts = reader.read().splitlines()
  start = time.perf_counter()
  encode(texts)
  print(time.perf_counter() - start)
"""

_OTHERS = {
  "torch": _THEIRS.format(backend="torch"),
  "openvino": _THEIRS.format(backend="openvino"),
  "fastembed": _FASTEMBED,
}


def _run(python, load, folder, *texts):
  """The numbers that the program prints."""
  environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
  if python == sys.executable:
    environment["PYTHONPATH"] = machine.ROOT
  process = subprocess.run(
    [python, "-c", _PROGRAM.format(load=load), folder, *texts],
    env=environment,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
    cwd="/",  # A clone there would hide the installed wheel.
  )
  return list(map(float, process.stdout.split()))


def main(model_dir, onnx_dir, rounds=5, *others):
  print(machine.describe(), flush=True)
  ours = {
    "checkpoint, TensorFlow": (model_dir, {}),
    "checkpoint, onnxruntime": (model_dir, {"runtime": "onnxruntime"}),
    "ONNX folder": (onnx_dir, {}),
    "ONNX folder, OpenVINO": (onnx_dir, {"runtime": "openvino"}),
  }
  jobs = {
    name: (sys.executable, _OURS.format(options=options), folder)
    for name, (folder, options) in ours.items()
  }
  for name, _, python in (other.partition("=") for other in others):
    if name == "runtime":
      jobs[name] = python, _OURS.format(options={}), onnx_dir
    else:
      jobs[name] = python, _OTHERS[name], os.environ["PEER_DIR"]
  memory = {name: [] for name in jobs}

  def start(name):
    seconds, megabytes = _run(*jobs[name])
    memory[name].append(megabytes)
    return seconds

  sides = {name: lambda name=name: start(name) for name in jobs}
  machine.in_turns(sides, int(rounds), warmups=1)
  for name, values in memory.items():
    print(f"{name}: {statistics.median(values):.0f} MB")
  path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "sentences.txt")
  with open(path, "w", encoding="utf-8") as writer:
    writer.write("\n".join(machine.make_texts(4000, 3, 20)))
  encoding = {
    name: lambda name=name: _run(*jobs[name], path)[2] for name in jobs
  }
  print("4,000 sentences:")
  machine.in_turns(encoding, max(1, int(rounds) // 2))
  os.remove(path)


if __name__ == "__main__":
  main(*sys.argv[1:])
