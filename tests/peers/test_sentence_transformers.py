"""sentence-transformers reads our folders and computes the same vectors.

And we read its folders: docs/convert.md lists each key of their files, with
what becomes of it. Set SENTENCE_TRANSFORMERS_PYTHON to a Python that has it.
"""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import scripts
from safetensors import numpy as safetensors

import bert
from bert.errors import UserError
from bert.export import huggingface
from bert.models import task_file
from bert.search import text_index
from bert.tasks.embeddings.vectors import QUERY_PROMPTS

pytestmark = pytest.mark.peers

# Computes what each folder gives, and lists the keys that files may have.
_SCRIPT = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
folders, texts, output = sys.argv[1:]
texts = json.loads(open(texts).read())
found = {}
for name in json.loads(folders):
  model = SentenceTransformer(name, device="cpu")
  query, document = model.encode_query(texts), model.encode_document(texts)
  found[name + ":vectors"] = model.encode(texts)
  found[name + ":similarity"] = model.similarity(query, document).numpy()
  if "query" in model.prompts:
    found[name + ":query"] = model.encode(texts, prompt_name="query")
for part in (Dense, Normalize, Pooling, Transformer):
  found[part.__name__] = part.config_keys
np.savez(output, **found)
"""


def judge(folders, texts, output):
  """The arrays of each folder, and the keys of each part, by name."""
  python = os.environ["SENTENCE_TRANSFORMERS_PYTHON"]
  names = json.dumps(list(map(str, folders)))
  subprocess.run([python, "-c", _SCRIPT, names, texts, output], check=True)
  return dict(np.load(output))


@pytest.mark.parametrize("name", ["st-mean-normalized", "st-cls-prompts"])
def test_a_converted_folder(goldens, tmp_path, name):
  golden = goldens / "variants" / name
  ours, theirs = str(tmp_path / "ours"), tmp_path / "theirs"
  huggingface.to_tensorflow(str(golden / "folder"), ours)
  huggingface.to_huggingface(ours, str(theirs))
  assert json.loads((theirs / task_file.NAME).read_text())["task"] == "vectors"
  found = judge([theirs], golden / "texts.json", tmp_path / "found.npz")
  for key, wanted in np.load(golden / "outputs.npz").items():
    np.testing.assert_allclose(
      found[f"{theirs}:{key}"], wanted, rtol=0, atol=1e-5
    )


def test_the_code_of_the_card_runs(goldens, tmp_path):
  golden = goldens / "variants" / "st-mean-normalized"
  ours, theirs = str(tmp_path / "ours"), tmp_path / "theirs"
  huggingface.to_tensorflow(str(golden / "folder"), ours)
  huggingface.to_huggingface(ours, str(theirs))
  card = (theirs / "README.md").read_text("utf-8")
  assert "library_name: sentence-transformers" in card
  (code,) = re.findall("```python\n(.*?)```", card, re.S)
  python = os.environ["SENTENCE_TRANSFORMERS_PYTHON"]
  out = subprocess.check_output([python, "-c", code], text=True, cwd=tmp_path)
  assert len(re.findall(r"-?\d\.\d+", out)) == 2 * 32  # two vectors


def edit(path, change):
  """Changes the content of a JSON file by a function, or adds fields."""
  content = json.loads(path.read_text())
  content = change(content) if callable(change) else {**content, **change}
  path.write_text(json.dumps(content))


def _older_pooling(fields):
  return {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}


# A change of each key of the table; a function changes the whole content.
_SENTENCE, _CONFIG = "sentence_bert_config.json", "config_sentence_transformers"
CHANGES = {
  "modules.json": {
    "type": lambda modules: modules[:2],
    "path": lambda modules: [modules[0], {**modules[1], "path": "other"}],
    "idx": lambda modules: [{**module, "idx": 3} for module in modules],
    "name": lambda modules: [{**m, "name": f"n{m['idx']}"} for m in modules],
    "kwargs": lambda modules: [{**m, "kwargs": ["other"]} for m in modules],
  },
  f"{_CONFIG}.json": {
    "prompts": {"query": "the ", "document": "a ", "other": "b "},
    "default_prompt_name": "query",
    "truncate_dim": 8,
    "similarity_fn_name": "dot",
    "model_type": "SparseEncoder",
    "__version__": {"sentence_transformers": "5.0.0"},
    "requirements": {"sentence-transformers": ">=5"},
  },
  _SENTENCE: {
    "max_seq_length": 6,
    "do_lower_case": True,
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "forward"}},
    "module_output_name": "other",
    "query_length": 4,
    "document_length": 4,
    "query_expansion": {"length": 8},
    "processing_kwargs": {"text": {"max_length": 4}},
    "model_args": {"torch_dtype": "float16"},
    "tokenizer_args": {"model_max_length": 4},
    "config_args": {"hidden_act": "relu"},
    "unpad_inputs": False,
  },
  "1_Pooling/config.json": {
    "pooling_mode": "max",
    "pooling_mode_cls_token": _older_pooling,
    "include_prompt": False,
    "embedding_dimension": 32,
    "word_embedding_dimension": lambda fields: {
      ("word_" + name if name.startswith("emb") else name): value
      for name, value in fields.items()
    },
  },
  "2_Dense/config.json": {
    "activation_function": "torch.nn.modules.linear.Identity",
    "module_input_name": "token_embeddings",
    "module_output_name": "other",
    "use_residual": True,
    "in_features": 32,
    "out_features": 32,
    "bias": True,
  },
  "2_Normalize/config.json": {
    "module_input_name": "token_embeddings",
    "module_output_name": "other",
  },
  "tokenizer_config.json": {
    "do_lower_case": False,
    "model_max_length": 6,
    "strip_accents": False,
    "tokenize_chinese_chars": False,
    "do_basic_tokenize": False,
    "truncation_side": "left",
    "padding_side": "left",
    "tokenizer_class": "BertJapaneseTokenizer",
  },
}


def table():
  """What docs/convert.md says about each key: the first word, by file, key."""
  text = (scripts.ROOT / "docs" / "convert.md").read_text()
  rows = re.findall(r"(?m)^\| `(\S+\.json)` \| (.+?) \| (.+) \|$", text)
  return {
    (file, key): effect
    for file, keys, effect in rows
    if file in CHANGES
    for key in re.findall("`(.+?)`", keys)
  }


@pytest.fixture
def base(goldens, tmp_path):
  """A function that returns a folder with all files that a change needs."""

  def make(file):
    name = "st-cls-prompts"
    if "Normalize" in file or file == "modules.json":
      name = "st-mean-normalized"
    golden = goldens / "variants" / name / "folder"
    folder = tmp_path / f"base-{file.replace('/', '-')}"
    if folder.exists():
      return folder
    shutil.copytree(golden, folder)
    (folder / "other").mkdir()
    pooling = {"embedding_dimension": 32, "pooling_mode": "max"}
    (folder / "other" / "config.json").write_text(json.dumps(pooling))
    if "Dense" in file:
      _add_dense(folder)
    if file == "tokenizer_config.json":
      _use_vocabulary(folder)
    return folder

  return make


def _add_dense(folder):
  """The pooler as a part of its own."""
  tensors = safetensors.load_file(folder / "model.safetensors")
  layer = {f"linear.{n}": tensors[f"pooler.dense.{n}"] for n in PARTS}
  (folder / "2_Dense").mkdir()
  safetensors.save_file(layer, folder / "2_Dense" / "model.safetensors")
  fields = {"activation_function": "torch.nn.modules.activation.Tanh"}
  fields |= {"in_features": 32, "out_features": 32, "bias": True}
  (folder / "2_Dense" / "config.json").write_text(json.dumps(fields))
  part = {"idx": 2, "name": "2", "path": "2_Dense"}
  part["type"] = "sentence_transformers.models.Dense"
  edit(folder / "modules.json", lambda modules: [*modules, part])


PARTS = ("weight", "bias")


def _use_vocabulary(folder):
  """BERT's own tokenizer, with a vocab.txt."""
  path = folder / "tokenizer.json"
  vocab = json.loads(path.read_text())["model"]["vocab"]
  path.unlink()
  pieces = sorted(vocab, key=vocab.get)
  (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
  settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
  edit(folder / "tokenizer_config.json", settings)


def arrays(folder, texts):
  """Our vectors, and the similarities of texts as queries and documents."""
  model = bert.load(folder)
  answers = [answer["vector"] for answer in model(texts)]
  queries = text_index.encode(model, texts, QUERY_PROMPTS)
  similarity = queries @ text_index.encode(model, texts).T
  return {"vectors": np.stack(answers), "similarity": similarity}


def test_each_key_of_their_files(base, goldens, tmp_path):
  """Used, without effect, or an error, as the table says."""
  effects = table()
  names = {(file, key) for file, keys in CHANGES.items() for key in keys}
  assert effects.keys() == names
  path = goldens / "variants" / "st-cls-prompts" / "texts.json"
  texts = json.loads(path.read_text())
  folders, wanted = {}, {}
  for number, ((file, key), effect) in enumerate(effects.items()):
    change = CHANGES[file][key]
    folder = shutil.copytree(base(file), tmp_path / f"changed-{number}")
    edit(folder / file, change if callable(change) else {key: change})
    if effect.startswith("error"):
      with pytest.raises(UserError, match="is not supported"):
        bert.load(folder)
      continue
    ours, back = tmp_path / f"ours-{number}", tmp_path / f"back-{number}"
    huggingface.to_tensorflow(str(folder), str(ours))
    huggingface.to_huggingface(str(ours), str(back))
    folders[file, key] = base(file), folder, back
    wanted[file, key] = arrays(folder, texts)
  unique = dict.fromkeys(f for group in folders.values() for f in group)
  found = judge(unique, path, tmp_path / "found.npz")
  for name, (before, changed, back) in folders.items():
    has_effect = []
    for array, ours in wanted[name].items():
      theirs, again, old = (
        found[f"{folder}:{array}"] for folder in (changed, back, before)
      )
      message = f"{name}: {array}"
      np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5, err_msg=message)
      np.testing.assert_allclose(again, theirs, 1e-5, 1e-5, err_msg=message)
      same = old.shape == theirs.shape and np.allclose(old, theirs, 1e-5, 1e-5)
      has_effect.append(not same)
    assert any(has_effect) == effects[name].startswith("used"), name
  parts = {"Dense": "2_Dense/config.json", "Pooling": "1_Pooling/config.json"}
  parts |= {"Normalize": "2_Normalize/config.json", "Transformer": _SENTENCE}
  for part, file in parts.items():
    assert {(file, key) for key in found[part]} <= names
