"""visualize.py: what it computes, what it writes, and how it fails."""

import base64
import json
import re
import shutil
import zlib

import mistakes
import numpy as np
import pytest
import scripts
import tensorflow as tf

import modeling
from bert.commands import visualize
from bert.models.resolve import Model

SENTENCES = ["the cat sat", "a dog ran", "it was late", "the end", "no more"]


@pytest.fixture(scope="module")
def flags(goldens):
  model = goldens / "model"
  return [
    f"--vocab_file={goldens / 'vocab.txt'}",
    f"--bert_config_file={model / 'bert_config.json'}",
    f"--init_checkpoint={model / 'bert_model.ckpt'}",
  ]


def _bert(golden, tokenizer, tokens, segment_ids):
  """The golden model's reading of a row of word pieces."""
  ids = tf.constant([tokenizer.convert_tokens_to_ids(tokens)])
  with golden.store():
    return modeling.BertModel(
      golden.config, False, ids, None, tf.constant([segment_ids])
    )


def test_attention_of_a_pair(tmp_path, golden, tokenizer, flags):
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
  model = _bert(golden, tokenizer, tokens, shown["segments"])
  expected = np.concatenate(model.get_all_attention_probs())
  packed = zlib.decompress(base64.b64decode(shown["weights"]))
  weights = np.frombuffer(packed, "<u2").reshape(expected.shape) / 65535
  np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)
  scripts.fork(
    "visualize.py",
    "attention",
    "--text=The cat <sat>",
    "--text_b=It was late",
    f"--output_file={tmp_path / 'attention.npz'}",
    *flags,
  )
  numbers = np.load(tmp_path / "attention.npz")
  assert numbers["tokens"].tolist() == tokens
  assert numbers["segment_ids"].tolist() == shown["segments"]
  np.testing.assert_allclose(numbers["attention"], expected, rtol=0, atol=1e-6)
  layers, heads = expected.shape[:2]
  assert f"{len(tokens)} tokens, {layers} layers of {heads} heads" in out


def test_a_map_is_of_mean_vectors(golden, tokenizer):
  model = Model(golden.config, tokenizer, golden.checkpoint)
  found = visualize.mean_vectors(model, SENTENCES)
  # Words of the vocabulary, each a piece of its own.
  tokens = ["[CLS]", "the", "end", "[SEP]"]
  bert = _bert(golden, tokenizer, tokens, [0] * 4)
  expected = np.mean(bert.get_sequence_output()[0], axis=0)
  np.testing.assert_allclose(found[3], expected, rtol=0, atol=1e-5)


def test_labels_are_parted_from_sentences(tmp_path):
  path = tmp_path / "in.txt"
  path.write_bytes(b"pets\tthe cat\r\n\tno\tlabel\r\n\npets\ta dog")
  found = visualize.read_sentences(str(path), labeled=True)
  assert found == (["the cat", "no\tlabel", "a dog"], ["pets", "", "pets"])


@pytest.mark.parametrize(
  ("method", "extension", "start"),
  [("tsne", "PDF", b"%PDF-"), ("pca", "svg", b"<?xml")],
)
def test_embeddings(tmp_path, flags, method, extension, start):
  source, output = tmp_path / "in.txt", tmp_path / f"map.{extension}"
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
  assert output.read_bytes().startswith(start)


def test_a_page_does_not_replace_the_model(tmp_path, goldens, flags):
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, tmp_path)
  index = tmp_path / "bert_model.ckpt.index"
  command = f"attention --text=the --output_file={index}"
  mistake = command, f"--output_file={index}: {index} is an input"
  good = [*flags, f"--init_checkpoint={tmp_path}"]
  mistakes.check(mistake, "visualize.py", tmp_path, good)


MISTAKES = """
--text=a
  --command is required; pass attention or embeddings
attend --text=a
  attention|embeddings
attention --output_file=out.html
  --text is required
attention --text=LONG --output_file=out.html
  more than --max_seq_length=128
attention --text=cat --max_seq_length=129 --output_file=out.html
  128 positions
attention --text=cat --output_file=no/out.html
  no such folder no
attention --text=cat --output_file=.
  '.' is not a file
attention --text=cat
  --output_file is required
attention --text=cat --output_file=a.png
  a path that ends with .html or .npz
embeddings --input_file=none --output_file=map.png
  --input_file=none: no such file
embeddings --input_file=two.txt --output_file=map.png
  two.txt contains 2 sentences
embeddings --input_file=sentences.txt --output_file=map.png --labels
  sentences.txt:1: 'the cat sat' is not
embeddings --input_file=sentences.txt --output_file=sentences.txt
  is an input
embeddings --input_file=sentences.txt --output_file=e.jpg
  a path that ends with .png or .pdf or .svg
embeddings --input_file=sentences.txt --method=umap
  pca|tsne
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(tmp_path, flags, mistake):
  lines = "\n\n".join(SENTENCES) + "\n"
  (tmp_path / "sentences.txt").write_text(lines, "utf-8")
  (tmp_path / "two.txt").write_text("one\n \ntwo\n")
  names = {"cwd": tmp_path, "LONG": f"'{'cat ' * 99}'"}
  mistakes.check(mistake, "visualize.py", tmp_path, flags, **names)
