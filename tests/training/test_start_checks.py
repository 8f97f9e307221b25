"""Checks of a trained model's files against the flags."""

import json
import pathlib

import numpy as np
import pytest

import families
from bert.errors import UserError
from bert.models import checkpoints
from bert.training import start_checks

CONFIG = json.dumps({"do_lower_case": True})


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "bert_config.json").write_text(CONFIG)
  return tmp_path


def check(folder, **contents):
  names = {"vocab": "vocab.txt", "model": "other.model"}
  given = {names[kind]: content for kind, content in contents.items()}
  start_checks.check_reads_as_trained(
    {"bert_config.json": CONFIG, **given}, str(folder)
  )


@pytest.mark.parametrize("given", ["a\nb\n", "a\nb", b"a\r\nb\r\n"])
def test_the_same_vocabulary(folder, given):
  check(folder, vocab=given)  # The folder has none.
  (folder / "vocab.txt").write_text("a\nb\n")
  check(folder, vocab=given)
  check(folder)


@pytest.mark.parametrize("given", ["b\na\n", "a\n\nb\n", "a\nb\nc\n"])
def test_another_vocabulary(folder, given):
  (folder / "vocab.txt").write_text("a\nb\n")
  with pytest.raises(UserError, match=f"pass --vocab_file={folder}/vocab.txt"):
    check(folder, vocab=given)


def test_another_sentencepiece_model(folder):
  (folder / "mine.model").write_bytes(b"\0ab")
  check(folder, model=b"\0ab")
  for given in ({"model": b"\0ac"}, {"vocab": "a\nb\n"}):
    with pytest.raises(UserError, match=f"--spm_model_file={folder}/mine"):
      check(folder, **given)


def test_a_vocabulary_instead_of_word_pieces(folder):
  (folder / "vocab.txt").write_text("a\nb\n")
  with pytest.raises(UserError, match=f"pass --vocab_file={folder}/vocab.txt"):
    check(folder, model=b"\0ab")


def test_other_models_are_not_checked(folder):
  (folder / "bert_config.json").write_text("{}")
  (folder / "vocab.txt").write_text("a\n")
  check(folder, vocab="b\n")


@pytest.fixture
def write(golden, tmp_path):
  """Writes the golden weights, some of them changed; returns the prefix."""

  def write(drop="-", **changes):
    found = checkpoints.Checkpoint(golden.checkpoint)
    weights = {n: found[n] for n in found.shapes if not n.startswith(drop)}
    prefix = str(tmp_path / "new.ckpt")
    checkpoints.write_checkpoint(prefix, weights | changes)
    return prefix

  return write


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_checkpoint_of_a_training_that_diverged(golden, write, value):
  name = "bert/pooler/dense/bias"
  size = golden.config.hidden_size
  prefix = write(**{name: np.full([size], value, np.float32)})
  with pytest.raises(UserError, match=f"{prefix} gives {name} that"):
    start_checks.check_init_checkpoint(golden.config, {}, prefix)


@pytest.mark.parametrize(
  ("drop", "warns"), [("cls/predictions/", True), ("-", False)]
)
def test_a_missing_head_for_pretraining(golden, write, caplog, drop, warns):
  config = golden.config
  heads = {"output_weights": [2, config.hidden_size]}
  heads |= {
    "cls/predictions/output_bias": [config.vocab_size],
    "cls/seq_relationship/output_bias": [2],
  }
  caplog.set_level("WARNING", "absl")
  start_checks.check_init_checkpoint(config, heads, write(drop))
  message = "has no cls/predictions/output_bias for pre-training"
  assert (message in caplog.text) == warns


def test_another_tokenizer(folder):
  roberta, albert = (
    pathlib.Path(families.path(family), "tokenizer.json").read_bytes()
    for family in ("roberta", "albert")
  )
  config = json.dumps({"family": "roberta"})
  (folder / "bert_config.json").write_text(config)
  (folder / "tokenizer.json").write_bytes(roberta)
  given = {"bert_config.json": config, "tokenizer.json": roberta}
  start_checks.check_reads_as_trained(given, str(folder))
  for name, content in (("tokenizer.json", albert), ("vocab.txt", b"a\nb\n")):
    given = {"bert_config.json": CONFIG, name: content}
    with pytest.raises(UserError, match=f"--vocab_file={folder}/tokenizer"):
      start_checks.check_reads_as_trained(given, str(folder))
