"""From folders and what is given instead of their files to a model."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

import families
from bert.data import downloads, vocabulary
from bert.errors import UserError
from bert.models import (
  checkpoints,
  huggingface_names,
  model_folder,
  run_weights,
)
from bert.models.resolve import Overrides, load_tokenizer, resolve

CONFIG = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = [*SPECIAL, "he", "she"]
LARGE = [*SPECIAL, "he", "He"]
UNCASED, CASED = "uncased_L-12_H-768_A-12", "cased_L-12_H-768_A-12"
CACHED = "models--me--cased_L-2_H-32/snapshots/0f1e"


def make(folder, pieces=SMALL, weights="bert_model.ckpt.index", **fields):
  """A folder of a model whose weights are never read."""
  folder.mkdir(parents=True, exist_ok=True)
  config = json.dumps({**CONFIG, **fields})
  (folder / "bert_config.json").write_text(config)
  if pieces:
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
  (folder / weights).touch()
  return folder


# The name of a folder, the fields of its configuration, its vocabulary, the
# casing that is given, whether text is lower-cased (or an error, which names
# the casing to pass), and what a warning says.
CASINGS = [
  ("mine", {}, SMALL, None, True, None),
  ("mine", {}, LARGE, None, False, "has capitals, so text is not lower-cased"),
  ("mine", {}, LARGE, True, True, "has capitals, but --do_lower_case is True"),
  ("mine", {}, LARGE, False, False, None),
  ("mine", {}, SMALL, False, False, "has no capitals, but --do_lower_case"),
  ("mine", {}, SMALL, True, True, None),
  ("mine", {}, [*SPECIAL, "\u4e2d", "<S>"], False, False, None),
  ("mine", {"do_lower_case": False}, SMALL, None, False, None),
  ("mine", {"do_lower_case": True}, LARGE, None, True, None),
  ("mine", {"do_lower_case": False}, SMALL, True, "False", None),
  ("mine", {"do_lower_case": True}, LARGE, False, "True", None),
  (UNCASED, {}, LARGE, None, True, "has capitals, but"),
  (CASED, {}, SMALL, None, False, "has no capitals, but"),
  (CASED, {}, LARGE, False, False, None),
  (CASED, {}, LARGE, True, "False", None),
  (UNCASED, {}, SMALL, False, "True", None),
  (UNCASED, {"do_lower_case": False}, SMALL, None, "True", None),
  (CACHED, {}, LARGE, None, False, None),
  (f"test--1/snapshots/{CASED}", {}, LARGE, None, False, None),
  ("mine", {"do_lower_case": "false"}, LARGE, None, "true or false", None),
]


@pytest.mark.parametrize(
  ("name", "fields", "pieces", "given", "lower_cases", "warning"), CASINGS
)
@pytest.mark.parametrize("way", ["folder", "prefix", "files", "here"])
def test_every_way_to_a_model_gives_one_casing(
  tmp_path, monkeypatch, caplog, way, name, fields, pieces, given, lower_cases,
  warning,
):  # fmt: skip
  monkeypatch.setattr("absl.logging._log_counter_per_token", {})
  folder = make(tmp_path / name, pieces, **fields)
  source, overrides = str(folder), Overrides(do_lower_case=given)
  if way == "here":
    monkeypatch.chdir(folder)
    source = "."
  elif way != "folder":
    source = str(folder / "bert_model.ckpt")
  if way == "files":
    paths = folder / "vocab.txt", None, folder / "bert_config.json"
    overrides = Overrides(*(path and str(path) for path in paths), given)
  if isinstance(lower_cases, str):
    with pytest.raises(UserError, match=lower_cases):
      resolve(source, overrides)
    return
  model = resolve(source, overrides)
  assert model.tokenizer.tokenize("HE") == ["he" if lower_cases else "[UNK]"]
  assert json.loads(model.config_json())["do_lower_case"] is lower_cases
  assert model.checkpoint.endswith("bert_model.ckpt")
  assert [r.getMessage() for r in caplog.records if warning is None] == []
  assert warning is None or warning in caplog.text
  # A vocabulary alone is read alike, by what is beside it.
  path = str(folder / "vocab.txt")
  tokenizer = load_tokenizer(Overrides(path, do_lower_case=given))
  assert tokenizer.basic_tokenizer.do_lower_case is lower_cases


@pytest.mark.parametrize("given", [None, False, True])
def test_a_given_casing_is_recorded_without_a_vocabulary(tmp_path, given):
  folder = make(tmp_path / "mine", None)
  overrides = Overrides(do_lower_case=given)
  model = resolve(str(folder), overrides, needs_tokenizer=False)
  assert model.tokenizer is None
  (content,) = model.contents().values()
  assert json.loads(content).get("do_lower_case") is given
  folder = make(tmp_path / CASED, None)
  if given:
    with pytest.raises(UserError, match=r"=True contradicts .* pass that"):
      resolve(str(folder), overrides, needs_tokenizer=False)


def test_a_vocabulary_may_have_a_few_capitals(tmp_path):
  """Which are a user's own, in place of unused pieces."""
  words = [f"word{number}" for number in range(200)]
  for capitals, lower_cases in ((1, True), (100, False)):
    pieces = [*SPECIAL, *words, *(f"W{number}" for number in range(capitals))]
    folder = make(tmp_path / str(capitals), pieces, vocab_size=999)
    tokenizer = resolve(str(folder)).tokenizer
    assert tokenizer.basic_tokenizer.do_lower_case == lower_cases


def _without(name):
  return lambda folder: (folder / name).unlink()


def _renamed(name):
  return lambda folder: (folder / "vocab.txt").rename(folder / name)


def _pipe(name):
  def change(folder):
    (folder / name).unlink()
    os.mkfifo(folder / name)

  return change


def _append(content):
  def change(folder):
    with open(folder / "vocab.txt", "ab") as file:
      file.write(content)

  return change


FILES = Overrides("vocab.txt", None, "bert_config.json")


@pytest.mark.parametrize(
  ("change", "overrides", "message"),
  [
    (_without("bert_config.json"), {}, "^mine contains no bert_config.json; p"),
    (_without("bert_model.ckpt.index"), {}, "^no checkpoint mine/bert_model"),
    (_without("vocab.txt"), {}, "^mine contains neither vocab.txt nor .* copy"),
    (_renamed("vocab.json"), {}, "has vocab.json, but no tokenizer.json; add"),
    (_renamed("sentencepiece.bpe.model"), {}, "AutoTokenizer.from_pretrained"),
    (_append(b"a\nb\nc\n"), {}, "^mine/vocab.txt has 10 entries, .* model"),
    (_append(b"caf\xe9\n"), {}, "vocab.txt:8: byte 41 is not UTF-8; convert"),
    (_without("vocab.txt"), FILES, "^--vocab_file=mine/vocab.txt: no such"),
    (_pipe("vocab.txt"), FILES, "^--vocab_file=mine/vocab.txt: .* is a pipe"),
    (_pipe("bert_config.json"), FILES, "^--bert_config_file=.* is a pipe"),
    (
      lambda folder: None,
      Overrides(bert_config_file="bert_config.json"),
      "^--vocab_file is required; pass",
    ),
    (
      lambda folder: make(folder, SPECIAL[:2]),
      {},
      r"^mine/vocab.txt has no piece \[CLS\]; pass the file that came",
    ),
  ],
)
def test_what_is_wrong_with_a_folder(
  tmp_path, monkeypatch, change, overrides, message
):
  monkeypatch.chdir(tmp_path)
  change(make(pathlib.Path("mine")))
  overrides = Overrides(*(path and f"mine/{path}" for path in overrides))
  with pytest.raises(UserError, match=message):
    resolve("mine", overrides)


@pytest.mark.parametrize(("size", "warns"), [(134, False), (135, True)])
def test_far_fewer_pieces_than_rows_are_warned_of(
  tmp_path, monkeypatch, caplog, size, warns
):
  monkeypatch.setattr("absl.logging._log_counter_per_token", {})
  resolve(str(make(tmp_path / "mine", vocab_size=size)))
  assert ("7 entries, far fewer than vocab_size=" in caplog.text) == warns


def test_the_weights_say_which_configuration_is_theirs(tmp_path):
  """A folder in Hugging Face's format may have ours beside it."""
  folder = make(tmp_path / "mine", weights="model.safetensors")
  (folder / "config.json").write_text(json.dumps(CONFIG))
  (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
  model = resolve(str(folder))
  assert model.config_file == str(folder / "config.json")
  assert model.config.hidden_act == "gelu_exact"
  assert not model.tokenizer.basic_tokenizer.do_lower_case
  (folder / "bert_model.ckpt.index").touch()
  assert resolve(str(folder)).config.hidden_act == "gelu"


def test_a_stopped_training_has_the_files_that_it_began_with(tmp_path):
  start = make(tmp_path / "start", do_lower_case=True)
  stopped = tmp_path / "stopped"
  stopped.mkdir()
  (stopped / "model.ckpt-3.index").touch()
  overrides = Overrides(init_checkpoint=str(start))
  model = resolve(str(stopped), overrides)
  assert model.checkpoint == str(stopped / "model.ckpt-3")
  assert model.folder == str(stopped)
  assert model.vocab_file == str(start / "vocab.txt")
  assert model.flags() == {
    "vocab_file": str(start / "vocab.txt"),
    "spm_model_file": None,
    "bert_config_file": str(start / "bert_config.json"),
    "do_lower_case": True,
  }


def test_a_finished_training_means_its_result(tmp_path, release):
  """Not the last of the checkpoints that training left beside it."""
  folder = shutil.copytree(release, tmp_path / "trained")
  step = {"global_step": np.int64(3)}
  checkpoints.write_checkpoint(str(folder / "model.ckpt-3"), step)
  assert resolve(str(folder)).checkpoint == str(folder / "bert_model.ckpt")


def test_a_finished_training_comes_before_what_it_began_with(tmp_path, release):
  """As it does as long as the training's checkpoints are there."""
  initial = str(release / "bert_model.ckpt")
  for folder, expected in ((tmp_path, initial), (release, initial)):
    assert run_weights.trained_weights(str(folder), initial) == expected
  for given in (None, "other/bert_model.ckpt"):
    assert run_weights.trained_weights(str(release), given) == initial


def test_the_files_that_a_model_is_read_from(tmp_path, release):
  folder = shutil.copytree(release, tmp_path / "model")
  (folder / "x.model").touch()
  (folder / "answers.jsonl").touch()
  names = {path.rpartition("/")[2] for path in model_folder.input_files(folder)}
  assert "answers.jsonl" not in names
  others = {"answers.jsonl", "outputs.npz"}
  expected = {path.name for path in folder.iterdir()} - others
  assert expected <= names


@pytest.mark.parametrize("content", ["{}\nhe\n", "{}\nhe", "{}\r\nhe\r\n\n"])
def test_the_vocabulary_of_a_trained_model(tmp_path, content):
  """Whatever ends its lines; that of a release may have been edited."""
  trained = make(tmp_path / "trained", [*SPECIAL, "he"], do_lower_case=True)
  release = make(tmp_path / "release", [*SPECIAL, "he"])
  same, other = tmp_path / "same.txt", tmp_path / "other.txt"
  same.write_bytes(content.format("\n".join(SPECIAL)).encode())
  other.write_bytes(same.read_bytes().replace(b"he", b"the"))
  assert resolve(str(trained), Overrides(str(same))).vocab_file == str(same)
  resolve(str(release), Overrides(str(other)))
  resolve(str(trained), Overrides(str(other)), is_start=True)
  wanted = f"another vocabulary; pass --vocab_file={trained}/vocab.txt"
  with pytest.raises(UserError, match=wanted):
    resolve(str(trained), Overrides(str(other)))


def test_another_tokenizer_than_that_of_a_trained_model(tmp_path):
  roberta, albert = map(families.path, ("roberta", "albert"))
  folder = make(tmp_path / "mine", None, family="roberta", vocab_size=10**6)
  shutil.copy(pathlib.Path(roberta, "tokenizer.json"), folder)
  words = make(tmp_path / "words") / "vocab.txt"
  own = Overrides(f"{roberta}/tokenizer.json")
  assert resolve(str(folder), own).tokenizer.vocab
  for path in (f"{albert}/tokenizer.json", str(words)):
    with pytest.raises(UserError, match=f"--vocab_file={folder}/tokenizer"):
      resolve(str(folder), Overrides(path))


def test_a_sentencepiece_model_beside_the_weights(tmp_path, caplog):
  folder = make(tmp_path / "mine", None, vocab_size=200, do_lower_case=False)
  paths = folder / "mine.model", tmp_path / "other.spm"
  for word, path in zip(("ab", "cd"), paths, strict=True):
    path.write_bytes(vocabulary.learn_sentencepiece({word: 9}, 199, "bpe"))
  model = resolve(str(folder))
  assert model.flags()["spm_model_file"] == str(paths[0])
  assert model.contents().keys() == {"bert_config.json", "mine.model"}
  with pytest.raises(UserError, match=f"pass --spm_model_file={paths[0]}"):
    resolve(str(folder), Overrides("v.txt", str(paths[1])))
  assert "--vocab_file=v.txt is not used; omit it or --spm_model" in caplog.text


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "tf_model.h5", None])
def test_another_kind_of_model_is_refused_before_its_weights(tmp_path, weights):
  (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
  sources = [str(tmp_path)]
  if weights:
    (tmp_path / weights).touch()
    sources.append(str(tmp_path / weights))
  for source in sources:
    for find in (resolve, checkpoints.find_checkpoint):
      with pytest.raises(UserError, match=r"config.json: model_type='gpt2' is"):
        find(source)


def test_the_types_of_models_are_those_that_have_names():
  assert set(downloads.MODEL_TYPES) == set(huggingface_names.FAMILIES)
