"""What works, and what is refused, where TensorFlow is not installed."""

import functools
import json
import os
import pathlib
import re
import shutil

import no_tensorflow
import onnx
import onnxruntime
import pytest
import scripts
import source_modules
import task_folders
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import bert
from bert import runtimes
from bert.commands import export_model
from bert.errors import UserError

# Modules whose classes are TensorFlow's or Keras's; no module imports them but
# in functions.
_OF_TENSORFLOW = {
  "bert.keras",
  *(
    f"bert.export.{name}"
    for name in ("lite", "saved_model", "task_graph", "text_graph", "text_rows")
  ),
}

_IMPORT = """
import importlib
for name in sys.argv[1:]:
  importlib.import_module(name)
assert "numpy" in sys.modules
"""


def test_every_module_and_script_imports():
  names = source_modules.MODULES.keys() - _OF_TENSORFLOW
  aliases = [f"bert.{name}" for name in source_modules.ALIASES]
  no_tensorflow.run(_IMPORT, *sorted(names), *aliases)


def test_its_first_use_is_one_line(tmp_path, goldens):
  _, log = no_tensorflow.run_script(
    "extract_features.py",
    f"--init_checkpoint={goldens / 'model'}",
    f"--vocab_file={goldens / 'vocab.txt'}",
    f"--input_file={goldens / 'extract_input.txt'}",
    f"--output_file={tmp_path / 'out.jsonl'}",
    status=2,
  )
  assert "Traceback" not in log
  line = log.splitlines()[-1]
  assert "needs the package tensorflow" in line
  assert "run pip install -r requirements.txt" in line
  assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def graph(tmp_path_factory, golden, goldens):
  """A function from a task to its folder, and to its ONNX folder."""

  @functools.cache
  def export(name, *flags):
    base = tmp_path_factory.mktemp("export")
    (base / "model").mkdir()
    model = task_folders.write(base / "model", name, golden, goldens)
    options = {"format": "onnx", "output_dir": str(base / "graph")}
    export_model.run(model_dir=model, **options, **dict(flags))
    return pathlib.Path(model), base / "graph"

  return export


# A script, its flags, and what is typed.
_ASKED = {
  "classification": ("run_classifier.py", "the north\nJim Henson\n"),
  "multilabel": ("run_classifier.py", "the city ||| the north\n"),
  "regression": ("run_classifier.py", "the city\n"),
  "squad": ("run_squad.py", "{text}\nWho is in the city?\n"),
  "tagging": ("run_ner.py", "Jim Henson made puppets.\n"),
  "multiple choice": ("run_multiple_choice.py", "He\n\nruns | is old\n"),
}


@pytest.mark.parametrize("name", _ASKED)
def test_scripts_answer_what_is_typed(graph, tmp_path, name):
  script, typed = _ASKED[name]
  text = tmp_path / "text.txt"
  text.write_text("Jim Henson was in the city. It was old.", "utf-8")
  typed = typed.format(text=text)
  model, folder = graph(name)
  found, log = no_tensorflow.run_script(
    script, "--interactive", f"--output_dir={folder}", stdin=typed
  )
  wanted, _ = scripts.fork(
    script, "--interactive", f"--output_dir={model}", stdin=typed
  )
  assert found == wanted
  assert "error" not in found
  assert "Traceback" not in log


@pytest.mark.parametrize("name", ["classification", "tagging"])
def test_scripts_answer_the_lines_of_a_file(graph, tmp_path, name):
  path = tmp_path / "lines.txt"
  path.write_text("the north\nJim Henson made puppets.\n", "utf-8")
  model, folder = graph(name)
  flags = [_ASKED[name][0], f"--predict_file={path}"]
  output, _ = no_tensorflow.run_script(*flags, f"--output_dir={folder}")
  wanted_output, _ = scripts.fork(*flags, f"--output_dir={model}")
  found, wanted = (
    re.split(r"[\s{}\[\],]+", text) for text in (output, wanted_output)
  )
  assert len(found) == len(wanted) > 2
  for cell, wanted_cell in zip(found, wanted, strict=True):
    if re.fullmatch(r"0\.\d+", wanted_cell):
      assert float(cell) == pytest.approx(float(wanted_cell), abs=2e-6)
    else:
      assert cell == wanted_cell


def test_threads_are_those_of_the_flag(graph, monkeypatch):
  threads = []
  session = onnxruntime.InferenceSession

  def start(path, options, **kwargs):
    threads.append(options.intra_op_num_threads)
    return session(path, options, **kwargs)

  monkeypatch.setattr(onnxruntime, "InferenceSession", start)
  monkeypatch.setattr(runtimes, "_threads", None)
  bert.load(graph("")[1])
  runtimes.use_threads(3)
  bert.load(graph("")[1])
  assert threads == [len(os.sched_getaffinity(0)), 3]


def test_masked_words(graph, tmp_path):
  model, folder = graph("", ("part", "fill_mask"))
  path = tmp_path / "lines.txt"
  path.write_text("the [MASK] is [MASK]\nthe city ||| it is old\n", "utf-8")
  flags = ["fill_mask.py", f"--input_file={path}", "--top_k=7"]
  found, _ = no_tensorflow.run_script(*flags, f"--model_dir={folder}")
  wanted, _ = scripts.fork(*flags, f"--model_dir={model}")
  assert found == wanted


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"pooling": "max"}, "pooling='max': the graph .* computes 'mean'"),
    ({"task": "fill_mask"}, "no masked words; .* --part=fill_mask"),
    ({"precision": "bfloat16"}, "--precision=bfloat16 is not one of float32"),
  ],
)
def test_what_a_graph_does_not_compute(graph, options, message):
  with pytest.raises(UserError, match=message):
    bert.load(graph("")[1], **options)


def test_an_index_is_made_and_searched(graph, tmp_path):
  _, folder = graph("")
  rows = tmp_path / "rows.csv"
  rows.write_text("id,text\n1,Jim Henson\n2,the north of the city\n", "utf-8")
  index = f"--index={tmp_path / 'index'}"
  no_tensorflow.run_script(
    "search_texts.py", index, f"--input_file={rows}", f"--model_dir={folder}"
  )
  found, _ = no_tensorflow.run_script(
    "search_texts.py", index, "--query=the north of the city", "--top_k=1"
  )
  assert "the north of the city" in found


def test_words_are_searched_without_a_model(graph, tmp_path):
  _, folder = graph("")
  rows = tmp_path / "rows.csv"
  rows.write_text("id,text\n1,part K-58\n2,part K-85 of the city\n", "utf-8")
  model = shutil.copytree(folder, tmp_path / "model")
  flags = ["search_texts.py", f"--index={tmp_path / 'index'}"]
  no_tensorflow.run_script(
    *flags, f"--input_file={rows}", f"--model_dir={model}", "--search=lexical"
  )
  shutil.rmtree(model)
  flags += ["--search=lexical", "--top_k=1", "--query=K-85"]
  assert "part K-85 of the city" in no_tensorflow.run_script(*flags)[0]


def _change(path, change):
  model = onnx.load(path)
  change(model)
  path.write_bytes(model.SerializeToString())


def _rename_an_input(model):
  for names in [model.graph.input, *(n.input for n in model.graph.node)]:
    for index, value in enumerate(names):
      if getattr(value, "name", value) == "segment_ids":
        if isinstance(value, str):
          names[index] = "token_type_ids"
        else:
          value.name = "token_type_ids"


def _use_an_own_operator(model):
  model.graph.node[0].domain = "com.example"
  model.opset_import.append(helper.make_opsetid("com.example", 1))


def _read_another_file(model):
  tensor = model.graph.initializer[0]
  size = len(tensor.raw_data)
  tensor.ClearField("raw_data")
  tensor.data_location = TensorProto.EXTERNAL
  for key, value in (("location", "../secret"), ("length", str(size))):
    tensor.external_data.add(key=key, value=value)


def _cut_words(model):
  for tensor in model.graph.initializer:
    if tensor.name == "bert/embeddings/word_embeddings":
      table = numpy_helper.to_array(tensor)[:50]
      tensor.CopyFrom(numpy_helper.from_array(table.copy(), tensor.name))


def _set_opset(model):
  model.opset_import[0].version = 999


def _with_labels(folder, count):
  path = folder / "task.json"
  fields = json.loads(path.read_text())
  path.write_text(json.dumps({**fields, "labels": list("abcdef"[:count])}))


DAMAGE = {
  "another input": (_rename_an_input, "has 'token_type_ids'"),
  "an operator of its own": (_use_an_own_operator, "com.example"),
  "a file outside the folder": (_read_another_file, "damaged .*secret"),
  "a smaller vocabulary": (_cut_words, "does not fit"),
  "an unknown opset": (_set_opset, "damaged .*opset"),
}


@pytest.fixture
def damaged(graph, tmp_path):
  return shutil.copytree(graph("classification")[1], tmp_path / "damaged")


@pytest.mark.parametrize("name", DAMAGE)
def test_a_graph_that_does_not_fit_is_one_line(damaged, name):
  change, message = DAMAGE[name]
  path = damaged / "model.onnx"
  (damaged.parent / "secret").write_bytes(bytes(2**20))
  _change(path, change)
  with pytest.raises(UserError, match=message) as error:
    bert.load(damaged)
  assert str(path) in str(error.value)
  assert "\n" not in str(error.value)


def test_labels_that_are_not_the_graphs(damaged):
  _with_labels(damaged, 2)
  with pytest.raises(UserError, match=r"output 'logits' is \[3\] .* \[2\]"):
    bert.load(damaged)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_folder_is_one_line(damaged, data):
  """Or answers; a byte of a weight that changes is not noticed."""
  folder = damaged
  names = ("model.onnx", "task.json", "bert_config.json", "vocab.txt")
  name = data.draw(st.sampled_from(names))
  original = (folder / name).read_bytes()
  content = bytearray(original)
  # The structure of a graph is at its ends, between them are weights.
  places = st.integers(0, min(len(content), 4000) - 1)
  for _ in range(data.draw(st.integers(1, 3))):
    place = data.draw(places) - data.draw(st.sampled_from((0, 4000)))
    content[place % len(content)] = data.draw(st.integers(0, 255))
  cut = data.draw(st.sampled_from((0, 0, 1, 100, len(content) // 2)))
  (folder / name).write_bytes(content[: len(content) - cut])
  message = ""
  try:
    bert.load(folder)("the north")
  except UserError as error:
    message = str(error)
  finally:
    (folder / name).write_bytes(original)
  assert "\n" not in message
