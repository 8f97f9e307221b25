"""A trained classifier, in Python and on the terminal."""

import json
import re
from unittest import mock

import numpy as np
import pytest
from golden_classifier import LABEL_TYPES, golden_values, logits_of
from scipy import special

import tokenization
from bert.engine.loaded_model import load, load_trained
from bert.errors import UserError
from bert.models import checkpoints, task_file
from bert.scripts import terminal
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
  Prediction,
)

# Words of the golden vocabulary, each a single piece.
WORDS = re.findall(
  r"\w+",
  "that with from were which this their also first after they been have during"
  " into time when city would more north other three over",
)


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory, golden, goldens):
  """Makes the folder that a training leaves; returns it and its weights."""

  def make(long_text="head"):
    folder = tmp_path_factory.mktemp("classification")
    values = golden_values(golden, 3)
    settings = ClassifierSettings(12, long_text=long_text)
    settings = settings.with_label_type(LABEL_TYPES["classification"])
    checkpoints.write_release(
      str(folder),
      values,
      {
        "bert_config.json": golden.config.to_json_string(),
        "vocab.txt": (goldens / "vocab.txt").read_bytes(),
        "task.json": task_file.content("classification", settings),
      },
    )
    return folder, values

  return make


@pytest.fixture(scope="module")
def ids_of(goldens):
  """The function of words that gives their pieces' ids, [CLS] and all."""
  vocab = tokenization.load_vocab(str(goldens / "vocab.txt"))

  def ids(words):
    flat = [vocab[piece] for piece in ("[CLS]", *words, "[SEP]")]
    return [np.array([row]) for row in (flat, [1] * len(flat), [0] * len(flat))]

  return ids


def probabilities(model, texts):
  """The probability of each label [texts, C]."""
  return np.array([answer["probabilities"] for answer in model(texts)])


class TestClassifier:
  def test_long_texts_in_windows(self, golden, make_folder, ids_of):
    folder, values = make_folder(long_text="mean_windows")
    model = load(folder, batch_size=2)
    # 24 pieces, where 10 find room: three windows of 8.
    windows = [WORDS[:8], WORDS[8:16], WORDS[16:24]]
    rows = [logits_of(golden, values, *ids_of(words)) for words in windows]
    short = logits_of(golden, values, *ids_of(WORDS[:3]))
    logits = np.concatenate([short, np.mean(rows, axis=0), short])
    texts = [" ".join(words) for words in (WORDS[:3], WORDS[:24], WORDS[:3])]
    np.testing.assert_allclose(
      probabilities(model, texts), special.softmax(logits, axis=1), rtol=1e-4
    )


def change_task(folder, **changes):
  """Changes fields of task.json; None leaves one out."""
  path = folder / "task.json"
  fields = json.loads(path.read_text()) | changes
  fields = {name: value for name, value in fields.items() if value is not None}
  path.write_text(json.dumps(fields))


class TestFolder:
  def check_refused(self, folder, inside="$"):
    message = rf"{folder} does not hold a trained model \(classification\); .*"
    with pytest.raises(UserError, match=message + inside):
      load_trained(str(folder), "classification")

  def test_a_folder_of_seeds(self, make_folder, tmp_path):
    folder, _ = make_folder()
    other, _ = make_folder()
    (other / "task.json").unlink()
    (tmp_path / "another").symlink_to(other)
    (tmp_path / "seed-1").symlink_to(folder)
    self.check_refused(tmp_path, f"such as {tmp_path}/seed-1$")
    (tmp_path / "another").unlink()
    with pytest.raises(UserError, match=f"such as {tmp_path}/seed-1$"):
      load(tmp_path)

  def test_the_length_fits_the_positions(self, golden, make_folder, ids_of):
    folder, values = make_folder()
    name = "bert/embeddings/position_embeddings"
    config = golden.config.to_dict() | {"max_position_embeddings": 16}
    contents = {"bert_config.json": json.dumps(config)}
    short = {**values, name: values[name][:16]}
    checkpoints.write_release(str(folder), short, contents)
    change_task(folder, max_seq_length=None)
    found = probabilities(load(folder), [" ".join(WORDS)])
    logits = logits_of(golden, values, *ids_of(WORDS[:14]))
    np.testing.assert_allclose(
      found, special.softmax(logits, axis=1), rtol=1e-4
    )
    change_task(folder, max_seq_length=17)
    with pytest.raises(
      ValueError, match="max_seq_length=17 is more than the 16"
    ):
      load(folder)


class Stub:
  """Answers with the lengths of the texts, as digits of a number."""

  def __init__(self, is_pair):
    self.task = ClassificationTask(
      ClassifierSettings(kind="regression", is_pair=is_pair)
    )

  def parse(self, value):
    if isinstance(value, tuple):
      return value
    return tuple(value.values()) if isinstance(value, dict) else (value,)

  def answer_examples(self, examples):
    (example,) = examples
    texts = filter(None, (example.text_a, example.text_b))
    number = int("".join(str(len(text)) for text in texts))
    return [Prediction(np.array([number], np.float32), 0)]


@pytest.mark.parametrize(
  ("is_pair", "lines", "prompts", "answers"),
  [
    (False, ["abc", "", "  ", "a"], ["> "] * 5, ["3", "1"]),
    (
      True,
      ["ab", "c", "", "x", "", " ", "half"],
      ["text a> ", "text b> "] * 4,
      ["21", "1"],
    ),
    # Whether it was trained on pairs is not known.
    (None, ["abc", "", "ab ||| c"], ["> "] * 4, ["3", "21"]),
  ],
)
def test_a_dialogue_until_the_end(
  is_pair, lines, prompts, answers, monkeypatch, capsys
):
  read = mock.Mock(side_effect=[*lines, EOFError])
  monkeypatch.setattr("builtins.input", read)
  terminal.converse(Stub(is_pair))
  asked = [call.args[0] for call in read.mock_calls]
  assert asked == prompts
  # The shell's prompt starts on a new line.
  assert capsys.readouterr().out.splitlines() == [*answers, ""]


@pytest.mark.parametrize(
  ("kind", "labels", "logits", "words"),
  [
    (
      "classification",
      ("no", "yes", "so"),
      np.log([0.2, 0.7, 0.1]),
      "yes   (yes 70.0%, no 20.0%, so 10.0%)",
    ),
    (
      "multilabel",
      ("a", "b", "c"),
      special.logit([0.6, 0.2, 0.9]),
      "a|c   (c 90.0%, a 60.0%, b 20.0%)",
    ),
    (
      "multilabel",
      ("a", "b"),
      special.logit([0.25, 0.125]),
      "no label   (a 25.0%, b 12.5%)",
    ),
    ("regression", (), np.array([2.5]), "2.5"),
  ],
)
def test_words(kind, labels, logits, words):
  task = ClassificationTask(ClassifierSettings(kind=kind, labels=labels))
  assert task.describe(Prediction(logits, 0)) == words
