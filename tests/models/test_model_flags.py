"""The model that the flags name."""

import json
import os

import pytest

import modeling
from bert.errors import UserError
from bert.flags import flag_table
from bert.flags.values import parse, table
from bert.models import model_flags

CONFIG = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2}


def flags_of(**values):
  """The flags of a model, without the checks of a script."""
  return parse(table(flag_table.MODEL), {"max_seq_length": 16, **values})


@pytest.mark.parametrize(
  ("values", "recorded"),
  [
    ({}, None),
    ({"do_lower_case": False}, False),
    ({"do_lower_case": True}, True),
  ],
)
def test_a_given_casing_is_recorded_without_a_vocabulary(values, recorded):
  flags = flags_of(**values)
  found = model_flags.release_files(flags, modeling.BertConfig(9))
  assert found.keys() == {"bert_config.json"}
  config = json.loads(found["bert_config.json"])
  assert config.get("do_lower_case") is recorded


@pytest.mark.parametrize(
  ("folder", "fields"),
  [("mine", {"do_lower_case": True}), ("uncased_L-12_H-768_A-12", {})],
)
def test_a_given_casing_is_checked_without_a_vocabulary(
  tmp_path, folder, fields
):
  path = tmp_path / folder / "bert_config.json"
  path.parent.mkdir()
  path.write_text(json.dumps({**CONFIG, **fields}))
  values = {
    "bert_config_file": path,
    "init_checkpoint": path.parent / "bert_model.ckpt",
  }
  assert model_flags.load_config(flags_of(**values), None).vocab_size == 9
  flags = flags_of(**values, do_lower_case=False)
  with pytest.raises(UserError, match=r"=False contradicts .*; pass "):
    model_flags.load_config(flags, None)


@pytest.mark.parametrize(
  ("folder", "fields", "given", "lower_cases"),
  [
    ("mine", {"do_lower_case": False}, {}, False),
    ("cased_L-12_H-768_A-12", {}, {}, False),
    ("uncased_L-12_H-768_A-12", {}, {}, True),
    ("mine", {}, {}, True),
    ("mine", {}, {"do_lower_case": False}, False),
  ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_recorded_casing_need_not_be_passed(
  tmp_path, folder, fields, given, lower_cases, whole
):
  """By the folder of the model, or by that of the vocabulary alone."""
  folder = tmp_path / folder
  folder.mkdir()
  (folder / "bert_config.json").write_text(json.dumps({**CONFIG, **fields}))
  (folder / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nhe\nHe\n")
  values = {"vocab_file": folder / "vocab.txt"}
  rows = table(flag_table.TEXT)
  if whole:
    values, rows = {"init_checkpoint": folder}, table(flag_table.MODEL)
  flags = parse(rows, {"max_seq_length": 16, **values, **given})
  tokenizer = model_flags.load_tokenizer(flags)
  assert tokenizer.tokenize("He") == ["he" if lower_cases else "He"]
  if whole:
    config = model_flags.load_config(flags, tokenizer)
    found = model_flags.release_files(flags, config)["bert_config.json"]
    assert json.loads(found)["do_lower_case"] is lower_cases
    flags = flags_of(**values, do_lower_case=not lower_cases)
    if fields or "_L" in folder.name:
      with pytest.raises(UserError, match="contradicts"):
        model_flags.load_config(flags, model_flags.load_tokenizer(flags))


@pytest.mark.parametrize("name", ["vocab_file", "bert_config_file"])
def test_a_pipe_is_refused_before_it_is_read(tmp_path, name):
  """Both files are read more than once."""
  paths = {n: tmp_path / n for n in ("vocab_file", "bert_config_file")}
  paths["vocab_file"].write_text("[UNK]\n[CLS]\n[SEP]\nhe\n")
  paths["bert_config_file"].write_text(json.dumps(CONFIG))
  paths[name].unlink()
  os.mkfifo(paths[name])
  flags = flags_of(**paths)
  with pytest.raises(UserError, match=f"^--{name}=.* is a pipe"):
    model_flags.load_config(flags, model_flags.load_tokenizer(flags))
