"""Configurations in Hugging Face's format, and folders that hold them."""

import json
import pathlib
import re

import pytest

from bert.errors import UserError
from bert.models.resolve import Overrides, load_tokenizer
from bert.models.huggingface_config import read_config, read_head, their_fields

FIELDS = {
  "architectures": ["BertForMaskedLM"],
  "attention_probs_dropout_prob": 0.1,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "hidden_size": 32,
  "initializer_range": 0.02,
  "intermediate_size": 64,
  "layer_norm_eps": 1e-12,
  "max_position_embeddings": 128,
  "model_type": "bert",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "pad_token_id": 0,
  "pooler_type": "first_token_transform",
  "transformers_version": "5.23.0",
  "type_vocab_size": 2,
  "vocab_size": 1001,
}


@pytest.fixture
def read(tmp_path):
  """A function: the BertConfig of changed fields."""

  def read(name="config.json", **changes):
    fields = {**FIELDS, **changes}
    fields = {name: v for name, v in fields.items() if v is not None}
    (tmp_path / name).write_text(json.dumps(fields))
    return read_config(str(tmp_path / name))

  return read


def test_sizes_and_extra_keys_are_kept_and_theirs_are_not(read):
  theirs = (
    *("architectures", "layer_norm_eps", "model_type", "pad_token_id"),
    "transformers_version",
  )
  wanted = {k: v for k, v in FIELDS.items() if k not in theirs}
  assert read().to_dict() == wanted | {"hidden_act": "gelu_exact"}


@pytest.mark.parametrize(
  ("theirs", "ours"),
  [
    (None, "gelu_exact"),
    ("gelu", "gelu_exact"),
    ("gelu_new", "gelu"),
    ("gelu_pytorch_tanh", "gelu"),
    ("relu", "relu"),
  ],
)
def test_activations_are_translated(read, theirs, ours):
  assert read(hidden_act=theirs).hidden_act == ours


def test_their_defaults_apply(read):
  config = read(type_vocab_size=None, vocab_size=None)
  assert (config.type_vocab_size, config.vocab_size) == (2, 30522)


def test_the_documented_electra_is_their_default(tmp_path):
  """ELECTRA-Small, whose original code has the exact gelu."""
  text = pathlib.Path(__file__).parents[2].joinpath("docs/convert.md")
  (block,) = re.findall('[{]\n  "family"[^}]*}', text.read_text("utf-8"))
  ours, theirs = tmp_path / "bert_config.json", tmp_path / "config.json"
  ours.write_text(block)
  theirs.write_text('{"model_type": "electra"}')
  assert read_config(str(ours)).to_dict() == read_config(str(theirs)).to_dict()


def test_a_file_of_their_name_is_theirs(read, tmp_path):
  """Old ones have no model_type; the rest is equal to the original's."""
  tokenizer = {"normalizer": {"type": "BertNormalizer", "lowercase": False}}
  (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
  names = ("model_type", "architectures", "transformers_version")
  config = read(**dict.fromkeys(names))
  assert config.hidden_act == "gelu_exact"
  assert config.do_lower_case is False
  config = read(**dict.fromkeys(names), layer_norm_eps=1e-5)
  assert config.layer_norm_eps == 1e-5
  nested = '{"model_type": "bert", "x": ' + "[" * 500 + "]" * 500 + "}"
  for text in ("[]", "[" * 100_000, nested):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json is not a valid model"):
      read_config(str(tmp_path / "config.json"))


def test_an_original_configuration_is_read_as_it_is(read, goldens):
  path = goldens / "bert_config.json"
  assert read_config(str(path)).to_dict() == json.loads(path.read_text())


@pytest.mark.parametrize(
  ("changes", "wanted"),
  [
    (
      {"model_type": "gpt2"},
      "model_type='gpt2'.*=bert or distilbert or roberta ",
    ),
    (
      {"model_type": "albert", "inner_group_num": 2},
      "inner_group_num=2 is not",
    ),
    ({"position_embedding_type": "relative_key"}, "pass a model with"),
    ({"is_decoder": True}, "is_decoder=True is not supported"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
    ({"hidden_act": "silu"}, "hidden_act='silu' is not supported; .*=gelu or"),
    ({"hidden_size": "32"}, "hidden_size='32' is not a positive integer"),
    ({"num_attention_heads": 5}, "not a multiple"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000 is not a"),
    ({"vocab_size": 2**70}, f"vocab_size={2**70} is not a positive integer b"),
  ],
)
def test_other_models_are_an_error(read, changes, wanted):
  with pytest.raises(UserError, match=rf"config\.json.*{wanted}"):
    read(**changes)


def test_an_activation_without_a_name_of_theirs(read):
  config = read()
  config.hidden_act = "silu"
  with pytest.raises(UserError, match=r"'silu' .*/huggingface_config\.py"):
    their_fields(config)


def test_the_tokenizer_tells_the_casing(read, tmp_path, caplog):
  assert not hasattr(read(), "do_lower_case")
  settings = tmp_path / "tokenizer_config.json"
  settings.write_text('{"do_lower_case": "false"}')
  with pytest.raises(UserError, match=r"tokenizer_config\.json .* true or fa"):
    read()
  settings.write_text('{"do_lower_case": null}')
  assert not hasattr(read(), "do_lower_case")
  tokenizer = {"normalizer": {"type": "BertNormalizer", "lowercase": False}}
  (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
  assert read().do_lower_case is False
  settings.write_text('{"do_lower_case": true}')
  assert read().do_lower_case is True
  assert not caplog.records
  settings.write_text('{"do_lower_case": true, "strip_accents": false}')
  with pytest.raises(UserError, match="strip_accents=False is not supported"):
    read()
  settings.write_text("[]")
  with pytest.raises(UserError, match=r"config\.json is damaged"):
    read()


@pytest.mark.parametrize(
  ("lowercase", "changes", "problem"),
  [
    (True, {}, None),
    (True, {"strip_accents": None, "handle_chinese_chars": True}, None),
    (True, {"strip_accents": True}, None),
    (False, {"strip_accents": False}, None),
    (True, {"strip_accents": False}, "strip_accents=False"),
    (False, {"strip_accents": True}, "strip_accents=True"),
    (True, {"handle_chinese_chars": False}, "handle_chinese_chars=False"),
  ],
)
@pytest.mark.parametrize("is_in_sequence", [False, True])
def test_normalizers_of_tokenizer_json_are_checked(
  read, tmp_path, lowercase, changes, problem, is_in_sequence
):
  normalizer = {"type": "BertNormalizer", "lowercase": lowercase, **changes}
  if is_in_sequence:
    normalizer = {"type": "Sequence", "normalizers": [normalizer]}
  text = json.dumps({"normalizer": normalizer})
  (tmp_path / "tokenizer.json").write_text(text)
  if not problem:
    assert read().do_lower_case is lowercase
    return
  message = rf"tokenizer\.json: {problem} is not supported; pass a model with"
  with pytest.raises(UserError, match=message):
    read()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_other_tokenizers_are_an_error(read, tmp_path, file):
  for name, value in (
    ("tokenizer_class", "BertJapaneseTokenizer"),
    ("tokenizer_class", []),
    ("word_tokenizer_type", "mecab"),
    ("do_basic_tokenize", False),
  ):
    settings = {name: value}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    settings = settings if file == "config.json" else {}
    wanted = rf"{re.escape(file)}: {name}=.* is not supported; pass a model"
    with pytest.raises(UserError, match=wanted):
      read(**settings)


@pytest.mark.parametrize(
  "name",
  [
    *(None, "BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"),
    "TokenizersBackend",
  ],
)
def test_tokenizers_that_split_as_ours(read, tmp_path, name):
  settings = {"tokenizer_class": name, "word_tokenizer_type": "basic"}
  settings |= {"do_basic_tokenize": True, "do_lower_case": False}
  (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
  assert read(tokenizer_class=name).do_lower_case is False


GENERIC = "PreTrainedTokenizerFast"
BERT = {"type": "BertNormalizer", "lowercase": True}
LOWER = [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]


@pytest.fixture
def read_generic(read, tmp_path):
  """A function: the BertConfig with a changed tokenizer.json."""

  def read_generic(tokenizer_class, **changes):
    settings = {"tokenizer_class": tokenizer_class, "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = {
      "normalizer": BERT,
      "pre_tokenizer": {"type": "BertPreTokenizer"},
      "model": {"continuing_subword_prefix": "##"},
      **changes,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return read()

  return read_generic


@pytest.mark.parametrize(
  ("normalizer", "wanted"),
  [
    (BERT, True),
    ({**BERT, "lowercase": False}, False),
    ({"type": "Sequence", "normalizers": LOWER}, True),
    ({"type": "Sequence", "normalizers": [{"type": "NFC"}]}, False),
    ({"type": "Sequence", "normalizers": [{"type": "NFC"}, BERT]}, True),
  ],
)
def test_a_generic_tokenizer_has_the_casing_of_its_file(
  read_generic, normalizer, wanted
):
  assert read_generic(GENERIC, normalizer=normalizer).do_lower_case is wanted


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("pre_tokenizer", {"type": "WhitespaceSplit"}),
    ("pre_tokenizer", None),
    ("normalizer", None),
    ("normalizer", {"type": "Lowercase"}),
    ("normalizer", {"type": "Sequence", "normalizers": LOWER[:2]}),
    ("normalizer", {"type": "Sequence", "normalizers": LOWER[::2]}),
    ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Replace"}]}),
    ("model", {"continuing_subword_prefix": "@@"}),
  ],
)
def test_a_generic_tokenizer_that_splits_otherwise_is_an_error(
  read_generic, field, value
):
  shown = "continuing_subword_prefix" if field == "model" else field
  with pytest.raises(
    UserError, match=rf"r\.json: {shown}=.* is not supported;"
  ):
    read_generic(GENERIC, **{field: value})
  # This class has settings, in tokenizer_config.json.
  assert read_generic("BertTokenizer", **{field: value}).do_lower_case is True


def test_the_head_has_its_labels(read, tmp_path):
  labels = {"1": "good", "0": "bad"}
  read(id2label=labels, problem_type="single_label_classification")
  head = read_head(str(tmp_path))
  assert head == (
    "BertForMaskedLM",
    ["bad", "good"],
    "single_label_classification",
  )
  read()
  assert read_head(str(tmp_path)).labels == ["LABEL_0", "LABEL_1"]
  read(id2label={"0": 1, "1": 2})
  assert read_head(str(tmp_path)).labels == ["1", "2"]


@pytest.mark.parametrize(
  ("fields", "reason"),
  [
    ({"id2label": ["a"]}, "id2label is .*, not an object"),
    ({"id2label": {"1": "a"}}, "the keys of id2label are not 0, 1"),
    ({"num_labels": "2"}, 'num_labels is "2", not a whole number'),
    ({"num_labels": 10**9}, "num_labels is 1000000000"),
    (
      {"architectures": "Bert"},
      'architectures is "Bert", not a list of strings',
    ),
    ({"architectures": [1]}, "architectures is .1., not a list of strings"),
  ],
)
def test_a_head_of_wrong_types(tmp_path, fields, reason):
  path = tmp_path / "config.json"
  path.write_text(json.dumps({"model_type": "bert", **fields}))
  with pytest.raises(UserError, match=rf"config\.json is damaged \({reason}"):
    read_head(str(tmp_path))


def test_the_vocabulary_may_be_in_tokenizer_json(tmp_path):
  path = tmp_path / "tokenizer.json"
  vocab = {"b": 4, "[CLS]": 1, "[UNK]": 0, "[SEP]": 2, "a": 3}
  path.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": vocab}}))
  given = Overrides(vocab_file=str(path), do_lower_case=True)
  tokenizer = load_tokenizer(given)
  assert list(tokenizer.vocab) == ["[UNK]", "[CLS]", "[SEP]", "a", "b"]
  path.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab}}))
  with pytest.raises(UserError, match=r"is no tokenizer that .* reads \("):
    load_tokenizer(given)
  for model in (
    {"type": "WordPiece", "vocab": {**vocab, "a": 7}},
    {"type": "WordPiece", "vocab": [["a", 0.5]]},
    {"type": "WordPiece", "vocab": {**vocab, "a": float("inf")}},
    None,
  ):
    path.write_text(json.dumps({"model": model}))
    with pytest.raises(UserError, match="has no WordPiece vocabulary; pass"):
      load_tokenizer(given)
  path.write_text("[" * 100_000)
  with pytest.raises(UserError, match="has no WordPiece vocabulary; pass"):
    load_tokenizer(given)


@pytest.mark.parametrize("file", ["tokenizer.json", "added_tokens.json"])
@pytest.mark.parametrize("has_vocab_txt", [True, False])
def test_tokens_beyond_the_vocabulary_are_an_error(
  read, tmp_path, file, has_vocab_txt
):
  """They would be split here, and are not there."""
  pieces = ["[UNK]", "the", "[MASK]"]
  if has_vocab_txt:
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
  vocab = {piece: index for index, piece in enumerate(pieces)}

  def write(tokens):
    content = {"model": {"vocab": vocab}}
    if file == "tokenizer.json":
      content["added_tokens"] = [{"id": 2, "content": t} for t in tokens]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    if file == "added_tokens.json":
      content = {token: index for index, token in enumerate(tokens)}
      (tmp_path / file).write_text(json.dumps(content))

  write(["[MASK]"])
  read()
  write(["[MASK]", "covid19", "other"])
  wanted = rf"{file}: the added token 'covid19' is not in .*\[unused\.\.\.\]"
  with pytest.raises(UserError, match=wanted):
    read()
