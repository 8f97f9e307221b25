"""The jobs of the league: what each side runs, and when results are equal."""

import filecmp
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import machine
import numpy as np

SIDES = os.path.join(machine.ROOT, "benchmarks", "sides")
TORCH_TRAINING = f"{SIDES}/torch_training.py"
VECTORS = f"{SIDES}/vectors.py"


class Unequal(Exception):
  """The results of two sides differ; the text says by how much."""


class Side(NamedTuple):
  """A command: what follows Python, and the environment that it needs.

  `{output}` is a new folder, and `{round}` the number of the round, a seed.
  `check` gets the league, the Run of the first side and that of this side. It
  returns a remark, or raises Unequal. `prepare` are commands, each after its
  environment, whose time does not count.
  """

  name: str
  command: Sequence[str] = ()
  environment: str = ""
  check: Callable | None = None
  prepare: Sequence[Sequence[str]] = ()
  absent: str = ""  # why it cannot run


class Row(NamedTuple):
  title: str
  sides: list[Side]
  metrics: Mapping[str, str] = MappingProxyType({})  # numbers of a Run to show


def script(name, **flags):
  """The command of one of our scripts."""
  options = [f"--{key}={value}" for key, value in flags.items()]
  return [os.path.join(machine.ROOT, name), *options]


def close_arrays(league, first, own, name="result.npy", load=np.load):
  """The check of sides that write numbers: equal to 0.0001."""
  ours, theirs = (load(f"{run.folder}/{name}") for run in (first, own))
  if ours.shape != theirs.shape:
    raise Unequal(f"results of shapes {ours.shape} and {theirs.shape}")
  difference = np.abs(ours - theirs).max()
  if not difference <= 1e-4:
    raise Unequal(f"results differ by {difference:.1e}")
  return f"equal to {difference:.0e}" if difference else "equal"


def close_vectors(league, first, own):
  """The check of vectors in a lower precision."""
  ours, theirs = (np.load(f"{x.folder}/result.npy") for x in (first, own))
  lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
  lowest = ((ours * theirs).sum(axis=1) / lengths).min()
  if not lowest > 0.5:
    raise Unequal(f"lowest cosine {lowest:.3f}")
  return f"lowest cosine {lowest:.4f}"


def same_evaluation(arguments, tolerance, league, first, own):
  """The check of trainings: the other library evaluates our trained model.

  Updates differ by dropout, the order of batches and the new output layer, but
  the metrics and the loss of the same weights must be equal.
  """
  model = f"{first.folder}_converted"
  if not os.path.exists(model):
    flags = {"model_dir": first.folder, "output_dir": model}
    command = script("convert_checkpoint.py", to="huggingface", **flags)
    league.execute([league.python(""), *command])
  task, *flags = arguments
  command = [TORCH_TRAINING, task, model, "{output}", *flags]
  found = league.execute([league.python("torch"), *command]).numbers
  worst = max(abs(found[name] - first.numbers[name]) for name in found)
  if not worst <= tolerance:
    raise Unequal(f"our model's results {found} there, {first.numbers} here")
  return f"our model evaluates equally, to {worst:.0e}"


close_tables = functools.partial(
  close_arrays, name="test_results.tsv", load=np.loadtxt
)


def equal_files(league, first, own):
  files = (f"{run.folder}/records" for run in (first, own))
  if not filecmp.cmp(*files, shallow=False):
    raise Unequal("the files differ")
  return "equal files"


# Our script, what its flags of files begin with, and more of its flags.
_TEXTS = {"text_a_column": "text_a", "text_b_column": "text_b"}
_TABLE = {"task_name": "custom", "label_column": "label", **_TEXTS}
_SCRIPTS = {
  "pairs": ("run_classifier.py", "{}.csv", {**_TABLE, "learning_rate": 5e-5}),
  "words": ("run_ner.py", "words_{}.txt", {"learning_rate": 5e-5}),
  "vectors": (
    "run_embeddings.py",
    "pairs_{}.csv",
    {**_TEXTS, "learning_rate": 2e-5},
  ),
}
_METRICS = {"eval_accuracy": "accuracy", "eval_mrr_at_10": "MRR@10"}


def training(inputs, title, task, precision="float32", train="train"):
  """A row: a training of one epoch, with its evaluation, as whole commands."""
  name, form, flags = _SCRIPTS[task]
  paths = [f"{inputs.folder}/{form.format(stem)}" for stem in (train, "dev")]
  here = script(
    name,
    do_train="true",
    do_eval="true",
    train_file=paths[0],
    dev_file=paths[1],
    init_checkpoint=inputs.model,
    train_batch_size=32,
    num_train_epochs=1,
    precision=precision,
    seed="{round}",
    output_dir="{output}",
    **flags,
  )
  evaluation = [task, f"--dev={paths[1]}", f"--labels={paths[0]}"]
  command = [TORCH_TRAINING, task, inputs.model, "{output}", *evaluation[1:]]
  command += [f"--train={paths[0]}", "--seed={round}"]
  command += ["--bfloat16"] * (precision == "bfloat16")
  tolerance = 1e-3 if precision == "float32" else 2e-2
  check = functools.partial(same_evaluation, evaluation, tolerance)
  peer = "sentence-transformers" if task == "vectors" else "transformers"
  reason = inputs.reasons.get("words" if task == "words" else "pairs", "")
  return Row(
    f"{title}, {precision}",
    [
      Side("here", here, absent=reason),
      Side(peer, command, "torch", check, absent=reason),
    ],
    _METRICS,
  )


def prediction(inputs):
  """A row: probabilities of all pairs, as whole commands."""
  folder = inputs.folder
  model, converted = f"{folder}/classifier", f"{folder}/classifier_hf"
  flags = {**_TABLE, "train_file": f"{folder}/one.csv", "output_dir": model}
  flags["init_checkpoint"] = inputs.model
  convert = {"model_dir": model, "output_dir": converted, "to": "huggingface"}
  before = [
    ("", *script("run_classifier.py", do_train="true", **flags)),
    ("", *script("convert_checkpoint.py", **convert)),
  ]
  here = script(
    "run_classifier.py",
    do_predict="true",
    test_file=f"{folder}/train.csv",
    predict_batch_size=32,
    init_checkpoint=model,
    output_dir="{output}",
    **_TABLE,
  )
  there = [TORCH_TRAINING, "pairs", converted, "{output}"]
  there += [f"--test={folder}/train.csv", f"--labels={folder}/one.csv"]
  reason = inputs.reasons.get("pairs", "")
  return Row(
    "prediction of the pairs of MRPC, float32",
    [
      Side("here", here, "", None, before, reason),
      Side("transformers", there, "torch", close_tables, before, reason),
    ],
  )


_ST = "sentence-transformers"


def _ours(folder="onnx", **options):
  return "bert", folder, "", options


def _openvino(**model_kwargs):
  options = {"backend": "openvino", "model_kwargs": model_kwargs}
  return _ST, "openvino", "openvino", options


# Of each side of vectors: library, folder, environment and options. By itself,
# OpenVINO computes in bfloat16 where the processor can.
VECTOR_SIDES = {
  "here, TensorFlow, float32": _ours("model"),
  "here, TensorFlow, bfloat16": _ours("model", precision="bfloat16"),
  "here, ONNX Runtime, float32": _ours(),
  "here, ONNX Runtime behind TensorFlow, float32": _ours(
    "model", runtime="onnxruntime"
  ),
  "here, ONNX Runtime, int8": _ours(precision="int8"),
  "here, OpenVINO, float32": _ours(runtime="openvino", precision="float32"),
  "here, OpenVINO, bfloat16": _ours(runtime="openvino", precision="bfloat16"),
  "here, OpenVINO, int8": _ours(runtime="openvino", precision="int8"),
  f"{_ST}, PyTorch, float32": (_ST, "model", "torch", {}),
  f"{_ST}, PyTorch, bfloat16": (
    *(_ST, "model", "torch"),
    {"model_kwargs": {"torch_dtype": "bfloat16"}},
  ),
  f"{_ST}, OpenVINO, float32": _openvino(
    ov_config={"INFERENCE_PRECISION_HINT": "f32"}
  ),
  f"{_ST}, OpenVINO, by default": _openvino(),
  f"{_ST}, OpenVINO, static int8": _openvino(
    file_name="openvino_model_qint8_quantized.xml"
  ),
  "fastembed, with our graph": ("fastembed", "renamed", "fastembed", {}),
}


def prepare(inputs, folder):
  """The commands that write a folder of VECTOR_SIDES."""
  if folder == "model":
    return []
  output = f"{inputs.folder}/{folder}"
  if folder == "openvino":
    texts = f"{inputs.folder}/calibration"
    return [("openvino", VECTORS, "quantize", inputs.model, texts, output)]
  onnx = f"{inputs.folder}/onnx"
  flags = {"model_dir": inputs.model, "output_dir": onnx, "format": "onnx"}
  commands = [("", *script("export_model.py", **flags))]
  if folder == "renamed":
    commands.append(("", VECTORS, "rename", inputs.model, onnx, output))
  return commands


def vectors(inputs, title, texts, names):
  """A row of some of VECTOR_SIDES; the first is in float32."""
  sides = []
  for name in names:
    library, folder, environment, options = VECTOR_SIDES[name]
    command = [VECTORS, "encode", library, f"{inputs.folder}/{folder}"]
    command += [json.dumps(options), f"{inputs.folder}/{texts}.txt", "{output}"]
    is_exact = not name.endswith(("bfloat16", "int8", "default"))
    check = close_arrays if is_exact else close_vectors
    before = prepare(inputs, folder)
    sides.append(Side(name, command, environment, check, before))
  return Row(title, sides)


START = (
  *("here, ONNX Runtime, float32", "here, OpenVINO, float32"),
  *("here, TensorFlow, float32", f"{_ST}, PyTorch, float32"),
  *(f"{_ST}, OpenVINO, float32", "fastembed, with our graph"),
)


def server(inputs, clients):
  """A row: requests for vectors over HTTP, by several clients."""
  requests = 32 if inputs.is_small else 25 * clients + 100
  load = [f"{SIDES}/clients.py", f"{clients}", f"{requests}"]
  load += [f"{inputs.folder}/sentences.txt", "{output}", "{python}"]
  tensorflow, onnx = (
    script("serve.py", port="{port}", model_name="model", model_dir=model)
    for model in (inputs.model, f"{inputs.folder}/onnx")
  )
  peer = [VECTORS, "serve", _ST, inputs.model, "{}", "{port}"]
  before = prepare(inputs, "onnx")
  return Row(
    f"{requests} requests for a vector, {clients} at a time",
    [
      Side("here, ONNX Runtime", [*load, *onnx], prepare=before),
      Side(
        "here, ONNX Runtime behind TensorFlow",
        [*load, *tensorflow, "--runtime=onnxruntime"],
        check=close_arrays,
      ),
      Side("here, TensorFlow", [*load, *tensorflow], check=close_arrays),
      Side(f"{_ST} behind FastAPI", [*load, *peer], "torch", close_arrays),
    ],
    {"median_ms": "median, ms", "p99_ms": "99 %, ms"},
  )


def few_shot(inputs):
  """A row: a classifier of eight rows of each label, with its evaluation."""
  command = [os.path.join(machine.ROOT, "benchmarks", "few_labels.py")]
  rest = [inputs.model, f"{inputs.folder}/few.csv", "--rows=8", "--seeds=1"]
  rest += ["--first_seed={round}", f"--test={8 if inputs.is_small else 50}"]
  return Row(
    "few-shot training, 8 rows of each of four labels",
    [
      Side("here", [*command, "few_shot", *rest]),
      Side("setfit", [*command, "setfit", *rest], "setfit"),
    ],
    {"mean": "accuracy"},
  )


def tokenizer(inputs):
  """A row: the ids of a text, on one core."""
  # Once: repetitions would be a gift to our cache of words.
  rest = [inputs.model, f"{inputs.folder}/text.txt", "{output}"]
  command = [f"{SIDES}/tokens.py"]
  return Row(
    "word pieces of a text, one core",
    [
      Side("here", [*command, "bert", *rest]),
      Side(
        "tokenizers", [*command, "tokenizers", *rest], "torch", close_arrays
      ),
    ],
  )


def pretraining_data(inputs):
  """A row: examples of pre-training, as whole commands."""

  def side(workers, check=None):
    command = script(
      "create_pretraining_data.py",
      vocab_file=f"{inputs.folder}/vocab.txt",
      input_file=f"{inputs.folder}/corpus.txt",
      output_file="{output}/records",
      dupe_factor=5,
      shard_mb=4,
      num_workers=workers,
    )
    return Side(f"here, workers: {workers}", command, check=check)

  reason = "it needs TensorFlow 1, which no current Python can install"
  original = Side("the original", absent=reason)
  return Row("pre-training data", [side(1), side(2, equal_files), original])


def make_rows(inputs):
  """Rows by name, cheap ones first."""
  train = functools.partial(training, inputs)
  return {
    "tokenizer": tokenizer(inputs),
    "pretraining-data": pretraining_data(inputs),
    "start": vectors(
      inputs, "start: from a command to a vector", "sentence", START
    ),
    "first-step": train("training of 32 pairs, one step", "pairs", train="one"),
    "prediction": prediction(inputs),
    "server-1": server(inputs, 1),
    "server-32": server(inputs, 32),
    "conll": train("CoNLL-2003, 1,000 sentences", "words"),
    "encoding": vectors(
      inputs,
      f"vectors of {inputs.sentences:,} sentences",
      "sentences",
      VECTOR_SIDES,
    ),
    "few-shot": few_shot(inputs),
    "vectors": train("vectors of 1,024 pairs of MRPC", "vectors"),
    "mrpc": train("MRPC, 1 epoch", "pairs"),
    "mrpc-bfloat16": train("MRPC, 1 epoch", "pairs", "bfloat16"),
  }
