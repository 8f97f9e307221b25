"""Models in Hugging Face's format: there, back, and asked directly."""

import hashlib
import json
import re

import numpy as np
import pytest
from safetensors import numpy as safetensors

import golden_classifier
from bert import layers
import tokenization
from bert.errors import UserError
from bert.export import huggingface, saved_model
from bert.tasks import classification, multiple_choice, pretraining, squad_model
from bert.tasks import tagging
from bert.tasks import labels as label_types
from bert.tasks.classifier import Classifier
from bert.tasks.find_task import find_task
from bert.tasks.squad import ReadingSettings
from bert.training import checkpoints, model_folder

NAMES = ["O", "B-PER", "I-PER"]


def _hashes(folder):
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in folder.iterdir()
  }


@pytest.fixture(scope="module")
def write(tmp_path_factory, golden, goldens):
  """A function: a model folder of the golden encoder with a head."""
  weights = checkpoints.Checkpoint(golden.checkpoint)

  def write(head, assets, pretrained=False):
    values = {
      name: weights[name]
      for name in weights.shapes
      if pretrained or name.startswith("bert/")
    }
    if assets:
      values["global_step"] = np.int64(12345)
    draw = np.random.default_rng(2).normal
    for name, shape in head.items():
      values[name] = draw(size=shape).astype(np.float32)
    config = golden.config.to_dict() | {"do_lower_case": True}
    config["pooler_type"] = "first_token_transform"
    contents = {
      "bert_config.json": type(golden.config)
      .from_dict(config)
      .to_json_string(),
      "vocab.txt": (goldens / "vocab.txt").read_bytes(),
      **assets,
    }
    folder = tmp_path_factory.mktemp("model")
    checkpoints.write_release(str(folder), values, contents)
    return folder

  return write


def _heads():
  reading = classification.Reading(64, "mean_windows", True)
  return {
    "BertModel": ({}, {}),
    "BertForMaskedLM": ({}, {}),
    "BertForPreTraining": ({}, {}),
    "BertForSequenceClassification": (
      layers.output_shapes(32, 3),
      classification.assets(label_types.Multilabel(NAMES), reading),
    ),
    "BertForTokenClassification": (
      layers.output_shapes(32, 3),
      tagging.assets(NAMES, "IOB2", tagging.Reading(64)),
    ),
    "BertForQuestionAnswering": (
      squad_model.variable_shapes(type("", (), {"hidden_size": 32})),
      squad_model.assets(ReadingSettings(96, 24, 32)),
    ),
    "BertForMultipleChoice": (
      layers.output_shapes(32, 1),
      multiple_choice.assets(48),
    ),
  }


@pytest.mark.parametrize("architecture", _heads())
def test_a_round_trip_gives_the_same_bytes(
  write, tmp_path, golden, architecture
):
  head, assets = _heads()[architecture]
  if architecture == "BertForMaskedLM":
    head = pretraining.variable_shapes(golden.config, False)
  model = write(head, assets, architecture == "BertForPreTraining")
  there, back, again = (tmp_path / name for name in ("there", "back", "again"))
  assert huggingface.to_huggingface(str(model), str(there)) == architecture
  fields = json.loads((there / "config.json").read_text())
  assert fields["architectures"] == [architecture]
  assert fields["hidden_act"] == "gelu_new"
  huggingface.to_tensorflow(str(there), str(back))
  assert _hashes(back) == _hashes(model)
  huggingface.to_huggingface(str(back), str(again))
  assert _hashes(again) == _hashes(there)


TASKS = {
  "BertForSequenceClassification": "classification",
  "BertForTokenClassification": "tagging",
  "BertForQuestionAnswering": "squad",
  "BertForMultipleChoice": "multiple choice",
}


@pytest.mark.parametrize("architecture", TASKS)
def test_a_task_without_our_files_is_known_by_its_architecture(
  write, tmp_path, architecture
):
  head, assets = _heads()[architecture]
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write(head, assets)), str(there))
  for name in assets:
    (there / name).unlink()
  assert find_task(str(there)) == TASKS[architecture]
  huggingface.to_tensorflow(str(there), str(back))
  assert {path.name for path in back.iterdir()} >= assets.keys()
  if "labels.json" in assets:
    assert json.loads((back / "labels.json").read_text()) == NAMES
  if architecture == tagging.ARCHITECTURE:
    assert tagging.read_assets(str(there))[:2] == (NAMES, "IOB2")
  if architecture == classification.ARCHITECTURE:
    kinds = [classification.read_assets(str(f))[0].kind for f in (there, back)]
    assert kinds == ["multilabel", "multilabel"]
    # Nothing says whether it was trained on pairs of texts.
    assert classification.trained_on_pairs(str(back)) is None


def test_labels_of_a_model_without_a_task_are_not_copied(write, tmp_path):
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write({}, {})), str(there))
  (there / "labels.json").write_text('["a", "b"]')
  huggingface.to_tensorflow(str(there), str(back))
  assert not (back / "labels.json").exists()


@pytest.mark.parametrize(
  ("architecture", "name", "text", "wanted"),
  [
    (
      "BertForSequenceClassification",
      "classifier.json",
      '{"is_pair": true}',
      {
        "labels.json": NAMES,
        "classifier.json": {
          "kind": "multilabel",
          "max_seq_length": 128,
          "long_text": "head",
          "is_pair": True,
        },
      },
    ),
    (
      "BertForTokenClassification",
      "tagger.json",
      '{"max_seq_length": 48}',
      {
        "labels.json": NAMES,
        "tagger.json": {
          "scheme": "IOB2",
          "max_seq_length": 48,
          "label_all_tokens": False,
          "max_context": False,
        },
      },
    ),
    (
      "BertForMultipleChoice",
      "multiple_choice.json",
      '{ "max_seq_length": 48 }',
      {"multiple_choice.json": {"max_seq_length": 48}},
    ),
  ],
)
def test_some_files_are_completed_from_config_json(
  write, tmp_path, architecture, name, text, wanted
):
  head, assets = _heads()[architecture]
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write(head, assets)), str(there))
  for other in assets:
    (there / other).unlink()
  (there / name).write_text(text)
  huggingface.to_tensorflow(str(there), str(back))
  found = {
    path.name: json.loads(path.read_text())
    for path in back.glob("*.json")
    if path.name != "bert_config.json"
  }
  assert found == wanted
  if json.loads(text) == wanted[name]:  # Nothing is missing.
    assert (back / name).read_text() == text


def test_a_threshold_alone_is_not_all_of_a_reader(write, tmp_path):
  head, assets = _heads()["BertForQuestionAnswering"]
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write(head, assets)), str(there))
  (there / "squad.json").unlink()
  (there / "null_threshold.json").write_text("{}")
  huggingface.to_tensorflow(str(there), str(back))
  assert (back / "null_threshold.json").read_text() == "{}"
  # Without this file, the folder is that of an encoder.
  assert (back / "squad.json").exists()


def test_a_classifier_answers_from_both_formats(write, tmp_path, mrpc):
  label_type = label_types.Classification(golden_classifier.LABELS)
  reading = classification.Reading(64, is_pair=True)
  assets = classification.assets(label_type, reading)
  model = write(layers.output_shapes(32, 3), assets)
  huggingface.to_huggingface(str(model), str(tmp_path / "there"))
  pairs = [(row["text_a"], row["text_b"]) for row in mrpc[:5]]
  ours = Classifier(str(model)).probabilities(pairs)
  theirs = Classifier(str(tmp_path / "there")).probabilities(pairs)
  np.testing.assert_array_equal(ours, theirs)
  assert np.ptp(ours, axis=0).max() > 0.01  # The texts differ.


def test_a_regression_gives_its_numbers(write, tmp_path):
  label_type = label_types.Regression(mean=3.0, deviation=0.5)
  assets = classification.assets(label_type, classification.Reading())
  model = write(layers.output_shapes(32, 1), assets)
  there = tmp_path / "there"
  huggingface.to_huggingface(str(model), str(there))
  fields = json.loads((there / "config.json").read_text())
  assert fields["problem_type"] == "regression"
  theirs = safetensors.load((there / "model.safetensors").read_bytes())
  ours = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  assert checkpoints.Checkpoint(str(there / "model.safetensors")).step == 12345
  weights, bias = ours["output_weights"], ours["output_bias"]
  np.testing.assert_array_equal(theirs["classifier.weight"], weights / 2)
  np.testing.assert_array_equal(theirs["classifier.bias"], bias / 2 + 3)
  found, _ = classification.read_assets(str(there))
  assert (found.mean, found.deviation) == (0, 1)


def test_the_vocabulary_is_the_one_that_is_read(write, tmp_path):
  """A file of SentencePiece beside tokenizer.json is not."""
  model, there, back = write({}, {}), tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(model), str(there))
  (there / "vocab.txt").unlink()
  (there / "other.model").touch()
  huggingface.to_tensorflow(str(there), str(back))
  assert _hashes(back) == _hashes(model)
  with pytest.raises(UserError, match=r"vocabulary in tokenizer\.json only"):
    saved_model.Encoder(str(there))


def test_no_activation_is_a_linear_one(write, tmp_path):
  model, there = write({}, {}), tmp_path / "there"
  fields = json.loads((model / "bert_config.json").read_text())
  fields["hidden_act"] = None
  (model / "bert_config.json").write_text(json.dumps(fields))
  huggingface.to_huggingface(str(model), str(there))
  config = model_folder.load_config(str(there))
  assert config.hidden_act == "linear"


def test_a_fault_leaves_no_files(write, tmp_path, monkeypatch):
  monkeypatch.setattr(huggingface, "_config_json", lambda *args: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    huggingface.to_huggingface(str(write({}, {})), str(tmp_path / "out"))
  assert not (tmp_path / "out").exists()


def test_the_checkpoint_that_is_named_is_converted(write, tmp_path):
  model = write({}, {})
  values = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  changed = {name: values[name] + 1 for name in values.shapes}
  changed["global_step"] = np.int64(7)
  changed["bert/pooler/dense/bias/adam_m"] = np.ones([32], np.float32)
  checkpoints.write_checkpoint(str(model / "model.ckpt-7"), changed)
  huggingface.to_huggingface(str(model / "model.ckpt-7"), str(tmp_path / "out"))
  theirs = safetensors.load((tmp_path / "out/model.safetensors").read_bytes())
  assert theirs.keys() == {
    huggingface.names.tensor_name(name).removeprefix("bert.")
    for name in values.shapes
  }
  bias = values["bert/pooler/dense/bias"] + 1
  np.testing.assert_array_equal(theirs["pooler.dense.bias"], bias)


def test_remote_folders(write, tmp_path):
  """TensorFlow keeps those of ram:// in memory."""
  folder, remote = write({}, {}), "ram://huggingface/model"
  huggingface.to_huggingface(str(folder), remote)
  huggingface.to_tensorflow(remote, str(tmp_path))
  old, new = (
    checkpoints.Checkpoint(str(path / "bert_model.ckpt"))
    for path in (folder, tmp_path)
  )
  assert old.shapes == new.shapes


def test_a_checkpoint_of_something_else_is_an_error(write, tmp_path):
  model = write({}, {})
  checkpoints.write_checkpoint(str(model / "bert_model.ckpt"), {"w": [1.0]})
  with pytest.raises(UserError, match="no word embeddings of BERT; pass"):
    huggingface.to_huggingface(str(model), str(tmp_path / "out"))
  assert not (tmp_path / "out").exists()


def _change(folder, lost=None, **fields):
  """Removes tensors from a folder of theirs, or changes its config.json."""
  path = folder / "model.safetensors"
  values = safetensors.load(path.read_bytes())
  kept = {n: v for n, v in values.items() if not (lost and re.search(lost, n))}
  assert bool(lost) == (len(kept) < len(values))
  path.write_bytes(safetensors.save(kept))
  path = folder / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("convert", ["to_tensorflow", "to_huggingface"])
@pytest.mark.parametrize(
  ("architecture", "lost", "fields", "wanted"),
  [
    ("BertModel", r"layer\.1\.", {}, "lacks bert/.*layer_1/.* 15 more"),
    ("BertModel", None, {"vocab_size": 1005}, "word_embeddings has shape"),
    (
      "BertForMaskedLM",
      None,
      {"max_position_embeddings": 64},
      "position_embeddings has shape",
    ),
    ("BertForMaskedLM", r"transform\.dense", {}, "lacks cls/predictions/tra"),
    ("BertForPreTraining", r"^cls", {}, "lacks cls/"),
    ("BertForPreTraining", "pooler", {}, "lacks bert/pooler"),
    ("BertForSequenceClassification", "classifier", {}, "lacks output_weights"),
    ("BertForSequenceClassification", "pooler", {}, "lacks bert/pooler"),
    ("BertForTokenClassification", "classifier", {}, "lacks output_weights"),
    ("BertForTokenClassification", r"pooler.*bias", {}, "lacks bert/pooler"),
    ("BertForQuestionAnswering", r"outputs\.bias", {}, "lacks cls/squad/outpu"),
    (
      "BertForPreTraining",
      None,
      {"architectures": ["BertForQuestionAnswering"]},
      "lacks cls/squad/output_weights",
    ),
    ("BertForMultipleChoice", "classifier.bias", {}, "lacks output_bias"),
  ],
)
def test_an_incomplete_model_is_an_error(
  write, tmp_path, golden, convert, architecture, lost, fields, wanted
):
  head, assets = _heads()[architecture]
  if architecture == "BertForMaskedLM":
    head = pretraining.variable_shapes(golden.config, False)
  there, out = tmp_path / "there", tmp_path / "out"
  model = write(head, assets, architecture == "BertForPreTraining")
  huggingface.to_huggingface(str(model), str(there))
  _change(there, lost, **fields)
  with pytest.raises(UserError, match=wanted):
    getattr(huggingface, convert)(str(there), str(out))
  assert not out.exists()


def test_labels_that_are_not_those_of_the_weights_are_an_error(write, tmp_path):
  there, out = tmp_path / "there", tmp_path / "out"
  model = write(*_heads()["BertForSequenceClassification"])
  huggingface.to_huggingface(str(model), str(there))
  (there / "labels.json").write_text('["a", "b"]')
  wanted = r"output_weights has shape \[3, 32\], .* \[2, 32\]; correct the"
  with pytest.raises(UserError, match=wanted):
    huggingface.to_tensorflow(str(there), str(out))
  assert not out.exists()


@pytest.mark.parametrize(
  "architecture", ["BertModel", "BertForTokenClassification"]
)
def test_some_models_have_no_pooler(write, tmp_path, architecture):
  there = tmp_path / "there"
  model = write(*_heads()[architecture])
  huggingface.to_huggingface(str(model), str(there))
  _change(there, "pooler")
  huggingface.to_tensorflow(str(there), str(tmp_path / "back"))
  checkpoint = checkpoints.Checkpoint(str(tmp_path / "back/bert_model.ckpt"))
  assert "bert/pooler/dense/bias" not in checkpoint


@pytest.mark.parametrize("special", ["[CLS]", "[SEP]", "[UNK]"])
def test_a_vocabulary_without_special_pieces_is_an_error(
  write, tmp_path, special
):
  model = write({}, {})
  vocab = (model / "vocab.txt").read_text("utf-8")
  (model / "vocab.txt").write_text(vocab.replace(special, "other"), "utf-8")
  with pytest.raises(UserError, match=rf"no \{special}; use the one that came"):
    huggingface.to_huggingface(str(model), str(tmp_path / "out"))
  assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def texts(goldens):
  """The texts of the tokenization goldens with their pieces."""
  lines = (goldens / "tokenization.jsonl").read_text("utf-8").splitlines()
  return list(map(json.loads, lines))


# What the tokenizers library treats otherwise: special tokens in a text stay
# whole, characters for private use are dropped, and U+061D, a punctuation mark
# since Unicode 14, does not split words.
PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
OTHERWISE = f"\\[(?:PAD|UNK|CLS|SEP|MASK)]|[{PRIVATE}\u061d]"


@pytest.mark.parametrize(("cased", "count"), [(False, 169), (True, 159)])
def test_tokenizer_json_gives_our_pieces(goldens, texts, cased, count):
  path = str(goldens / "tokenization_vocab.txt")
  vocab = tokenization.load_vocab(path)
  ours = tokenization.FullTokenizer(path, not cased)
  theirs = huggingface.make_tokenizer(vocab, not cased)
  differ = 0
  for row in texts:
    wanted = row["cased" if cased else "uncased"]
    found = theirs.encode(row["text"], add_special_tokens=False)
    if found.tokens != wanted:
      differ += 1
      assert re.search(OTHERWISE, row["text"])
    text = re.sub(OTHERWISE, "", row["text"])
    found = theirs.encode(text, add_special_tokens=False)
    assert found.ids == ours.convert_tokens_to_ids(ours.tokenize(text))
  assert differ == count


def test_tokenizer_json_adds_the_special_tokens(write, tmp_path):
  import tokenizers

  huggingface.to_huggingface(str(write({}, {})), str(tmp_path))
  path = str(tmp_path / "tokenizer.json")
  tokenizer = tokenizers.Tokenizer.from_file(path)
  pair = tokenizer.encode("The city", "[MASK] she")
  assert pair.tokens[0] == "[CLS]"
  assert pair.tokens[-1] == "[SEP]"
  assert "[MASK]" in pair.tokens
  first = pair.tokens.index("[SEP]") + 1
  assert pair.type_ids == [0] * first + [1] * (len(pair.ids) - first)
  ours = model_folder.find_model(str(tmp_path)).tokenizer
  assert pair.ids == ours.convert_tokens_to_ids(pair.tokens)
  settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
  assert settings["do_lower_case"] is True
  assert settings["model_max_length"] == 128
