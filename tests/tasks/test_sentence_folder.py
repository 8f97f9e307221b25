"""Folders of sentence-transformers: their vectors, in and out."""

import json
import shutil

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from safetensors import numpy as safetensors

import bert
import scripts
from bert.data import records
from bert.errors import UserError
from bert.export import huggingface, onnx_model, task_graph
from bert.models import sentence_folder, task_file
from bert.search import text_index
from bert.tasks.embeddings.vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS

PARTS = ("weight", "bias")
NAMES = ("st-mean-normalized", "st-cls-prompts")


@pytest.fixture
def folders(goldens):
  return {name: goldens / "variants" / name for name in NAMES}


@pytest.fixture
def copy(folders, tmp_path):
  """A copy of the first folder, to be changed."""
  return shutil.copytree(folders[NAMES[0]] / "folder", tmp_path / "copy")


def texts_of(folder):
  return json.loads((folder / "texts.json").read_text())


def vectors(answers):
  return np.stack([answer["vector"] for answer in answers])


def edit(path, **changes):
  fields = json.loads(path.read_text())
  path.write_text(json.dumps({**fields, **changes}))


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_are_theirs(folders, name, tmp_path):
  """Read, converted to a release and back, and exported."""
  folder, texts = folders[name], texts_of(folders[name])
  wanted = dict(np.load(folder / "outputs.npz"))
  release, back = str(tmp_path / "release"), str(tmp_path / "back")
  huggingface.to_tensorflow(str(folder / "folder"), release)
  huggingface.to_huggingface(release, back)
  (tmp_path / "back" / task_file.NAME).unlink()
  for path in (str(folder / "folder"), release, back):
    model = bert.load(path)
    assert model.kind == "vectors"
    found = vectors(model(texts))
    np.testing.assert_allclose(found, wanted["vectors"], rtol=0, atol=1e-5)
    if "query" in wanted and path != back:
      inputs = [{"text": text, "prompt": "query"} for text in texts]
      np.testing.assert_allclose(
        vectors(model(inputs)), wanted["query"], rtol=0, atol=1e-5
      )
      by_default = bert.load(path, prompt="query")
      np.testing.assert_array_equal(
        vectors(by_default(texts)), vectors(model(inputs))
      )


@pytest.mark.parametrize(
  ("name", "changes"),
  [
    (NAMES[1], {}),
    (NAMES[0], {"pooling": "max"}),
    (NAMES[0], {"pooling": "mean_sqrt_len"}),
    (NAMES[0], {"truncate_dim": 16}),
  ],
)
def test_exports_have_the_vectors(folders, name, changes, tmp_path):
  """ONNX and a SavedModel; other settings by task.json."""
  texts = texts_of(folders[name])
  folder = str(tmp_path / "model")
  huggingface.to_tensorflow(str(folders[name] / "folder"), folder)
  wanted = dict(np.load(folders[name] / "outputs.npz"))["vectors"]
  edit(tmp_path / "model" / task_file.NAME, **changes)
  model = bert.load(folder)
  if changes:
    wanted = vectors(model(texts))
  content = onnx_model.task_graph(folder).to_bytes()
  session = onnxruntime.InferenceSession(
    content, providers=["CPUExecutionProvider"]
  )
  graph = task_graph.make_graph(model, reads_text=True)
  found = graph(tf.constant(texts))["vector"]
  np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
  examples = [model.task.example(text) for text in texts]
  for example, vector in zip(examples, wanted, strict=True):
    row = {n: np.array([example.rows[0][n]]) for n in records.SEQUENCES}
    (found,) = session.run(["vectors"], row)
    np.testing.assert_allclose(found[0], vector, rtol=0, atol=1e-5)


def test_texts_without_tokens_have_zeros_in_onnx(folders, tmp_path):
  """Padding rows, whatever the pooling."""
  folder = tmp_path / "model"
  huggingface.to_tensorflow(str(folders[NAMES[0]] / "folder"), str(folder))
  zeros = {n: np.zeros([1, 4], np.int64) for n in records.SEQUENCES}
  for pooling in ("mean", "max", "mean_sqrt_len"):
    edit(folder / task_file.NAME, pooling=pooling)
    session = onnxruntime.InferenceSession(
      onnx_model.task_graph(str(folder)).to_bytes(),
      providers=["CPUExecutionProvider"],
    )
    (found,) = session.run(["vectors"], zeros)
    np.testing.assert_array_equal(found, np.zeros([1, 32]))


def test_scripts_follow_the_folder(folders, tmp_path):
  """extract_features.py, unless flags say otherwise; export_model.py."""
  folder = folders[NAMES[1]]
  texts = ["Who wrote it?", "a  b c"]
  (tmp_path / "in.txt").write_text("\n".join(texts))
  for prompt, flags in (("", []), ("query", ["--prompt=query"])):
    output = tmp_path / f"out{prompt}.npz"
    scripts.fork(
      "extract_features.py",
      f"--init_checkpoint={folder / 'folder'}",
      f"--input_file={tmp_path / 'in.txt'}",
      f"--output_file={output}",
      *flags,
    )
    golden = dict(np.load(folder / "outputs.npz"))[prompt or "vectors"]
    found = np.load(output)["vectors"]
    np.testing.assert_allclose(found[0], golden[1], rtol=0, atol=1e-5)
  scripts.fork(
    "export_model.py",
    f"--model_dir={folder / 'folder'}",
    f"--output_dir={tmp_path / 'onnx'}",
    "--format=onnx",
  )
  kind, fields = task_file.read(str(tmp_path / "onnx"))
  assert kind == "vectors"
  assert fields["pooling"] == "cls"
  assert fields["prompts"] == [["document", "passage: "], ["query", "query: "]]


def test_token_vectors_of_a_normalized_model(copy):
  """A pooling of the caller's replaces that of the folder."""
  found = bert.load(copy, pooling="none")("Who wrote it?")
  assert found["vectors"].shape == (len(found["tokens"]), 1, 32)


def test_older_names(copy, folders):
  """Those of sentence-transformers before version 5."""
  pooling = copy / "1_Pooling" / "config.json"
  for name, wanted in (
    ("cls_token", "cls"),
    ("max_tokens", "max"),
    ("mean_tokens", "mean"),
    ("mean_sqrt_len_tokens", "mean_sqrt_len"),
  ):
    fields = {f"pooling_mode_{n}_tokens": False for n in ("mean", "lasttoken")}
    fields |= {"word_embedding_dimension": 32, f"pooling_mode_{name}": True}
    pooling.write_text(json.dumps(fields))
    assert sentence_folder.read(str(copy))["pooling"] == wanted
  path = copy / "sentence_bert_config.json"
  for name in ("bert", "distilbert", "xlm-roberta"):
    path = path.rename(copy / f"sentence_{name}_config.json")
    path.write_text('{"max_seq_length": 12, "do_lower_case": false}')
    assert sentence_folder.read(str(copy))["max_seq_length"] == 12
  path.unlink()
  edit(copy / "tokenizer_config.json", model_max_length=10**30)
  (copy / "config_sentence_transformers.json").unlink()
  assert sentence_folder.read(str(copy)) == {
    "pooling": "mean_sqrt_len",
    "normalize": True,
    "max_seq_length": 64,  # The positions of the model.
    "prompts": (),
    "prompt": "",
    "similarity": "cosine",
    "truncate_dim": 0,
  }


def convert_and_back(folder, parent):
  """The folder, a release, and a folder of theirs without task.json."""
  release, back = str(parent / "release"), parent / "back"
  huggingface.to_tensorflow(str(folder), release)
  huggingface.to_huggingface(release, str(back))
  (back / task_file.NAME).unlink()
  return folder, release, back


def test_vectors_are_cut_after_they_are_scaled(copy, folders, tmp_path):
  folder = folders[NAMES[0]]
  edit(copy / PROMPTS, truncate_dim=16)
  wanted = np.load(folder / "outputs.npz")["vectors"][:, :16]
  for path in convert_and_back(copy, tmp_path):
    model = bert.load(path)
    assert model.task.vector_shape(model.config) == (16,)
    found = vectors(model(texts_of(folder)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_products_as_similarity(folders, tmp_path):
  """Of vectors as they are, not of length 1."""
  folder = shutil.copytree(folders[NAMES[1]] / "folder", tmp_path / "copy")
  edit(folder / PROMPTS, similarity_fn_name="dot")
  wanted = np.load(folders[NAMES[1]] / "outputs.npz")["query"]
  for path in convert_and_back(folder, tmp_path):
    texts = texts_of(folders[NAMES[1]])
    found = text_index.encode(bert.load(path), texts, QUERY_PROMPTS)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_the_default_prompt_is_not_for_search(copy):
  """As in `encode`, `encode_query` and `encode_document`."""
  texts = ["the city", "a b"]
  wanted = bert.load(copy)(["query: " + text for text in texts] + texts)
  edit(copy / PROMPTS, prompts={"x": "query: "}, default_prompt_name="x")
  model = bert.load(copy)
  found = vectors(model(texts))
  np.testing.assert_allclose(found, vectors(wanted[:2]), rtol=0, atol=1e-6)
  for names in (QUERY_PROMPTS, DOCUMENT_PROMPTS):
    found = text_index.encode(model, texts, names)
    np.testing.assert_allclose(found, vectors(wanted[2:]), rtol=0, atol=1e-6)


def test_an_encoder_in_a_folder_of_its_own(copy, folders, tmp_path):
  """As sentence-transformers wrote it in 2020."""
  inner = copy / "0_Transformer"
  inner.mkdir()
  for path in copy.glob("*.*"):
    if path.name not in ("modules.json", PROMPTS):
      path.rename(inner / path.name)
  modules = json.loads((copy / "modules.json").read_text())
  modules[0]["path"] = "0_Transformer"
  (copy / "modules.json").write_text(json.dumps(modules))
  wanted = np.load(folders[NAMES[0]] / "outputs.npz")["vectors"]
  for path in convert_and_back(copy, tmp_path):
    found = vectors(bert.load(path)(texts_of(folders[NAMES[0]])))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def _add_dense(copy, noise=0.0):
  """Adds the pooler as a part of its own, as in LaBSE."""
  modules = json.loads((copy / "modules.json").read_text())
  dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
  modules.insert(2, dense)
  (copy / "modules.json").write_text(json.dumps(modules))
  tensors = safetensors.load_file(copy / "model.safetensors")
  layer = {f"linear.{n}": tensors[f"pooler.dense.{n}"] for n in PARTS}
  layer["linear.bias"] += noise
  (copy / "2_Dense").mkdir()
  safetensors.save_file(layer, copy / "2_Dense/model.safetensors")
  fields = {"activation_function": "torch.nn.modules.activation.Tanh"}
  (copy / "2_Dense/config.json").write_text(json.dumps(fields))
  edit(copy / "1_Pooling/config.json", pooling_mode="cls")


def test_a_dense_layer_may_be_the_pooler(copy, tmp_path):
  """tanh(W x + b) of the first vectors, scaled to length 1."""
  texts = ["The old bridge", "one two"]
  edit(copy / "1_Pooling/config.json", pooling_mode="cls")
  first = bert.load(str(copy), normalize=False)(texts)
  _add_dense(copy)
  layer = safetensors.load_file(copy / "2_Dense/model.safetensors")
  weight, bias = (layer[f"linear.{name}"] for name in PARTS)
  wanted = np.tanh(vectors(first) @ weight.T + bias)
  wanted /= np.linalg.norm(wanted, axis=-1, keepdims=True)
  back = tmp_path / "back"
  huggingface.to_huggingface(str(copy), str(back))
  (back / task_file.NAME).unlink()
  for folder in (copy, back):
    found = vectors(bert.load(str(folder))(texts))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
  written = safetensors.load_file(back / "2_Dense/model.safetensors")
  for name, value in layer.items():
    np.testing.assert_array_equal(written[name], value)


def test_another_dense_layer_is_an_error(copy):
  _add_dense(copy, noise=0.1)
  with pytest.raises(UserError, match="its Dense is not the pooler of the enc"):
    bert.load(copy)


POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
ASYM = [{"type": "models.Asym", "path": ""}]


@pytest.mark.parametrize(
  ("path", "content", "wanted"),
  [
    ("modules.json", ASYM, "it has the parts 'Asym'; only a Transformer"),
    ("modules.json", [{}], "modules.json: 'type'; pass"),
    (POOLING, None, f"the folder lacks .*{POOLING}"),
    (
      POOLING,
      {"pooling_mode": "lasttoken"},
      'the pooling "lasttoken" is not supported, .*; pass another model',
    ),
    (
      POOLING,
      {"pooling_mode": ["mean", "max"]},
      "the pooling .* is not supported",
    ),
    (PROMPTS, {"default_prompt_name": "x"}, "there is no prompt 'x'"),
    (PROMPTS, {"similarity_fn_name": "manhattan"}, "manhattan.* not supported"),
    (PROMPTS, {"new": True}, f"{PROMPTS}: new=true is not supported; pass ano"),
    (PROMPTS, {"truncate_dim": -1}, "is damaged .truncate_dim is -1"),
    (TRANSFORMER, {"query_length": 4}, f"{TRANSFORMER}: query_length=4 is not"),
    ("2_Normalize/config.json", {"module_input_name": "x"}, "_name=.x. is not"),
    (
      PROMPTS,
      {"prompts": ["x"]},
      f"{PROMPTS} is damaged .prompts is .* object",
    ),
    (PROMPTS, {"prompts": {"x": 1}}, "prompts is .* not an object of strings"),
    (POOLING, {"include_prompt": 1}, f"{POOLING} .* not true or false"),
    ("modules.json", [3], "modules.json .* is .3., not a list of objects"),
  ],
)
def test_other_parts_are_an_error(copy, path, content, wanted):
  if content is None:
    (copy / path).unlink()
  elif isinstance(content, dict):
    edit(copy / path, **content)
  else:
    (copy / path).write_text(json.dumps(content))
  with pytest.raises(UserError, match=wanted):
    bert.load(copy)


def test_a_prompt_that_the_model_lacks(folders):
  with pytest.raises(UserError, match="prompt='x' is not one of 'document',"):
    bert.load(folders[NAMES[1]] / "folder", prompt="x")


def test_vectors_that_theirs_do_not_have(folders, tmp_path):
  folder, output = tmp_path / "model", tmp_path / "out"
  huggingface.to_tensorflow(str(folders[NAMES[0]] / "folder"), str(folder))
  edit(folder / task_file.NAME, exclude_special=True)
  with pytest.raises(UserError, match="exclude_special=True of task"):
    huggingface.to_huggingface(str(folder), str(output))
  assert not output.exists()
  with pytest.raises(UserError, match="which ONNX files cannot have"):
    onnx_model.task_graph(str(folder))
