"""The notebooks in docs/ run from top to bottom, and their outputs are kept.

The code of their cells is executed with shorter trainings and fewer layers.
"""

import json
import re
import shutil

import pytest
import scripts

DOCS = scripts.ROOT / "docs"
NAMES = ("annotated_bert", "own_data")

# Values that follow the cell with the tag "parameters".
SHORTER = """
PRETRAINING_STEPS = 40
CLASSIFIER_EPOCHS = 1
TAGGER_EPOCHS = 1
READER_EPOCHS = 1
"""


# Lines, and what stands in their place: one layer, trained by the first task.
SMALLER = {
  "config.vocab_size = len(vocab)\n": (
    "config.vocab_size = len(vocab)\nconfig.num_hidden_layers = 1\n"
  ),
  '"do_eval": True,\n': (
    '"do_eval": True, "freeze_layers": 1 if init_checkpoint else None,\n'
  ),
}


class Cell:
  """A cell of the file: its type, tags, source and outputs."""

  def __init__(self, fields):
    self.type = fields["cell_type"]
    self.tags = fields["metadata"].get("tags", ())
    self.source = "".join(fields["source"])
    self.outputs = fields.get("outputs", ())


def _path(name):
  return DOCS / f"{name}.ipynb"


def _cells(name):
  """The cells of a notebook."""
  fields = json.loads(_path(name).read_text(encoding="utf-8"))
  return [Cell(cell) for cell in fields["cells"]]


def _code_cells(cells):
  return [cell for cell in cells if cell.type == "code"]


def _printed(cells):
  """All text that the cells have printed."""
  return "".join(
    "".join(output["text"])
    for cell in _code_cells(cells)
    for output in cell.outputs
    if output["output_type"] == "stream" and output["name"] == "stdout"
  )


def _differences(text):
  """What the notebook compares with the code: name to largest difference."""
  found = re.findall(r"^(\w+): largest difference (\S+)$", text, re.M)
  return {name: float(value) for name, value in found}


def _run(name, parameters, cwd, tmp_path, smaller=(), last=None, more=""):
  """Runs the code of a notebook as a script; returns what it prints.

  Args:
    name: the notebook.
    parameters: code to run after the cell with the tag "parameters".
    cwd: the folder to run it in.
    tmp_path: folder for the script.
    smaller: pairs of a line and its replacement.
    last: a part of the last cell to run. Default: run all.
    more: code to run at the end.
  """
  sources = []
  for cell in _code_cells(_cells(name)):
    sources.append(cell.source)
    if "parameters" in cell.tags:
      sources.append(parameters)
    if last and last in cell.source:
      break
  assert parameters in sources
  code = "\n\n".join([*sources, more])
  for line, replacement in smaller:
    assert code.count(line) == 1
    code = code.replace(line, replacement)
  script = tmp_path / "notebook.py"
  script.write_text(code, encoding="utf-8")
  text, _ = scripts.fork(script, cwd=cwd)
  return text


def _release(folder, goldens):
  """Writes a layer of the golden model as a release; returns its folder."""
  shutil.copytree(goldens / "model", folder)
  shutil.copy(goldens / "vocab.txt", folder)
  config = folder / "bert_config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps({**fields, "num_hidden_layers": 1}))
  return str(folder)


def test_the_paper_runs(tmp_path):
  text = _run("annotated_bert", SHORTER, tmp_path, tmp_path, SMALLER.items())
  differences = _differences(text)
  # float32 has 7 digits, and the values are below 10.
  assert set(differences) == {
    "embeddings", "attention", "probabilities", "block", "stack"
  }  # fmt: skip
  assert max(differences.values()) < 1e-4
  first, last = re.search(
    r"loss: (\S+) at first, (\S+) at the end", text
  ).groups()
  assert float(last) < float(first)
  assert "109,482,240 parameters" in text
  assert "335,141,888 parameters" in text
  assert re.search(r"^accuracy on 120 sentences: \d\.\d\d$", text, re.M)
  assert "exact match" in text


@pytest.mark.parametrize("casing", ["cased", "uncased"])
def test_a_released_model_needs_one_setting(tmp_path, goldens, casing):
  released = _release(tmp_path / f"{casing}_L-2_H-32_A-4", goldens)
  text = _run(
    "annotated_bert",
    f"MODEL = {released!r}",
    tmp_path,
    tmp_path,
    last="config.do_lower_case = ",
    more="print(config.do_lower_case, tokenizer.tokenize('THE'))",
  )
  found = {"cased": "False ['[UNK]']", "uncased": "True ['the']"}
  assert text.splitlines()[-1] == found[casing]


def test_a_table_becomes_a_server(tmp_path, goldens):
  released = _release(tmp_path / "uncased_L-2_H-32_A-4", goldens)
  shorter = f"MODEL, EPOCHS = {released!r}, 1"
  smaller = {"  do_eval=True,\n": "  do_eval=True, freeze_layers=1,\n"}
  text = _run("own_data", shorter, DOCS, tmp_path, smaller.items())
  accuracy = float(re.search(r"^eval_accuracy +(\S+)$", text, re.M)[1])
  assert accuracy in [n / 10 for n in range(11)]  # Ten rows are held out.
  answers = re.findall(r"^(?:(0\.\d+)  )?(good|bad) +(The|This) ", text, re.M)
  python, exported, served = answers[-6:-4], answers[-4:-2], answers[-2:]
  assert [text for *_, text in python] == ["The", "This"]
  assert served == python
  assert exported == [("", *rest) for _, *rest in python]
  assert text.endswith("status of its end: 0\n")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stored(name):
  cells = _cells(name)
  for cell in _code_cells(cells):
    types = [output["output_type"] for output in cell.outputs]
    names = [output.get("name", "stdout") for output in cell.outputs]
    assert "error" not in types
    assert "stderr" not in names
    if "print(" in cell.source:
      assert "stream" in types, cell.source
    if "plt.show()" in cell.source:
      assert any("image/png" in o.get("data", {}) for o in cell.outputs)
  assert all(value < 1e-4 for value in _differences(_printed(cells)).values())


@pytest.mark.parametrize("name", NAMES)
def test_file_is_small_and_names_no_machine(name):
  assert _path(name).stat().st_size < 600_000
  text = _printed(_cells(name))
  assert not re.search(r"/(tmp|home|root|work|usr)/", text)
  assert "Warning" not in text


@pytest.mark.parametrize("name", NAMES)
def test_it_links_to_its_sections(name):
  markdown = "\n".join(c.source for c in _cells(name) if c.type == "markdown")
  headings = re.findall(r"^#+ (.*)", markdown, re.M)
  anchors = {heading.replace(" ", "-") for heading in headings}
  for link in re.findall(r"\]\((?!https?:)(.*?)\)", markdown):
    if link.startswith("#"):
      assert link[1:] in anchors
    else:
      assert (DOCS / link.partition("#")[0]).exists(), link
