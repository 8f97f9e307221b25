"""docs/annotated_bert.ipynb runs from top to bottom, and its outputs are kept.

The code of its cells is executed with shorter trainings and fewer layers.
"""

import json
import re
import shutil

import pytest
import scripts

PATH = scripts.ROOT / "docs" / "annotated_bert.ipynb"

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


@pytest.fixture(scope="module")
def cells():
  """The cells of the notebook."""
  fields = json.loads(PATH.read_text(encoding="utf-8"))
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


def test_it_runs(cells, tmp_path):
  sources = []
  for cell in _code_cells(cells):
    sources.append(cell.source)
    if "parameters" in cell.tags:
      sources.append(SHORTER)
  assert SHORTER in sources
  code = "\n\n".join(sources)
  for line, smaller in SMALLER.items():
    assert code.count(line) == 1
    code = code.replace(line, smaller)
  script = tmp_path / "notebook.py"
  script.write_text(code, encoding="utf-8")
  text, _ = scripts.fork(script, cwd=tmp_path)
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
def test_a_released_model_needs_one_setting(cells, tmp_path, goldens, casing):
  released = tmp_path / f"{casing}_L-2_H-32_A-4"
  shutil.copytree(goldens / "model", released)
  shutil.copy(goldens / "vocab.txt", released)
  sources = []
  for cell in _code_cells(cells):
    sources.append(cell.source)
    if "parameters" in cell.tags:
      sources.append(f"MODEL = {str(released)!r}")
    if "config.do_lower_case = " in cell.source:
      break
  sources.append("print(config.do_lower_case, tokenizer.tokenize('THE'))")
  script = tmp_path / "notebook.py"
  script.write_text("\n\n".join(sources), encoding="utf-8")
  text, _ = scripts.fork(script, cwd=tmp_path)
  found = {"cased": "False ['[UNK]']", "uncased": "True ['the']"}
  assert text.splitlines()[-1] == found[casing]


def test_outputs_are_stored(cells):
  for cell in _code_cells(cells):
    types = [output["output_type"] for output in cell.outputs]
    names = [output.get("name", "stdout") for output in cell.outputs]
    assert "error" not in types
    assert "stderr" not in names
    if "print(" in cell.source:
      assert "stream" in types, cell.source
    if "plt.show()" in cell.source:
      assert any("image/png" in o.get("data", {}) for o in cell.outputs)
  assert max(_differences(_printed(cells)).values()) < 1e-4


def test_file_is_small_and_names_no_machine(cells):
  assert PATH.stat().st_size < 600_000
  text = _printed(cells)
  assert not re.search(r"/(tmp|home|root|work|usr)/", text)
  assert "Warning" not in text


def test_it_links_to_its_sections(cells):
  markdown = "\n".join(c.source for c in cells if c.type == "markdown")
  headings = re.findall(r"^#+ (.*)", markdown, re.M)
  anchors = {heading.replace(" ", "-") for heading in headings}
  for link in re.findall(r"\]\((?!https?:)(.*?)\)", markdown):
    if link.startswith("#"):
      assert link[1:] in anchors
    else:
      assert (PATH.parent / link.partition("#")[0]).exists(), link
