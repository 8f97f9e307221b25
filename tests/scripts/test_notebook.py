"""docs/annotated_bert.ipynb runs from top to bottom, and its outputs are kept.

The notebook is executed in a temporary folder with shorter trainings.
"""

import json
import re

import nbclient
import nbformat
import pytest
import scripts

PATH = scripts.ROOT / "docs" / "annotated_bert.ipynb"

# Values for the cell with the tag "parameters".
SHORTER = """
PRETRAINING_STEPS = 40
CLASSIFIER_EPOCHS = 1
TAGGER_EPOCHS = 1
READER_EPOCHS = 1
"""

# For one cell; the slowest takes about 15 seconds.
TIMEOUT_SECONDS = 300


def _code_cells(notebook):
  return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _printed(notebook):
  """All text that the cells print."""
  return "".join(
    output["text"]
    for cell in _code_cells(notebook)
    for output in cell.outputs
    if output.output_type == "stream" and output.name == "stdout"
  )


def _differences(text):
  """What the notebook compares with the code: name to largest difference."""
  found = re.findall(r"^(\w+): largest difference (\S+)$", text, re.M)
  return {name: float(value) for name, value in found}


@pytest.fixture(scope="module")
def stored():
  """The notebook with the outputs in the file."""
  return nbformat.read(PATH, as_version=4)


@pytest.fixture(scope="module")
def executed(stored, tmp_path_factory):
  """The notebook, executed with shorter trainings."""
  notebook = nbformat.from_dict(json.loads(json.dumps(stored)))
  (index,) = (
    i
    for i, cell in enumerate(notebook.cells)
    if "parameters" in cell.metadata.get("tags", ())
  )
  notebook.cells.insert(index + 1, nbformat.v4.new_code_cell(SHORTER))
  for cell in _code_cells(notebook):
    cell.outputs = []
  folder = tmp_path_factory.mktemp("notebook")
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("PYTHONPATH", str(scripts.ROOT))
    patch.setenv("TMPDIR", str(folder))  # For what the notebook writes.
    patch.setenv("IPYTHONDIR", str(folder / "ipython"))
    nbclient.NotebookClient(
      notebook,
      timeout=TIMEOUT_SECONDS,
      resources={"metadata": {"path": str(folder)}},
    ).execute()
  return notebook


@pytest.mark.filterwarnings("default")  # Those of the Jupyter packages.
def test_it_runs(executed):
  text = _printed(executed)
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
  scores = re.findall(r"from .* (\d\.\d\d)$", text, re.M)
  assert len(scores) == 2
  assert "exact match" in text
  assert not _errors(executed)


def _errors(notebook):
  """Outputs that are neither printed text nor a picture."""
  return [
    output
    for cell in _code_cells(notebook)
    for output in cell.outputs
    if output.output_type == "error" or output.get("name") == "stderr"
  ]


def test_outputs_are_stored(stored):
  for cell in _code_cells(stored):
    if "print(" in cell.source:
      assert any(o.output_type == "stream" for o in cell.outputs), cell.source
    if "plt.show()" in cell.source:
      assert any("image/png" in o.get("data", {}) for o in cell.outputs)
  assert not _errors(stored)
  assert max(_differences(_printed(stored)).values()) < 1e-4


def test_file_is_small_and_names_no_machine(stored):
  assert PATH.stat().st_size < 600_000
  text = _printed(stored)
  assert not re.search(r"/(tmp|home|root|work|usr)/", text)
  assert "Warning" not in text


def test_it_links_to_its_sections(stored):
  markdown = "\n".join(
    cell.source for cell in stored.cells if cell.cell_type == "markdown"
  )
  headings = re.findall(r"^#+ (.*)", markdown, re.M)
  anchors = {heading.replace(" ", "-") for heading in headings}
  for link in re.findall(r"\]\((?!https?:)(.*?)\)", markdown):
    if link.startswith("#"):
      assert link[1:] in anchors
    else:
      assert (PATH.parent / link.partition("#")[0]).exists(), link
