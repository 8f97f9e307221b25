"""README.md and docs/: their commands run, and the names in them exist."""

import ast
import gzip
import importlib
import inspect
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import numpy as np
import pytest
import scripts
import task_folders
import tiny_task
from source_modules import ALIASES

import tokenization

PAGES = {
  path.name: path.read_text(encoding="utf-8")
  for path in (scripts.ROOT / "README.md", *scripts.ROOT.glob("docs/*.md"))
}
ALL = "\n".join(PAGES.values())
SCRIPTS = [
  path.name
  for path in scripts.ROOT.glob("*.py")
  if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
]

# Blocks that are not run as they are: they install packages, take minutes, need
# a cluster or a TPU, or are files of the reader's own.
NOT_RUN = (
  r"pip install|\./quickstart\.sh|\./run_tests\.sh|DataflowRunner|__main__|"
  r"\$TASK|hf://|python download\.py|cleanlab"
)

# Makes commands small: the model has one layer and 128 positions, and only what
# is above the layer is fine-tuned. Some would train once more, and use a
# trained model instead.
SMALLER = {
  r"--layers=-1,-2,-3,-4": "--layers=-1",
  r"=(384|512)\b": "=128",
  r"--doc_stride=128": "--doc_stride=32",
  r"--keep_layers=[\d,]+": "--keep_layers=0",
  r"--num_train_epochs=2\.0": "--num_train_epochs=0.25",
  r"--num_train_epochs=3\.0": "--num_train_epochs=0.5",
  r"=76\b": "=20",
  r"--train_batch_size=(16|32|256)": "--train_batch_size=8",
  r"--num_train_steps=\d+": "--num_train_steps=4",
  r"--num_warmup_steps=\d+": "--num_warmup_steps=2",
  r"--vocab_size=30522": "--vocab_size=1000",
  r"--do_train=true (?=--input_file='data/512)": "--do_eval=true ",
  r"--do_train=True (?=--dynamic_masking)": (
    "--do_eval=True --init_checkpoint=pretraining_output "
  ),
  r"--init_checkpoint=\S+( \\\n +)--do_train=True (?=.*-v2.0.json)": (
    r"--init_checkpoint=squad_base\1"
  ),
  (
    r"(python run_(?!embeddings)\w+\.py )"
    r"((?:[^\n]|\\\n)*--do_train=[Tt]rue)"
  ): (rf"\1--freeze_layers={tiny_task.HEAD_ONLY['freeze_layers']} \2"),
}

# In place of Python: keeps the arguments and the input of each call, to be
# run in a fork.
RECORDER = """
python() {
  local call=$(ls calls | wc -l)
  printf '%s\\n' "$@" > calls/$call
  cat > inputs/$call
}
"""


def _blocks(text, language):
  return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


@pytest.fixture(scope="module")
def flags():
  """Dict from script to its flags."""
  found = {}
  for script in SCRIPTS:
    name = script.removesuffix(".py")
    name = name if name in ALIASES else f"bert.commands.{name}"
    run = importlib.import_module(name).run
    found[script] = {*inspect.signature(run).parameters}
  return found


class Reader:
  """A reader who runs the commands of a page in a folder."""

  def __init__(self, folder):
    self.folder = folder
    self.log = ""  # What the commands wrote to standard error.

  def read(self, page, stdin=""):
    """Runs all blocks of a page; returns what each printed."""
    return self.read_text(PAGES[page], stdin)

  def read_text(self, text, stdin=""):
    """Runs all blocks of a text; returns what each printed."""
    return [
      self._run(block.replace("/tmp/", f"{self.folder}/"), stdin)
      for block in _blocks(text, "(?:shell|python)")
      if not re.search(NOT_RUN, block)
    ]

  def _run(self, block, stdin):
    if not block.startswith(("import", "from")):
      return self._run_shell(block, stdin)
    path = self.folder / "example.py"
    path.write_text(block, encoding="utf-8")
    return self._fork(path)

  def _run_shell(self, block, stdin):
    for pattern, smaller in SMALLER.items():
      block = re.sub(pattern, smaller, block)
    for name in ("calls", "inputs"):
      shutil.rmtree(self.folder / name, ignore_errors=True)
      (self.folder / name).mkdir()
    subprocess.run(
      ["bash", "-e", "-c", RECORDER + block],
      check=True,
      cwd=self.folder,
      env={
        **os.environ,
        "BERT_BASE_DIR": str(self.folder / "uncased_L-12_H-768_A-12"),
        "GLUE_DIR": str(self.folder / "glue"),
        "SQUAD_DIR": str(self.folder / "squad"),
        "CONLL_DIR": str(scripts.ROOT / "sample_data/ner"),
        "SWAG_DIR": str(self.folder / "swag"),
      },
      input=stdin,
      text=True,
    )
    return "".join(
      self._fork(
        *call.read_text().splitlines(),
        stdin=(self.folder / "inputs" / call.name).read_text(),
      )
      for call in sorted(self.folder.glob("calls/*"))
    )

  def _fork(self, *command, stdin=""):
    output, log = scripts.fork(*command, cwd=self.folder, stdin=stdin)
    self.log += log
    return output


@pytest.fixture(scope="module")
def reader(tmp_path_factory, goldens):
  """A Reader with everything that the pages take for granted."""
  folder = tmp_path_factory.mktemp("reader")
  released = folder / "uncased_L-12_H-768_A-12"
  shutil.copytree(goldens / "model", released)
  shutil.copy(goldens / "vocab.txt", released)
  config = json.loads((released / "bert_config.json").read_text())
  config["num_hidden_layers"] = 1  # Compiles in half the time.
  (released / "bert_config.json").write_text(json.dumps(config))
  for path in released.iterdir():
    (folder / path.name).symlink_to(path)
  (folder / "model").mkdir()  # Of a vocabulary of the reader's own.
  shutil.copy(released / "bert_config.json", folder / "model")
  tiny_task.write_mrpc(folder / "glue" / "MRPC", goldens)
  (folder / "squad").mkdir()
  for version in ("1.1", "2.0"):
    for name in ("train", "dev"):
      shutil.copy(
        goldens / f"squad_v{version[0]}.json",
        folder / "squad" / f"{name}-v{version}.json",
      )
  (folder / "swag").mkdir()
  header = "id,sent1,sent2,ending0,ending1,ending2,ending3,label"
  rows = [f"{i},A man sits.,He,runs.,sleeps.,eats.,sings.,0" for i in range(16)]
  for name in ("train", "val"):
    tiny_task.write_lines(folder / "swag" / f"{name}.csv", [header, *rows])
  for name in ("sample_text.txt", "sample_data"):
    (folder / name).symlink_to(scripts.ROOT / name)
  text = (scripts.ROOT / "sample_text.txt").read_bytes()
  (folder / "corpus").mkdir()
  (folder / "corpus" / "a.txt.gz").write_bytes(gzip.compress(text))
  (folder / "text.txt").write_text("Jim Henson made puppets.")
  return Reader(folder)


def test_readme_is_short():
  assert len(PAGES["README.md"].splitlines()) <= 250


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
  folder = scripts.ROOT if page == "README.md" else scripts.ROOT / "docs"
  links = re.findall(r"\]\((?!https?:)(.*?)\)", PAGES[page])
  for link in links:
    path, _, anchor = link.partition("#")
    target = folder / path if path else folder / page
    assert target.exists(), link
    if anchor:
      headings = re.findall(r"^#+ (.*)", PAGES[target.name], re.M)
      slugs = {re.sub(r"[^\w -]", "", h).lower() for h in headings}
      assert anchor in {slug.replace(" ", "-") for slug in slugs}, link


def test_readme_links_to_every_page():
  assert {f"docs/{name}" for name in PAGES if name != "README.md"} <= set(
    re.findall(r"\]\((docs/[\w-]+\.md)\)", PAGES["README.md"])
  )


def test_files_exist():
  named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|sh|md))`", ALL))
  named |= set(
    re.findall(r"`((?:docs|sample_data|requirements)[\w/.-]+)`", ALL)
  )
  named -= {"mood.py", "rating.py", "data.py", "scores.py", "page.py"}
  named = {n for n in named if "relations" not in n}  # The reader writes them.
  assert {"modeling.py", "quickstart.sh", "sample_data/reviews.csv"} <= named
  for name in named:
    assert (scripts.ROOT / name).exists(), name


def test_names_are_defined_where_the_pages_say():
  pairs = re.findall(r"`([\w.]+)`(?: of the task)? in\n?\s*`([\w/]+\.py)`", ALL)
  assert len(pairs) > 15
  for name, path in pairs:
    text = (scripts.ROOT / path).read_text(encoding="utf-8")
    pattern = rf"^ *(def |class )?{name}\b( =|:|\()"
    assert re.search(pattern, text, re.M), (name, path)


# Public functions and classes of the original, by module.
ORIGINAL = {
  "modeling": """
    BertConfig BertModel gelu get_activation get_assignment_map_from_checkpoint
    dropout layer_norm layer_norm_and_dropout create_initializer
    embedding_lookup embedding_postprocessor
    create_attention_mask_from_input_mask attention_layer transformer_model
    get_shape_list reshape_to_matrix reshape_from_matrix assert_rank""",
  "optimization": "create_optimizer AdamWeightDecayOptimizer",
  "tokenization": """
    validate_case_matches_checkpoint convert_to_unicode printable_text
    load_vocab convert_by_vocab convert_tokens_to_ids convert_ids_to_tokens
    whitespace_tokenize FullTokenizer BasicTokenizer WordpieceTokenizer""",
  "create_pretraining_data": """
    TrainingInstance write_instance_to_example_files create_int_feature
    create_float_feature create_training_instances
    create_instances_from_document MaskedLmInstance
    create_masked_lm_predictions truncate_seq_pair""",
  "run_pretraining": """
    model_fn_builder get_masked_lm_output get_next_sentence_output
    gather_indexes input_fn_builder""",
  "run_classifier": """
    InputExample PaddingInputExample InputFeatures DataProcessor XnliProcessor
    MnliProcessor MrpcProcessor ColaProcessor convert_single_example
    file_based_convert_examples_to_features file_based_input_fn_builder
    create_model model_fn_builder input_fn_builder
    convert_examples_to_features""",
  "run_squad": """
    SquadExample InputFeatures read_squad_examples
    convert_examples_to_features create_model model_fn_builder
    input_fn_builder RawResult write_predictions get_final_text FeatureWriter
    validate_flags_or_throw""",
  "extract_features": """
    InputExample InputFeatures input_fn_builder model_fn_builder
    convert_examples_to_features read_examples""",
}


def test_differences_names_the_functions_that_are_missing():
  missing = {
    f"{module}.{name}"
    for module, names in ORIGINAL.items()
    for name in names.split()
    if not hasattr(importlib.import_module(module), name)
  }
  rows = re.findall(
    r"^\| (.*) \| (.*) \|$",
    PAGES["differences.md"].split("\n## Missing functions\n")[1],
    re.M,
  )
  listed, replacements = (
    set(re.findall(r"`([\w.]+\.\w+)`", " ".join(cells)))
    for cells in zip(*rows, strict=True)
  )
  assert listed == missing
  for name in replacements - {"convert_checkpoint.py"}:
    module, _, name = name.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_picture_is_small():
  for path in re.findall(r"!\[[^]]+\]\((.*?)\)", PAGES["README.md"]):
    content = (scripts.ROOT / path).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 200_000


def test_flags_exist(flags):
  known = set.union(*flags.values())
  known |= {"help", "v", "logdir", "no"}  # Of absl, TensorBoard and pip.
  known |= {"project", "region", "temp_location"}  # Flags of Beam.
  known |= {"data", "rows", "rounds", "small"}  # Of benchmarks/league.py.
  known.add("na")  # A flag of SQuAD's own script, --na-prob-file.
  named = set(re.findall(r"--([a-z]\w*)", ALL))
  assert len(named) > 60
  assert named <= known


def test_commands_have_the_flags_of_their_script(flags):
  quickstart = (scripts.ROOT / "quickstart.sh").read_text(encoding="utf-8")
  texts = [
    *_blocks(ALL, "shell"),
    quickstart.replace('"$venv_python"', "python"),
  ]
  commands = [
    command
    for text in texts
    for command in re.findall(r"python (\w+\.py)((?:[^\n]|\\\n)*)", text)
    if command[0] != "rating.py"  # The reader's own.
  ]
  assert len(commands) > 25
  for script, arguments in commands:
    named = set(re.findall(r"--(\w+)", arguments))
    if "--runner" in arguments:
      named -= {"project", "region", "temp_location"}
    assert named <= flags[script], script


def test_tables_name_every_task():
  from bert.tasks.classification import glue

  section = PAGES["classification.md"].split("## Tasks\n")[1].split("\n## ")[0]
  rows = re.findall(r"^\| `([A-Z][\w-]+)` \| (.*) \|$", section, re.M)
  described = {name: cells for name, cells in rows if cells.count("|") == 3}
  assert described.keys() == {task.name for task in glue.TASKS.values()}
  for task in glue.TASKS.values():
    cells = described[task.name]
    for name in (task.submission or {}).values():
      assert f"`{name}`" in cells
    if task.dev:
      listed = re.sub(r"\W", "", cells.split("|")[2]).lower()
      for metric in task.metrics:
        assert metric in listed


def test_every_block_is_run():
  """Here, or, of a task of one's own, in test_own_task.py."""
  tests = pathlib.Path(__file__).read_text(encoding="utf-8")
  run = re.findall(r'(?:reader\.read\(|PAGES\[)"([\w.-]+)"', tests)
  for name in PAGES.keys() - {*run, "add-a-task.md"}:
    blocks = _blocks(PAGES[name], "(?:shell|python)")
    assert all(re.search(NOT_RUN, block) for block in blocks), name


def test_readme_runs(reader):
  shown = _blocks(PAGES["README.md"], "text")[0]
  table = (scripts.ROOT / "sample_data/reviews.csv").read_text("utf-8")
  assert table.startswith(shown)
  assert len(table.splitlines()) == 41
  _, predicted, in_python, _ = reader.read("README.md")
  assert re.match(r"id\tlabel\tbad\tgood\n0\t(bad|good)\t", predicted)
  assert in_python == predicted.split()[5] + "\n"
  assert "eval_f1 = " in (reader.folder / "mrpc/eval_results.txt").read_text()


def test_convert_runs(reader):
  reader.read("convert.md")
  theirs = reader.folder / "bert_huggingface" / "model.safetensors"
  assert theirs.stat().st_size > 100_000
  line = (reader.folder / "vectors.jsonl").read_text()
  assert len(json.loads(line)["vector"]) == 32
  released = reader.folder / "uncased_L-12_H-768_A-12"
  for path in released.glob("bert_model.ckpt.*"):
    again = reader.folder / "bert_tensorflow" / path.name
    assert again.read_bytes() == path.read_bytes()


def test_small_models_run(reader):
  reader.read("small-models.md")
  kept = (reader.folder / "small_vocabulary" / "vocab.txt").read_text("utf-8")
  assert 100 < len(kept.splitlines()) < 900
  assert (reader.folder / "mrpc_distilled" / "eval_results.txt").exists()


def test_classification_runs(reader):
  reader.read("classification.md")
  trained = reader.folder / "mrpc_output"
  reader.read("output-folder.md")
  assert "; 0 answers differ; largest difference of outputs:" in reader.log
  assert "eval_f1 = " in (trained / "eval_results.txt").read_text()
  assert (trained / "report.html").exists()
  lines = (reader.folder / "mrpc_predictions/test_results.tsv").read_text()
  assert len(lines.splitlines()) == tiny_task.ROWS["test"]
  trained, repeated = (
    (reader.folder / name / "bert_model.ckpt.index").read_bytes()
    for name in ("mrpc_output", "repeated")
  )
  assert repeated == trained


def test_own_data_runs(reader):
  printed = reader.read("own-data.md", stdin="A text.\n")
  _, of_file, asked, *_ = printed
  results = json.loads(
    (reader.folder / "reviews/output/eval_results.json").read_text()
  )
  assert results["labels"].keys() == {"bad", "good"}
  assert np.sum(results["confusion_matrix"]) == 10
  rows = [line.split("\t")[0] for line in of_file.splitlines()]
  assert rows == ["id", "0", "1"]
  assert of_file.startswith("id\tlabel\tbad\tgood\n")
  assert re.match(r"> (bad|good) +\((bad|good) \d", asked)
  table = reader.folder / "reviews/predictions/test_predictions.tsv"
  rows = [line.split("\t")[0] for line in table.read_text().splitlines()]
  assert rows == ["id", "A1", "A2"]
  folder = reader.folder / "reviews"
  lines = (folder / "output/dev_predictions.tsv").read_text().splitlines()
  assert lines[0].split("\t") == ["id", "label", "given", "bad", "good", "text"]
  assert len(lines) == 11
  page = (folder / "output_2/report.html").read_text()
  assert "Metrics of both models" in page
  _check_log(reader)
  _check_processor(reader)


def _check_log(reader):
  """The lines of the log that the page shows, except for their numbers."""
  blocks = _blocks(PAGES["own-data.md"], "text")
  shown = "".join(
    b for b in blocks if re.search(r"step |--dev_file|compared", b)
  )
  log = reader.log.replace(f"{reader.folder}/", "/tmp/")
  for line in shown.splitlines():
    number = r"[+-]?\d[\d.e-]*"
    texts = [re.escape(text) for text in re.split(number, line)]
    pattern = number.join(texts).replace(r"\.\.\.", ".*")
    assert re.search(pattern, log), line


def _check_processor(reader):
  """Trains and evaluates with the processor of that page."""
  page = PAGES["own-data.md"]
  (block,) = (b for b in _blocks(page, "python") if "__main__" in b)
  (reader.folder / "mood.py").write_text(block, encoding="utf-8")
  (reader.folder / "mood").mkdir()
  lines = [f"I feel {mood} .\t{mood}" for mood in ("sad", "glad")]
  for name in ("train", "dev"):
    tiny_task.write_lines(reader.folder / "mood" / f"{name}.tsv", lines * 4)
  scripts.fork(
    reader.folder / "mood.py",
    "--task_name=mood",
    "--data_dir=mood",
    "--vocab_file=vocab.txt",
    "--bert_config_file=bert_config.json",
    "--init_checkpoint=bert_model.ckpt",
    *("--max_seq_length=16", "--train_batch_size=4", "--freeze_layers=1"),
    *("--output_dir=moods", "--do_train", "--do_eval"),
    cwd=reader.folder,
  )
  assert "eval_accuracy" in tiny_task.results(reader.folder / "moods")
  task = json.loads((reader.folder / "moods/task.json").read_text())
  assert task["labels"] == ["sad", "glad"]


# Articles as WikiExtractor writes them.
ARTICLES = [
  {"title": "Oslo", "text": "Oslo\n\nIt is a city. It lies in the north."},
  {
    "title": "Bergen",
    "text": "Bergen\n\nWho lives there? " + "Many do. " * 200,
  },
]


def test_pretraining_runs(reader):
  extracted = reader.folder / "extracted" / "AA" / "wiki_00"
  extracted.parent.mkdir(parents=True)
  tiny_task.write_lines(extracted, map(json.dumps, ARTICLES))
  reader.read("pretraining.md")
  sentences = (reader.folder / "wikipedia.txt").read_text().split("\n")
  assert sentences[:3] == ["Oslo It is a city.", "It lies in the north.", ""]
  assert sentences[3:5] == ["Bergen Who lives there?", "Many do."]
  cut = (reader.folder / "corpus.txt").read_text().split("\n")
  assert list(map(len, cut)) != list(map(len, sentences))
  for part, whole in zip(cut, sentences, strict=True):
    assert whole.startswith(part)
    assert bool(part) == bool(whole)
  for name in ("pretraining_output", "phase1"):
    assert (reader.folder / name / "bert_model.ckpt.index").exists()
  for name in ("pretraining_output", "dynamic_masking", "phase2"):
    lines = (reader.folder / name / "eval_results.txt").read_text()
    assert "masked_lm_loss = " in lines
  answer, _ = scripts.fork(
    "fill_mask.py",
    f"--model_dir={reader.folder / 'pretraining_output'}",
    "--input_file=-",
    stdin="[MASK]\n",
  )
  assert "[MASK] 1: " in answer


# Stands for the official scripts, of which no copy is here: reads their
# arguments, and prints the share of questions with a prediction.
EVALUATE = """
import json, sys
data, predictions, *others = sys.argv[1:]
assert others[::2] == ["--na-prob-file"][: len(others) // 2]
files = [json.load(open(path)) for path in (predictions, *others[1::2])]
ids = [
  question["id"]
  for article in json.load(open(data))["data"]
  for paragraph in article["paragraphs"]
  for question in paragraph["qas"]
]
print("found", [sum(i in file for i in ids) / len(ids) for file in files])
"""


def test_squad_runs(reader):
  for version in ("1.1", "2.0"):
    path = reader.folder / "squad" / f"evaluate-v{version}.py"
    path.write_text(EVALUATE, "utf-8")
  _, first, _, second, asked, in_python = reader.read("squad.md")
  assert first == "found [1.0]\n"
  assert second == "found [1.0, 1.0]\n"
  assert (reader.folder / "squad_base/answer.html").exists()
  record = json.loads((reader.folder / "squad2_base/task.json").read_text())
  assert isinstance(record["null_score_diff_threshold"], float)
  assert re.search(r"^ +\d+\.\d%  ", asked, re.M)
  assert 0 < float(in_python.split()[-1]) <= 1


def test_ner_runs(reader):
  answer, in_python = reader.read("ner.md")[-2:]
  lines = (reader.folder / "ner_predictions/entities.jsonl").read_text()
  assert len(lines.splitlines()) == 20
  (row,) = map(json.loads, answer.splitlines())
  shown = [f"{e['type']} {e['text']} " for e in row["entities"]]
  assert len(in_python.splitlines()) == len(shown)
  for line, start in zip(in_python.splitlines(), shown, strict=True):
    assert line.startswith(start)


def test_multiple_choice_runs(reader):
  *_, in_python = reader.read("multiple-choice.md")
  assert sum(json.loads(in_python)) == pytest.approx(1, abs=1e-5)
  lines = (reader.folder / "choices_output/test_predictions.tsv").read_text()
  assert len(lines.splitlines()) == 21


def test_fill_mask_runs(reader):
  piped, shown, in_python = reader.read("fill-mask.md")
  assert piped.count("[MASK] 1: ") == 1
  assert shown.count("  [MASK] ") == 3
  assert "pseudo-perplexity" in shown
  assert "B follows A" in shown
  assert in_python.startswith("The capital of France is ")


def test_features_run(reader):
  reader.read("features.md")
  lines = (reader.folder / "output.jsonl").read_text()
  assert lines.startswith('{"linex_index"')
  vectors = np.load(reader.folder / "vectors.npz")["vectors"]
  assert np.sum(vectors**2, axis=1) == pytest.approx(1, rel=1e-5)
  assert (reader.folder / "attention.html").exists()
  assert (reader.folder / "map.png").exists()


def test_serving_runs(reader, golden, goldens):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  folder = reader.folder / "served"
  folder.mkdir()
  task_folders.write(folder, "multilabel", golden, goldens)
  page = PAGES["serving.md"].replace("8501", str(port))
  page = page.replace("/tmp/mrpc_output", str(folder))
  page = page.replace("/tmp/mrpc_onnx", f"{folder}_onnx")
  _, export, start, *curls = _blocks(page, "shell")
  scripts.fork(*export.replace("\\\n", " ").split()[1:], cwd=reader.folder)
  in_python = reader.folder / "example.py"
  in_python.write_text(*_blocks(page, "python"), encoding="utf-8")
  process = scripts.Fork(*start.split()[1:], cwd=reader.folder)
  label, _ = scripts.fork(in_python, cwd=reader.folder)
  options = "--silent --show-error --fail"
  options += " --retry 60 --retry-delay 1 --retry-connrefused"
  answers = [
    json.loads(answer)
    for block in curls
    for answer in subprocess.run(
      ["bash", "-ec", block.replace("curl", f"curl {options} -w '\\n'")],
      check=True,
      capture_output=True,
    ).stdout.splitlines()
  ]
  os.kill(process.pid, signal.SIGTERM)
  assert process.wait()[0] == 0
  plain, rows, columns, classified, status, metadata = answers
  assert plain["label"] == label.strip()
  assert rows == {"predictions": [plain]}
  assert columns["outputs"]["label"] == [plain["label"]]
  pairs = zip(plain["labels"], plain["probabilities"], strict=True)
  assert classified == {"result": [list(map(list, pairs))]}
  assert status["model_version_status"][0]["state"] == "AVAILABLE"
  assert metadata["model_spec"]["name"] == "mrpc"


def test_export_runs(reader, golden, goldens):
  folder = reader.folder / "mrpc_export"
  folder.mkdir()
  task_folders.write(folder, "multilabel", golden, goldens)
  page = PAGES["export.md"].replace("/tmp/mrpc_output", folder.name)
  _, in_tensorflow, _, _, in_litert = reader.read_text(page)
  assert re.match(r"\[b'[a-z|]*'\] \[\[0\.\d+ ", in_tensorflow)
  assert re.match(r"\[\[0\.\d+ +0\.\d+ +0\.\d+ *\]\]", in_litert)
  saved = [f"{name}/saved_model.pb" for name in ("encoder", "preprocess")]
  saved.append("encoder/bert_config.json")
  assert all((reader.folder / path).exists() for path in saved)


def test_python_runs(reader, golden, goldens):
  folder = reader.folder / "mrpc_python"
  folder.mkdir()
  task_folders.write(folder, "multilabel", golden, goldens)
  page = PAGES["python.md"].replace("/tmp/mrpc_output", folder.name)
  label, accuracy = reader.read_text(page)
  assert label.strip()
  assert 0 <= float(accuracy) <= 1


def test_from_transformers_runs(reader, golden, goldens):
  for name, task in (("classifier", "classification"), ("my_bert", "")):
    (reader.folder / name).mkdir()
    task_folders.write(reader.folder / name, task, golden, goldens)
  labels, logits, shapes, _ = reader.read("from-transformers.md")
  assert len(labels.splitlines()) == 2
  assert logits == "(2, 3)\n"
  assert re.fullmatch(r"\(1, \d+, 32\) \(1, 32\)\n", shapes)
  assert (reader.folder / "for_transformers" / "config.json").exists()


def test_tokenization_runs(reader):
  shown, labeled, spans = reader.read("tokenization.md")
  pieces, ids = map(ast.literal_eval, shown.splitlines())
  words = " ".join(pieces[1:-1]).replace(" ##", "")
  assert words == "jim henson ' s puppets"
  vocab = (reader.folder / "vocab.txt").read_text("utf-8").splitlines()
  assert [vocab[index] for index in ids] == pieces
  pieces, labels = zip(*ast.literal_eval(labeled), strict=True)
  words = " ".join(pieces[1:-1]).replace(" ##", "")
  assert words == "jim henson ' s puppets don ' t sleep ."
  # The label of a word is that of its first piece.
  found = {p: label for p, label in zip(pieces, labels, strict=True) if label}
  assert list(found.values()) == ["B-PER", "I-PER", *"OOOOO"]
  assert [p[0] for p in found] == ["j", "h", "'", "p", "d", "s", "."]
  for line in spans.splitlines():
    piece, text = line.split(" ")
    assert piece.removeprefix("##") == text.lower()


def test_estimator_runs(reader):
  (printed,) = reader.read("estimator.md")
  results, *rows = printed.splitlines()
  assert ast.literal_eval(results).keys() >= {"eval_accuracy", "global_step"}
  assert len(rows) == tiny_task.ROWS["test"]
  for row in rows:
    assert sum(map(float, row.strip("[]").split())) == pytest.approx(
      1, abs=1e-5
    )
  assert (reader.folder / "ported" / "checkpoint").exists()


def test_replacements_are_those_of_the_original():
  """The rows of the page on what scripts import: private functions of it."""
  from bert.data import sequences

  text = " ".join(map(chr, [*range(0x20, 0x3200), *range(0x4DF0, 0x4E10)]))
  chinese = {c for c in text if tokenization.stands_alone(c) and c.isalpha()}
  assert chinese == {c for c in text if 0x4E00 <= ord(c) < 0xA000}
  for a, b, length in itertools.product(range(6), range(6), range(9)):
    n, m = sequences.share_room(a, b, length)
    while a + b > length:  # As the original does.
      a, b = (a - 1, b) if a > b else (a, b - 1)
    assert (n, m) == (a, b)


def test_keras_runs(reader):
  (log,) = reader.read("keras.md")
  assert log.count("loss: ") == 3
  assert (reader.folder / "reviews.keras").exists()
  assert (reader.folder / "tuned" / "vocab.txt").exists()


def test_embeddings_run(reader):
  *_, in_python, hybrid, _, _ = printed = reader.read("embeddings.md")
  assert (
    "eval_mrr_at_10"
    in (reader.folder / "faq_output/eval_results.txt").read_text()
  )
  found = next(text for text in printed if "question: " in text)
  assert found.count("question: ") == 3
  score, _ = in_python.split(maxsplit=1)
  assert found.startswith(f"{float(score):7.4f}")
  assert hybrid.count("question: ") == 3
  assert 1 / 62 < float(hybrid.split(maxsplit=1)[0]) < 2 / 60
  lines = (reader.folder / "faq_triples.jsonl").read_text().splitlines()
  assert {len(json.loads(line)) for line in lines} == {3}


def test_architecture_runs(reader):
  (shapes,) = reader.read("architecture.md")
  assert re.fullmatch(r"\(1, \d+, 32\)\n\(1, 32\)\n", shapes)
