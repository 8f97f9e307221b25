"""Students that keep some layers, or some word pieces, of a model."""

import json

import numpy as np
import pytest
import scripts
import task_folders

import bert
from bert.errors import UserError
from bert.export import huggingface, smaller_model
from bert.training import checkpoints, model_folder


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, golden, goldens):
  """A release with two layers, 1,001 pieces and the pre-training heads."""
  folder = tmp_path_factory.mktemp("teacher")
  return task_folders.write(folder, "", golden, goldens)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  path = tmp_path_factory.mktemp("corpus") / "text.txt"
  lines = ["Jim Henson was a puppeteer.", "", "the north \u2603 of the city"]
  path.write_text("\n".join(lines), encoding="utf-8")
  return path


def _weights(folder):
  return checkpoints.Checkpoint(checkpoints.find_checkpoint(str(folder)))


def test_layers_are_kept_in_order(teacher, tmp_path):
  smaller_model.write_smaller(teacher, str(tmp_path / "new"), ["1"])
  before, after = map(_weights, (teacher, tmp_path / "new"))
  assert model_folder.load_config(str(tmp_path / "new")).num_hidden_layers == 1
  assert all("layer_1" not in name for name in after.shapes)
  for name in after.shapes:
    source = name.replace("layer_0", "layer_1")
    np.testing.assert_array_equal(after[name], before[source])


def test_the_lowest_layers_compute_as_they_did(teacher, tmp_path):
  text = ["the north of the city", "Jim"]
  smaller_model.write_smaller(teacher, str(tmp_path / "new"), ["0"])
  whole = bert.load(teacher, pooling="mean", layers=(0,))
  lowest = bert.load(str(tmp_path / "new"), pooling="mean")
  for a, b in zip(whole(text), lowest(text), strict=True):
    np.testing.assert_allclose(a["vector"], b["vector"], atol=1e-6)


def test_a_text_of_the_corpus_gives_the_same_numbers(teacher, corpus, tmp_path):
  smaller_model.write_smaller(
    teacher, str(tmp_path / "new"), corpus=[str(corpus)]
  )
  old, new = bert.load(teacher), bert.load(str(tmp_path / "new"))
  size = new.config.vocab_size
  assert size == len(new.task.tokenizer.vocab) < old.config.vocab_size / 2
  lines = corpus.read_text("utf-8").split("\n")
  for line in lines:
    tokens = old.task.tokenizer.tokenize(line)
    assert new.task.tokenizer.tokenize(line) == tokens
  for a, b in zip(old(lines), new(lines), strict=True):
    np.testing.assert_array_equal(a["vector"], b["vector"])
  # Of the masked-word head, the rows of the pieces that are left.
  before, after = map(_weights, (teacher, tmp_path / "new"))
  ids = [old.task.tokenizer.vocab[piece] for piece in new.task.tokenizer.vocab]
  name = "cls/predictions/output_bias"
  np.testing.assert_array_equal(after[name], before[name][ids])
  masked = [bert.load(m.folder, task="fill_mask", top_k=3) for m in (old, new)]
  assert all(model("the [MASK] of the city") for model in masked)


def test_other_words_of_its_characters_are_known(teacher, corpus, tmp_path):
  smaller_model.write_smaller(
    teacher, str(tmp_path / "new"), corpus=[str(corpus)]
  )
  tokenizer = bert.load(str(tmp_path / "new")).task.tokenizer
  assert "[UNK]" not in tokenizer.tokenize("hint")
  assert tokenizer.tokenize("hint") != ["hint"]


@pytest.mark.parametrize("layers", ["", "10", "00", "02", "a"])
def test_layers_that_are_not_there(teacher, tmp_path, layers):
  with pytest.raises(UserError, match=r"has 2 layers .*; pass some, from 0"):
    smaller_model.write_smaller(teacher, str(tmp_path / "new"), list(layers))
  assert not (tmp_path / "new").exists()


def test_layers_that_share_weights_stay(goldens, tmp_path):
  albert = str(goldens / "variants" / "albert" / "Model")
  huggingface.to_tensorflow(albert, str(tmp_path / "albert"))
  with pytest.raises(UserError, match="has 0 layers with weights of its own"):
    smaller_model.write_smaller(
      str(tmp_path / "albert"), str(tmp_path / "new"), ["0"]
    )


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_other_families_with_word_pieces(goldens, corpus, tmp_path, family):
  folder = str(goldens / "variants" / family / "Model")
  huggingface.to_tensorflow(folder, str(tmp_path / "whole"))
  smaller_model.write_smaller(
    str(tmp_path / "whole"), str(tmp_path / "new"), corpus=[str(corpus)]
  )
  old, new = bert.load(folder), bert.load(tmp_path / "new")
  lines = corpus.read_text("utf-8").split("\n")
  for a, b in zip(old(lines), new(lines), strict=True):
    np.testing.assert_allclose(a["vector"], b["vector"], atol=1e-6)


def test_a_classifier_in_the_other_format(
  golden, goldens, corpus, tmp_path_factory
):
  folder = tmp_path_factory.mktemp("classifier")
  (folder / "a").mkdir()
  teacher = task_folders.write(folder / "a", "classification", golden, goldens)
  huggingface.to_huggingface(teacher, str(folder / "b"))
  scripts.fork(
    "convert_checkpoint.py",
    "--to=huggingface",
    "--keep_layers=1",
    f"--keep_vocabulary={corpus}",
    f"--model_dir={folder / 'b'}",
    f"--output_dir={folder / 'c'}",
  )
  fields = json.loads((folder / "c" / "config.json").read_text())
  assert fields["num_hidden_layers"] == 1
  model = bert.load(str(folder / "c"))
  assert model.labels == bert.load(teacher).labels
  assert len(model("Jim Henson")["probabilities"]) == len(model.labels)
