"""Folders of models: which checkpoint, tokenizer and casing they mean."""

import json
import shutil

import numpy as np
import pytest
from absl import logging

from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import parse, table
from bert.models import checkpoints, model_flags, model_folder


@pytest.mark.parametrize(("size", "warns"), [(1128, False), (1132, True)])
def test_a_vocabulary_of_another_model_is_named(
  tmp_path, release, monkeypatch, size, warns
):
  found = []
  monkeypatch.setattr(
    logging, "log_first_n", lambda level, text, n, *v: found.append(text % v)
  )
  folder = tmp_path / "model"
  shutil.copytree(release, folder)
  config = folder / "bert_config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps({**fields, "vocab_size": size}))
  model = model_folder.find_model(str(folder))
  assert len(model.tokenizer.vocab) == 1001
  model_folder.check_vocabulary(model)
  assert ["1001 entries, far fewer than" in text for text in found] == (
    [True] if warns else []
  )


def test_a_finished_training_means_its_result(tmp_path, release):
  """Not the last of the checkpoints that training left beside it."""
  folder = tmp_path / "trained"
  shutil.copytree(release, folder)
  checkpoints.write_checkpoint(
    str(folder / "model.ckpt-3"), {"global_step": np.int64(3)}
  )
  found = model_folder.find_model(str(folder)).checkpoint
  assert found == str(folder / "bert_model.ckpt")


def test_a_finished_training_comes_before_what_it_began_with(tmp_path, release):
  """As it does as long as the training's checkpoints are there."""
  initial = str(release / "bert_model.ckpt")
  for folder, expected in ((tmp_path, initial), (release, initial)):
    assert model_folder.initial_weights(str(folder), initial) == expected
  for given in (None, "other/bert_model.ckpt"):
    assert model_folder.initial_weights(str(release), given) == initial


def test_a_trained_folder_says_its_casing(tmp_path, release):
  folder = tmp_path / "trained"
  shutil.copytree(release, folder)
  config = json.loads((folder / "bert_config.json").read_text())
  (folder / "bert_config.json").write_text(
    json.dumps({**config, "do_lower_case": False})
  )
  tokenizer = model_folder.find_model(str(folder)).tokenizer
  assert not tokenizer.basic_tokenizer.do_lower_case
  with pytest.raises(UserError, match=r"=True contradicts .* pass that"):
    model_folder.find_model(str(folder), True)


def test_a_vocabulary_tells_the_casing(tmp_path, release):
  """Unless it has only a few pieces of the user's own with capitals."""
  words = [f"word{number}" for number in range(200)]
  for capitals, lower_cases in ((0, True), (1, True), (100, False)):
    folder = tmp_path / f"{capitals} capitals"
    shutil.copytree(release, folder)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    pieces += [f"Word{number}" for number in range(capitals)]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = model_folder.find_model(str(folder)).tokenizer
    assert tokenizer.basic_tokenizer.do_lower_case == lower_cases


def test_the_weights_say_which_configuration_is_theirs(tmp_path, release):
  """A folder in Hugging Face's format may have ours beside it."""
  shutil.copy(release / "vocab.txt", tmp_path)
  fields = json.loads((release / "bert_config.json").read_text())
  for name in ("bert_config.json", "config.json"):
    (tmp_path / name).write_text(json.dumps(fields))
  (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
  (tmp_path / "model.safetensors").touch()
  model = model_folder.find_model(str(tmp_path))
  assert model.config.hidden_act == "gelu_exact"
  assert not model.tokenizer.basic_tokenizer.do_lower_case
  given = parse(table(flag_table.MODEL), {"init_checkpoint": tmp_path})
  assert model_flags.bert_config_file(given) == str(tmp_path / "config.json")
  (tmp_path / "bert_model.ckpt.index").touch()
  assert model_folder.load_config(str(tmp_path)).hidden_act == "gelu"


def test_a_vocabulary_is_utf8(tmp_path, release):
  """Bytes that are left out would make two pieces one."""
  folder = tmp_path / "model"
  shutil.copytree(release, folder)
  content = (folder / "vocab.txt").read_bytes()
  (folder / "vocab.txt").write_bytes(content + b"caf\xe9\n")
  lines, place = content.count(b"\n") + 1, len(content) + 3
  wanted = f"vocab.txt:{lines}: byte {place} is not UTF-8; convert the file"
  with pytest.raises(UserError, match=wanted):
    model_folder.find_model(str(folder))


@pytest.mark.parametrize("name", ["vocab.json", "sentencepiece.bpe.model"])
def test_a_tokenizer_that_only_transformers_reads(tmp_path, release, name):
  folder = tmp_path / "model"
  shutil.copytree(release, folder)
  (folder / "vocab.txt").rename(folder / name)
  wanted = f"has {name}, but no tokenizer.json.*AutoTokenizer.from_pretr"
  with pytest.raises(UserError, match=wanted):
    model_folder.find_model(str(folder), do_lower_case=True)
  flags = parse(table(flag_table.MODEL), {"init_checkpoint": folder})
  with pytest.raises(UserError, match=wanted):
    model_flags.load_tokenizer(flags)


def test_a_released_folders_name_says_its_casing(tmp_path, release):
  for name, lower_cases in (
    ("cased_L-12_H-768_A-12", False),
    ("uncased_L-12_H-768_A-12", True),
    ("models--me--cased_L-2_H-32/snapshots/0f1e", False),
    ("test--1/snapshots/cased_L-2_H-32", False),
    ("mine", True),
  ):
    folder = tmp_path / name
    shutil.copytree(release, folder)
    tokenizer = model_folder.find_model(str(folder)).tokenizer
    assert tokenizer.basic_tokenizer.do_lower_case == lower_cases
    found = model_folder.find_model(str(folder), lower_cases)
    assert found.tokenizer.basic_tokenizer.do_lower_case == lower_cases
    if name != "mine":
      with pytest.raises(ValueError, match=f"case={lower_cases}; pass that$"):
        model_folder.find_model(str(folder), not lower_cases)


def test_a_released_folder_has_its_name_wherever_one_stands(
  tmp_path, release, monkeypatch
):
  folder = tmp_path / "cased_L-12_H-768_A-12"
  shutil.copytree(release, folder)
  monkeypatch.chdir(folder)
  tokenizer = model_folder.find_model(".").tokenizer
  assert not tokenizer.basic_tokenizer.do_lower_case


def test_the_files_that_a_model_is_read_from(tmp_path, release):
  folder = shutil.copytree(release, tmp_path / "model")
  (folder / "x.model").touch()
  (folder / "answers.jsonl").touch()
  names = {path.rpartition("/")[2] for path in model_folder.input_files(folder)}
  assert "answers.jsonl" not in names
  others = {"answers.jsonl", "outputs.npz"}
  expected = {path.name for path in folder.iterdir()} - others
  assert expected <= names
