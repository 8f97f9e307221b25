"""visualize.py: what it computes, what it writes, and how it fails."""

import base64
import json
import re
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest
import scripts
import tensorflow as tf

import modeling
import tokenization
from bert import variables
from bert.commands import visualize
from bert.training import checkpoints, model_folder

SENTENCES = ["the cat sat", "a dog ran", "it was late", "the end", "no more"]


@pytest.fixture(scope="module")
def flags(goldens):
  model = goldens / "model"
  return [
    f"--vocab_file={goldens / 'vocab.txt'}",
    f"--bert_config_file={model / 'bert_config.json'}",
    f"--init_checkpoint={model / 'bert_model.ckpt'}",
  ]


@pytest.fixture
def sentences(tmp_path):
  path = tmp_path / "sentences.txt"
  path.write_text("\n\n".join(SENTENCES) + "\n", "utf-8")
  return path


def _bert(goldens, ids, segment_ids):
  """The golden model's reading of a row of ids."""
  model = goldens / "model"
  config = modeling.BertConfig.from_json_file(str(model / "bert_config.json"))
  weights = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  with variables.VariableStore(initial_values=weights):
    return modeling.BertModel(
      config, False, tf.constant([ids]), None, tf.constant([segment_ids])
    )


def _ids(goldens, tokens):
  vocab = (goldens / "vocab.txt").read_text("utf-8").split("\n")
  return [vocab.index(token) for token in tokens]


def test_attention_of_a_pair(tmp_path, goldens, flags):
  path = tmp_path / "attention.html"
  out, _ = scripts.fork(
    "visualize.py",
    "attention",
    "--text=The cat <sat>",
    "--text_b=It was late",
    f"--output_file={path}",
    *flags,
  )
  content = path.read_text("utf-8")
  assert '<p class="said" dir="auto">The cat &lt;sat&gt;</p>' in content
  shown = json.loads(re.search(r'id="attention">(.*?)</script>', content)[1])
  first = shown["tokens"].index("[SEP]") + 1
  tokens = shown["tokens"]
  assert (
    "".join(tokens).replace("##", "") == "[CLS]thecat<sat>[SEP]itwaslate[SEP]"
  )
  assert shown["segments"] == [0] * first + [1] * (len(tokens) - first)
  model = _bert(goldens, _ids(goldens, tokens), shown["segments"])
  expected = np.concatenate(model.get_all_attention_probs())
  packed = zlib.decompress(base64.b64decode(shown["weights"]))
  weights = np.frombuffer(packed, "<u2").reshape(expected.shape) / 65535
  np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)
  layers, heads = expected.shape[:2]
  assert f"{len(tokens)} tokens, {layers} layers of {heads} heads" in out


def test_attention_is_computed_once(goldens, monkeypatch):
  calls = []
  softmax = tf.nn.softmax
  monkeypatch.setattr(
    tf.nn, "softmax", lambda x: calls.append(x.shape) or softmax(x)
  )
  monkeypatch.setattr(modeling, "traced_once", lambda block: block)
  model = _model(goldens)
  tokens = ["[CLS]", "the", "end", "[SEP]"]
  found = visualize.attention_probs(model, tokens, [0, 0, 0, 1])
  assert len(calls) == model.config.num_hidden_layers
  bert = _bert(goldens, _ids(goldens, tokens), [0, 0, 0, 1])
  expected = np.concatenate(bert.get_all_attention_probs())
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_help_lists_the_flags_of_the_model():
  # Flags are listed by the module that runs, which a fork's is not.
  known = subprocess.run(
    [sys.executable, str(scripts.ROOT / "visualize.py"), "--help"],
    capture_output=True,
    text=True,
  ).stdout
  listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", known, re.MULTILINE))
  assert listed >= {
    "text",
    "input_file",
    "vocab_file",
    "bert_config_file",
    "init_checkpoint",
    "do_lower_case",
    "max_seq_length",
    "precision",
  }


def _model(goldens):
  folder = goldens / "model"
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"), True)
  return model_folder.Model(config, tokenizer, str(folder / "bert_model.ckpt"))


def test_a_map_is_of_mean_vectors(goldens):
  found = visualize.mean_vectors(_model(goldens), SENTENCES)
  # Words of the vocabulary, each a piece of its own.
  tokens = ["[CLS]", "the", "end", "[SEP]"]
  bert = _bert(goldens, _ids(goldens, tokens), [0] * 4)
  expected = np.mean(bert.get_sequence_output()[0], axis=0)
  np.testing.assert_allclose(found[3], expected, rtol=0, atol=1e-5)


def test_labels_are_parted_from_sentences(tmp_path):
  path = tmp_path / "in.txt"
  path.write_bytes(b"pets\tthe cat\r\n\tno\tlabel\r\n\npets\ta dog")
  found = visualize.read_sentences(str(path), labeled=True)
  assert found == (["the cat", "no\tlabel", "a dog"], ["pets", "", "pets"])


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_embeddings(tmp_path, flags, method):
  source, output = tmp_path / "in.txt", tmp_path / "map.png"
  lines = [f"label {n % 2}\t{text}" for n, text in enumerate(SENTENCES)]
  source.write_text("\n".join(lines), "utf-8")
  out, _ = scripts.fork(
    "visualize.py",
    "embeddings",
    f"--input_file={source}",
    f"--output_file={output}",
    f"--method={method}",
    "--labels",
    *flags,
  )
  assert out == f"{output}: 5 sentences\n"
  assert output.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


ATTENTION = {"text": "the cat", "output_file": "out.html"}
EMBEDDINGS = {"input_file": "sentences.txt", "output_file": "map.png"}


def _refused(*arguments):
  """The one line that a command ends with."""
  (line,) = scripts.fork("visualize.py", *arguments, status=2)[1].splitlines()
  return line


def test_a_page_does_not_replace_the_model(tmp_path, goldens, flags):
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, tmp_path)
  index = tmp_path / "bert_model.ckpt.index"
  before = scripts.tree(tmp_path)
  changes = [f"--output_file={index}", f"--init_checkpoint={tmp_path}"]
  line = _refused("attention", "--text=the", *flags, *changes)
  assert line.startswith(f"error: --output_file={index}: {index} is an input")
  assert scripts.tree(tmp_path) == before


@pytest.mark.parametrize(
  ("command", "changes", "message"),
  [
    (None, {}, "--command is required; pass attention or embeddings"),
    ("attend", {}, "attention|embeddings"),
    ("attention", {"text": ""}, "--text is required"),
    ("attention", {"text": "cat " * 99}, "more than --max_seq_length=128"),
    ("attention", {"max_seq_length": 129}, "128 positions"),
    ("attention", {"output_file": "no/out.html"}, "no such folder no"),
    ("attention", {"output_file": "."}, "'.' is not a file"),
    ("attention", {"output_file": None}, "--output_file is required"),
    ("attention", {"vocab_file": "none"}, "--vocab_file=none: no such file"),
    ("attention", {"init_checkpoint": "none"}, "no checkpoint none"),
    ("embeddings", {"input_file": "none"}, "--input_file=none: no such file"),
    ("embeddings", {"input_file": "two.txt"}, "two.txt contains 2 sentences"),
    ("embeddings", {"input_file": "latin.txt"}, "latin.txt:2: byte 7"),
    ("embeddings", {"labels": "true"}, "sentences.txt:1: 'the cat sat' is not"),
    ("embeddings", {"output_file": "sentences.txt"}, "is an input"),
    ("embeddings", {"output_file": "e.svg"}, "a path that ends with .png"),
    ("attention", {"output_file": "a.png"}, "a path that ends with .html"),
    ("embeddings", {"method": "umap"}, "pca|tsne"),
  ],
)
def test_bad_input_is_one_line(
  tmp_path, flags, sentences, command, changes, message
):
  (tmp_path / "two.txt").write_text("one\n \ntwo\n")
  (tmp_path / "latin.txt").write_bytes(b"cat\ncaf\xe9\n")
  before = scripts.tree(tmp_path)
  values = ATTENTION if command == "attention" else EMBEDDINGS
  values = dict(flag[2:].split("=", 1) for flag in flags) | values | changes
  given = [f"--{k}={v}" for k, v in values.items() if v is not None]
  _, error = scripts.fork(
    "visualize.py",
    *([command] if command else []),
    *given,
    status=2,
    cwd=tmp_path,
  )
  lines = [line for line in error.splitlines() if " visualize.py:" not in line]
  assert len(lines) == 1, error
  assert lines[0].startswith("error: ")
  assert message in lines[0]
  assert scripts.tree(tmp_path) == before
