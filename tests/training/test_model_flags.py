"""The model that the flags name."""

import json

import pytest
from absl import flags

import modeling
from errors import UserError
from training import common_flags, flag_checks, model_flags

CONFIG = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2}


@pytest.fixture
def parse(monkeypatch):
  """A function that sets the flags of a model, from a command."""

  def parse(*command):
    values = flags.FlagValues()
    for module in (common_flags, flag_checks, model_flags):
      monkeypatch.setattr(module, "FLAGS", values)
    for name in ("vocab_file", "spm_model_file", "bert_config_file"):
      flags.DEFINE_string(name, None, "", flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, "", flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "", flag_values=values)
    flags.DEFINE_integer("max_seq_length", 16, "", flag_values=values)
    values(["", *command])

  return parse


@pytest.mark.parametrize(
  ("command", "recorded"),
  [
    ([], None),
    (["--do_lower_case=false"], False),
    (["--do_lower_case=true"], True),
  ],
)
def test_a_given_casing_is_recorded_without_a_vocabulary(
  parse, command, recorded
):
  parse(*command)
  found = model_flags.release_files(modeling.BertConfig(9))
  assert found.keys() == {"bert_config.json"}
  config = json.loads(found["bert_config.json"])
  assert config.get("do_lower_case") is recorded


@pytest.mark.parametrize(
  ("folder", "fields"),
  [("mine", {"do_lower_case": True}), ("uncased_L-12_H-768_A-12", {})],
)
def test_a_given_casing_is_checked_without_a_vocabulary(
  parse, tmp_path, folder, fields
):
  path = tmp_path / folder / "bert_config.json"
  path.parent.mkdir()
  path.write_text(json.dumps({**CONFIG, **fields}))
  command = (
    f"--bert_config_file={path}",
    f"--init_checkpoint={path.parent / 'bert_model.ckpt'}",
  )
  parse(*command)
  assert model_flags.load_config(None).vocab_size == 9
  parse(*command, "--do_lower_case=false")
  with pytest.raises(UserError, match=r"=False contradicts .*; pass "):
    model_flags.load_config(None)
