"""Models in Hugging Face's format: there, back, and asked directly."""

import hashlib
import json
import re
import shutil

import numpy as np
import pytest
import tokenizers
from safetensors import numpy as safetensors

import bert
import tokenization
from bert import layers
from bert.contract import registry
from bert.contract.task import Settings, Task
from bert.data import files, sequences
from bert.errors import UserError
from bert.export import huggingface
from bert.models import checkpoints, model_folder, task_file
from bert.models.resolve import resolve
from bert.tasks.classification import label_types
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.tasks.multiple_choice.task import MultipleChoiceTask
from bert.tasks.pretraining import task as pretraining
from bert.tasks.squad.task import SquadSettings, SquadTask
from bert.tasks.tagging.task import TaggerSettings, TaggingTask

NAMES = ("O", "B-PER", "I-PER")


def _classifier(label_type, **settings):
  settings = ClassifierSettings(64, **settings)
  return ClassificationTask(settings.with_label_type(label_type))


TASKS = {
  "BertForSequenceClassification": _classifier(
    label_types.Multilabel(NAMES), long_text="mean_windows", is_pair=True
  ),
  "BertForTokenClassification": TaggingTask(TaggerSettings(64, NAMES, "IOB2")),
  "BertForQuestionAnswering": SquadTask(SquadSettings(96, 24, 32)),
  "BertForMultipleChoice": MultipleChoiceTask(Settings(48)),
}
ARCHITECTURES = ["BertModel", "BertForMaskedLM", "BertForPreTraining", *TASKS]


def _hashes(folder):
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in folder.iterdir()
  }


@pytest.fixture(scope="module")
def write(tmp_path_factory, golden, goldens):
  """A function: a model folder of the golden encoder with a head.

  Its argument is an architecture or a Task.
  """
  weights = checkpoints.Checkpoint(golden.checkpoint)

  def write(of="BertModel"):
    values = {
      name: weights[name]
      for name in weights.shapes
      if of == "BertForPreTraining" or name.startswith("bert/")
    }
    task = of if isinstance(of, Task) else TASKS.get(of)
    head, contents = {}, {}
    if task:
      head = task.head_shapes(golden.config)
      values["global_step"] = np.int64(12345)
      contents[task_file.NAME] = task_file.content(task.kind, task.settings)
    if of == "BertForMaskedLM":
      head = pretraining.variable_shapes(golden.config, False)
    draw = np.random.default_rng(2).normal
    for name, shape in head.items():
      values[name] = draw(size=shape).astype(np.float32)
    config = golden.config.to_dict() | {"do_lower_case": True}
    config["pooler_type"] = "first_token_transform"
    config = type(golden.config).from_dict(config)
    contents["bert_config.json"] = config.to_json_string()
    contents["vocab.txt"] = (goldens / "vocab.txt").read_bytes()
    folder = tmp_path_factory.mktemp("model")
    checkpoints.write_release(str(folder), values, contents)
    return folder

  return write


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_round_trip_gives_the_same_bytes(write, tmp_path, architecture):
  model = write(architecture)
  # The code in a model card names the folder.
  there, again = (tmp_path / name / "model" for name in ("there", "again"))
  back = tmp_path / "back"
  assert huggingface.to_huggingface(str(model), str(there)) == architecture
  fields = json.loads((there / "config.json").read_text())
  assert fields["architectures"] == [architecture]
  assert fields["hidden_act"] == "gelu_new"
  huggingface.to_tensorflow(str(there), str(back))
  assert _hashes(back) == _hashes(model)
  huggingface.to_huggingface(str(back), str(again))
  assert _hashes(again) == _hashes(there)


@pytest.mark.parametrize("architecture", TASKS)
def test_a_task_without_our_files_is_known_by_its_architecture(
  write, tmp_path, architecture
):
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write(architecture)), str(there))
  (there / task_file.NAME).unlink()
  task = TASKS[architecture]
  huggingface.to_tensorflow(str(there), str(back))
  for kind, fields in map(task_file.read, map(str, (there, back))):
    assert kind == task.kind
    for name in ("labels", "scheme", "kind"):
      wanted = getattr(task.settings, name, None)
      assert fields.get(name) in (wanted, wanted and list(wanted))
  # Nothing says whether it was trained on pairs of texts.
  assert json.loads((back / task_file.NAME).read_text()).get("is_pair") is None


@pytest.mark.parametrize(
  ("architecture", "text", "wanted"),
  [
    (
      "BertForSequenceClassification",
      '{"is_pair": true}',
      {"kind": "multilabel", "labels": list(NAMES), "is_pair": True},
    ),
    (
      "BertForTokenClassification",
      '{"task": "tagging", "max_seq_length": 48}',
      {"max_seq_length": 48, "labels": list(NAMES), "scheme": "IOB2"},
    ),
    (
      "BertForMultipleChoice",
      '{ "max_seq_length": 48 }',
      {"max_seq_length": 48},
    ),
    (
      "BertForQuestionAnswering",
      '{"null_score_diff_threshold": -1.5}',
      {"max_seq_length": 128, "null_score_diff_threshold": -1.5},
    ),
  ],
)
def test_task_json_is_completed_from_config_json(
  write, tmp_path, architecture, text, wanted
):
  there, back = tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(write(architecture)), str(there))
  (there / task_file.NAME).write_text(text)
  huggingface.to_tensorflow(str(there), str(back))
  found = json.loads((back / task_file.NAME).read_text())
  assert found["task"] == TASKS[architecture].kind
  assert {name: found[name] for name in wanted} == wanted


def test_a_regression_gives_its_numbers(write, tmp_path):
  label_type = label_types.Regression(mean=3.0, deviation=0.5)
  model, there = write(_classifier(label_type)), tmp_path / "there"
  huggingface.to_huggingface(str(model), str(there))
  fields = json.loads((there / "config.json").read_text())
  assert fields["problem_type"] == "regression"
  theirs = safetensors.load((there / "model.safetensors").read_bytes())
  ours = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  assert checkpoints.Checkpoint(str(there / "model.safetensors")).step == 12345
  weights, bias = ours["output_weights"], ours["output_bias"]
  np.testing.assert_array_equal(theirs["classifier.weight"], weights / 2)
  np.testing.assert_array_equal(theirs["classifier.bias"], bias / 2 + 3)
  settings = bert.load(there).task.settings
  assert (settings.mean, settings.deviation) == (0, 1)


class OwnTask(ClassificationTask):
  """A task that Hugging Face does not know."""

  kind = "own"

  def head_shapes(self, config):
    return layers.output_shapes(config.hidden_size, len(self.labels), "own/")

  def head(self, ops, bert, features):
    size = len(self.labels)
    logits = ops.output_layer(bert.get_pooled_output(), size, "own/")
    return {"logits": logits, "probabilities": ops.softmax(logits)}


def test_another_task_is_an_encoder_with_more_tensors(write, tmp_path):
  registry.register(OwnTask)
  model = write(OwnTask(ClassifierSettings(64, labels=NAMES, is_pair=False)))
  there, back = tmp_path / "there", tmp_path / "back"
  assert huggingface.to_huggingface(str(model), str(there)) == "BertModel"
  theirs = safetensors.load((there / "model.safetensors").read_bytes())
  assert {"own/output_weights", "pooler.dense.bias"} < theirs.keys()
  huggingface.to_tensorflow(str(there), str(back))
  assert _hashes(back) == _hashes(model)
  answers = [bert.load(f)(["the city", "a"]) for f in (model, there, back)]
  assert answers[0] == answers[1] == answers[2]


def test_the_vocabulary_is_the_one_that_is_read(write, tmp_path):
  """A file of SentencePiece beside tokenizer.json is not."""
  model, there, back = write(), tmp_path / "there", tmp_path / "back"
  huggingface.to_huggingface(str(model), str(there))
  (there / "vocab.txt").unlink()
  (there / "other.model").touch()
  huggingface.to_tensorflow(str(there), str(back))
  assert _hashes(back) == _hashes(model)


def test_a_byte_order_mark_is_left_out(write, tmp_path):
  """Other programs would take it for a part of the first piece."""
  model = tmp_path / "model"
  shutil.copytree(write(), model)
  vocab = (model / "vocab.txt").read_bytes()
  (model / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + vocab)
  for convert in (huggingface.to_huggingface, huggingface.to_tensorflow):
    convert(str(model), str(tmp_path / convert.__name__))
    written = tmp_path / convert.__name__ / "vocab.txt"
    assert written.read_bytes() == vocab


def test_no_activation_is_a_linear_one(write, tmp_path):
  model, there = write(), tmp_path / "there"
  fields = json.loads((model / "bert_config.json").read_text())
  fields["hidden_act"] = None
  (model / "bert_config.json").write_text(json.dumps(fields))
  huggingface.to_huggingface(str(model), str(there))
  config = model_folder.load_config(str(there))
  assert config.hidden_act == "linear"


def test_a_fault_leaves_no_files(write, tmp_path, monkeypatch):
  """Not even if the last of them cannot be written."""
  model, write_file = str(write()), files.write_file

  def fail(path, content):
    if path.endswith("config.json"):
      raise OSError("no space")
    write_file(path, content)

  monkeypatch.setattr(files, "write_file", fail)
  with pytest.raises(OSError, match="no space"):
    huggingface.to_huggingface(model, str(tmp_path / "out"))
  assert not (tmp_path / "out").exists()


def test_the_checkpoint_that_is_named_is_converted(write, tmp_path):
  model = write()
  values = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  changed = {name: values[name] + 1 for name in values.shapes}
  changed["global_step"] = np.int64(7)
  changed["bert/pooler/dense/bias/adam_m"] = np.ones([32], np.float32)
  checkpoints.write_checkpoint(str(model / "model.ckpt-7"), changed)
  huggingface.to_huggingface(str(model / "model.ckpt-7"), str(tmp_path / "out"))
  theirs = safetensors.load((tmp_path / "out/model.safetensors").read_bytes())
  assert theirs.keys() == {
    huggingface.tensor_name(name).removeprefix("bert.")
    for name in values.shapes
  }
  bias = values["bert/pooler/dense/bias"] + 1
  np.testing.assert_array_equal(theirs["pooler.dense.bias"], bias)


def test_remote_folders(write, tmp_path):
  """TensorFlow keeps those of ram:// in memory."""
  folder, remote = write(), "ram://huggingface/model"
  huggingface.to_huggingface(str(folder), remote)
  huggingface.to_tensorflow(remote, str(tmp_path))
  old, new = (
    checkpoints.Checkpoint(str(path / "bert_model.ckpt"))
    for path in (folder, tmp_path)
  )
  assert old.shapes == new.shapes


def test_a_checkpoint_of_something_else_is_an_error(write, tmp_path):
  model = write()
  checkpoints.write_checkpoint(str(model / "bert_model.ckpt"), {"w": [1.0]})
  with pytest.raises(UserError, match="lacks bert/"):
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


@pytest.mark.parametrize(
  ("architecture", "lost", "fields", "wanted"),
  [
    ("BertModel", r"layer\.1\.", {}, "lacks bert/.*layer_1/.* 15 more"),
    ("BertModel", None, {"vocab_size": 1005}, "word_embeddings has shape"),
    ("BertForMaskedLM", r"transform\.dense", {}, "lacks cls/predictions/tra"),
    ("BertForPreTraining", "pooler", {}, "lacks bert/pooler"),
    ("BertForSequenceClassification", "classifier", {}, "lacks output_weights"),
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
  write, tmp_path, architecture, lost, fields, wanted
):
  there, out = tmp_path / "there", tmp_path / "out"
  huggingface.to_huggingface(str(write(architecture)), str(there))
  _change(there, lost, **fields)
  with pytest.raises(UserError, match=wanted):
    huggingface.to_tensorflow(str(there), str(out))
  assert not out.exists()


def test_labels_that_are_not_those_of_the_weights_are_an_error(write, tmp_path):
  there, out = tmp_path / "there", tmp_path / "out"
  model = write("BertForSequenceClassification")
  huggingface.to_huggingface(str(model), str(there))
  (there / task_file.NAME).write_text('{"labels": ["a", "b"]}')
  wanted = r"output_weights has shape \[3, 32\] there, and \[2, 32\] in"
  with pytest.raises(UserError, match=wanted):
    huggingface.to_tensorflow(str(there), str(out))
  assert not out.exists()


@pytest.mark.parametrize(
  "architecture", ["BertModel", "BertForTokenClassification"]
)
def test_some_models_have_no_pooler(write, tmp_path, architecture):
  there = tmp_path / "there"
  model = write(architecture)
  huggingface.to_huggingface(str(model), str(there))
  _change(there, "pooler")
  huggingface.to_tensorflow(str(there), str(tmp_path / "back"))
  checkpoint = checkpoints.Checkpoint(str(tmp_path / "back/bert_model.ckpt"))
  assert "bert/pooler/dense/bias" not in checkpoint


@pytest.mark.parametrize("special", ["[CLS]", "[SEP]", "[UNK]"])
def test_a_vocabulary_without_special_pieces_is_an_error(
  write, tmp_path, special
):
  model = write()
  vocab = (model / "vocab.txt").read_text("utf-8")
  (model / "vocab.txt").write_text(vocab.replace(special, "other"), "utf-8")
  with pytest.raises(UserError, match=rf"no piece \{special}; pass the"):
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


def test_tokenizer_json_has_one_small_sigma():
  """docs/convert.md says so: `tokenizers` reads each character for itself."""
  vocab = {
    piece: index
    for index, piece in enumerate(["[UNK]", "[CLS]", "[SEP]", "οδος", "οδοσ"])
  }
  theirs = huggingface.make_tokenizer(vocab, True).encode("ΟΔΟΣ")
  assert theirs.tokens == ["[CLS]", "οδοσ", "[SEP]"]


def test_tokenizer_json_adds_the_special_tokens(write, tmp_path):
  huggingface.to_huggingface(str(write()), str(tmp_path))
  path = str(tmp_path / "tokenizer.json")
  tokenizer = tokenizers.Tokenizer.from_file(path)
  pair = tokenizer.encode("The city", "[MASK] she")
  assert pair.tokens[0] == "[CLS]"
  assert pair.tokens[-1] == "[SEP]"
  assert "[MASK]" in pair.tokens
  first = pair.tokens.index("[SEP]") + 1
  assert pair.type_ids == [0] * first + [1] * (len(pair.ids) - first)
  ours = resolve(str(tmp_path)).tokenizer
  assert pair.ids == ours.convert_tokens_to_ids(pair.tokens)
  settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
  assert settings["do_lower_case"] is True


@pytest.mark.parametrize(
  ("of", "length"), [("BertModel", 128), ("BertForMultipleChoice", 48)]
)
def test_other_programs_cut_at_the_length_of_the_training(
  write, tmp_path, of, length
):
  huggingface.to_huggingface(str(write(of)), str(tmp_path))
  settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
  assert settings["model_max_length"] == length


@pytest.mark.parametrize(("size_a", "size_b"), [(40, 30), (30, 40), (30, 30)])
@pytest.mark.parametrize("length", [31, 32])
def test_of_two_long_texts_one_piece_may_differ(
  write, tmp_path, size_a, size_b, length
):
  """docs/convert.md says which: an odd piece goes to the longer text there."""
  huggingface.to_huggingface(str(write()), str(tmp_path))
  tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
  tokenizer.enable_truncation(length)  # As transformers does it.
  theirs = tokenizer.encode("the " * size_a, "it " * size_b).tokens
  room = length - 3
  kept_a, kept_b = sequences.share_room(size_a, size_b, room)
  odd = room % 2 and size_a <= size_b
  assert theirs.count("the") == kept_a - odd
  assert theirs.count("it") == kept_b + odd
