"""Questions on texts: the model, and its use in Python."""

import dataclasses
import hashlib
import json
import os
import shutil
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import modeling
import run_squad
from bert import variables
from bert.contract.ops import TensorOps
from bert.engine import loaded_model
from bert.engine.loaded_model import LoadedModel
from bert.errors import UserError
from bert.models import checkpoints, task_file
from bert.models.resolve import Model
from bert.scripts import terminal
from bert.tasks.squad import (
  data as squad,
  decoding as squad_decoding,
  task as squad_model,
)
from bert.tasks.squad.task import SquadSettings, SquadTask
from bert.training import estimator

SEQUENCES = ("input_ids", "input_mask", "segment_ids")
SPANS = ("start_positions", "end_positions")
SMALL = SquadSettings(max_seq_length=32, doc_stride=8, max_query_length=8)


def write_settings(folder, settings=SMALL):
  content = task_file.content("squad", settings)
  (folder / "task.json").write_text(content)


def read_settings(folder):
  return task_file.load(SquadTask, folder, is_required=False)


def candidates(model, question, context):
  (found,) = model.answers([(question, context)])
  return found.answer.nbest


@pytest.fixture(scope="module")
def head():
  """Weights that tell positions apart."""
  draw = np.random.default_rng(5).normal
  return {
    "cls/squad/output_weights": draw(size=[2, 32]).astype(np.float32),
    "cls/squad/output_bias": draw(size=[2]).astype(np.float32),
  }


@pytest.fixture(scope="module")
def values(golden, head):
  """The golden model's weights with that head."""
  return {**dict(golden.store().initial_values), **head}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, goldens, values):
  """A folder as a training on SQuAD leaves it."""
  folder = tmp_path_factory.mktemp("model")
  shutil.copy(goldens / "vocab.txt", folder)
  shutil.copy(goldens / "bert_config.json", folder)
  wanted = {n: v for n, v in values.items() if n.startswith(("bert/", "cls/s"))}
  checkpoints.write_checkpoint(str(folder / "bert_model.ckpt"), wanted)
  write_settings(folder)
  return folder


def batch_of(golden):
  return [golden.inputs[name] for name in SEQUENCES]


def logits_by_hand(golden, values, *batch):
  """The last layer times the start and the end vector, [2, B, S]."""
  with variables.VariableStore(initial_values=values):
    model = modeling.BertModel(golden.config, False, *batch)
  sequence = model.get_sequence_output().numpy()
  weights = values["cls/squad/output_weights"]
  logits = sequence @ weights.T + values["cls/squad/output_bias"]
  return np.moveaxis(logits, -1, 0)


def loss_by_hand(spans, logits, is_counted):
  """Mean cross-entropy where only some positions count, in float64."""
  logits = np.where(is_counted, np.asarray(logits, np.float64), -np.inf)
  losses = [
    -special.log_softmax(part, axis=1)[range(len(span)), span]
    for part, span in zip(logits, spans, strict=True)
  ]
  return np.mean(losses)


class TestModel:
  def test_a_v1_graph(self, golden, values):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
      batch = [tf.constant(x) for x in batch_of(golden)]
      logits = run_squad.create_model(
        golden.config, False, *batch, use_one_hot_embeddings=True
      )
      tvars = v1.trainable_variables()
      names = [v.op.name for v in tvars]
      assert set(SquadTask().head_shapes(golden.config)) < set(names)
      session.run(v1.global_variables_initializer())
      for variable, name in zip(tvars, names, strict=True):
        variable.load(values[name], session)
      found = session.run(logits)
    expected = logits_by_hand(golden, values, *batch_of(golden))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class TestModelFn:
  def build(self, golden):
    return run_squad.model_fn_builder(
      golden.config, None, 1e-3, 12, 4, False, False
    )

  def test_twelve_updates_are_the_originals(self, golden):
    store = golden.store("squad")
    model_fn = self.build(golden)
    features = {
      name: tf.constant(golden.inputs[name]) for name in (*SEQUENCES, *SPANS)
    }

    @tf.function(autograph=False)
    def step():
      with store:
        spec = model_fn(features, None, estimator.ModeKeys.TRAIN, {})
      return spec.loss

    losses = [float(step()) for _ in range(12)]
    np.testing.assert_allclose(losses, golden.arrays["squad/losses"], rtol=1e-5)
    assert store["global_step"].numpy() == 12
    # The pooler has no gradient, and so no slots.
    assert "bert/pooler/dense/bias/adam_m" not in store
    names = [n for n in golden.arrays if n.startswith("squad/final/")]
    assert len(names) == 10
    for name in names:
      np.testing.assert_allclose(
        store[name.removeprefix("squad/final/")],
        golden.arrays[name],
        rtol=1e-3,
        atol=1e-5,
        err_msg=name,
      )

  def test_in_the_originals_loss_padding_competes(self, golden):
    store = golden.store("squad")
    values = {
      **store.initial_values,
      "cls/squad/output_bias": np.zeros([2], np.float32),
    }
    logits = logits_by_hand(golden, values, *batch_of(golden))
    is_real = golden.inputs["input_mask"] == 1
    spans = [golden.inputs[name] for name in SPANS]
    original = golden.arrays["squad/losses"][0]
    everywhere = loss_by_hand(spans, logits, True)
    np.testing.assert_allclose(everywhere, original, rtol=1e-5)
    assert loss_by_hand(spans, logits, is_real) < 0.75 * original

  def test_without_padding_the_loss_is_of_real_positions(self, golden, values):
    logits = logits_by_hand(golden, values, *batch_of(golden))[:, 1:]
    mask = golden.inputs["input_mask"][1:]
    spans = [golden.inputs[name][1:] for name in SPANS]
    expected = loss_by_hand(spans, logits, mask == 1)
    features = dict(zip(SPANS, spans, strict=True))
    for length in (20, 32):
      masked = (TensorOps().masked(x, mask, -1e4) for x in logits)
      names = ("start_logits", "end_logits")
      outputs = {n: x[:, :length] for n, x in zip(names, masked, strict=True)}
      losses = SquadTask(padding_competes=False).loss(outputs, features)
      np.testing.assert_allclose(np.mean(losses), expected, rtol=1e-5)
    outputs = dict(
      zip(("all_start_logits", "all_end_logits"), logits, strict=True)
    )
    losses = SquadTask().loss(outputs, features)
    expected = loss_by_hand(spans, logits, True)
    np.testing.assert_allclose(np.mean(losses), expected, rtol=1e-5)

  def test_positions_outside_the_window_have_no_loss(self):
    # exp(logit) is 1, 2, 5 and 4, 4, 8.
    logits = np.log([[1, 2, 5], [4, 4, 8]]).astype(np.float32)
    losses = squad_model.span_losses(logits, logits, [2, 3], [-1, 0])
    loss = np.mean(losses)
    np.testing.assert_allclose(loss, (np.log(8 / 5) + np.log(4)) / 4, rtol=1e-6)

  def test_predictions_are_raw_results(self, golden, values):
    features = {name: tf.constant(golden.inputs[name]) for name in SEQUENCES}
    features["unique_ids"] = tf.range(4)
    with variables.VariableStore(initial_values=values):
      spec = self.build(golden)(features, None, estimator.ModeKeys.PREDICT, {})
    names = ("unique_ids", "start_logits", "end_logits")  # The original's.
    result = squad_decoding.RawResult(*map(spec.predictions.get, names))
    np.testing.assert_array_equal(result.unique_id, range(4))
    logits = np.array([result.start_logits, result.end_logits])
    expected = logits_by_hand(golden, values, *batch_of(golden))
    is_real = np.tile(golden.inputs["input_mask"], [2, 1, 1]) == 1
    np.testing.assert_allclose(
      logits[is_real], expected[is_real], rtol=1e-4, atol=1e-5
    )
    # Padding is never among the best.
    assert not is_real.all()
    assert (logits[~is_real] < logits[is_real].min() - 1000).all()


class TestSettings:
  def test_what_a_file_omits_is_the_originals(self, tmp_path):
    fields = {"task": "squad", "version_2_with_negative": True}
    (tmp_path / "task.json").write_text(json.dumps(fields))
    found = read_settings(str(tmp_path))
    assert found == SquadSettings(384, 128, 64, True, 20, 30)

  @pytest.mark.parametrize(
    ("positions", "wanted"),
    [
      (64, (64, 21, 16)),
      (300, (300, 100, 64)),
      (384, (384, 128, 64)),
      (512, (384, 128, 64)),
    ],
  )
  def test_defaults_fit_the_positions(
    self, tmp_path, golden, positions, wanted
  ):
    config = golden.config.to_dict() | {"max_position_embeddings": positions}
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    folder = str(tmp_path)
    assert read_settings(folder) == SquadSettings(*wanted)
    fields = {"task": "squad", "max_seq_length": 400}
    (tmp_path / "task.json").write_text(json.dumps(fields))
    assert read_settings(folder) == SquadSettings(400, 128, 64)


class TestAnswers:
  def test_candidates_by_hand(self, golden, values, folder, tokenizer):
    context = "Many years before this the city was under some states ."
    model = loaded_model.load(folder)
    found = candidates(model, "what was this ?", context)
    pieces = tokenizer.tokenize(context)
    query = ["[CLS]", *tokenizer.tokenize("what was this ?"), "[SEP]"]
    ids = tokenizer.convert_tokens_to_ids([*query, *pieces, "[SEP]"])
    first = len(query)
    segments = [int(place >= first) for place in range(len(ids))]
    config_batch = [[ids], [[1] * len(ids)], [segments]]
    starts, ends = logits_by_hand(golden, values, *map(np.array, config_batch))
    sums = starts[0, first:-1, np.newaxis] + ends[0, np.newaxis, first:-1]
    best = np.max(np.where(np.triu(np.ones_like(sums)), sums, -np.inf))
    assert found[0].start_logit + found[0].end_logit == pytest.approx(
      best, rel=1e-4
    )
    assert [c.probability for c in found] == sorted(
      (c.probability for c in found), reverse=True
    )
    assert sum(c.probability for c in found) == pytest.approx(1)
    assert all(c.text in context for c in found)
    assert len({c.text for c in found}) == len(found) == 20

  def test_a_checkpoint_with_parts_given(self, golden, folder, tokenizer):
    settings = SquadSettings(32, 8, 8, True, n_best_size=15)
    model = LoadedModel(
      SquadTask(settings, tokenizer, threshold=1e5),
      Model(golden.config, tokenizer, str(folder / "bert_model.ckpt")),
    )
    text = "Many years before this ."
    (found,) = model.answers([("what ?", text)])
    assert found.answer.null_odds is not None
    assert "" in [c.text for c in found.answer.nbest]
    assert len(found.answer.nbest) == 15
    assert found.answer.text == found.answer.best_text != ""
    # A stored threshold decides, too, and one that is given before it.
    settings = dataclasses.replace(settings, null_score_diff_threshold=-1e5)
    for given, has_answer in ((None, False), (1e5, True)):
      task = SquadTask(settings, tokenizer, threshold=given)
      assert bool(task.answer(*question_and_row()).answer.text) == has_answer

  @pytest.mark.parametrize("texts", [("what ?", " \n"), ("", "Many years")])
  def test_nothing_to_read(self, folder, texts):
    with pytest.raises(UserError, match="without a word; pass"):
      loaded_model.load(folder)(texts)

  def test_without_settings(self, folder, tmp_path):
    """The model has fewer positions than the original's length."""
    shutil.copytree(folder, tmp_path / "bare")
    (tmp_path / "bare" / "task.json").unlink()
    model = loaded_model.load(tmp_path / "bare", "squad")
    assert model.task.settings == SquadSettings(128, 42, 32)
    assert model(("what ?", "many years " * 99))

  def test_a_dialogue(self, folder, tmp_path, monkeypatch, capsys):
    text = tmp_path / "text"
    text.write_text("Many years before this .")
    (tmp_path / "empty").write_text("\n")
    typed = [
      str(tmp_path / "none"),
      "/proc/self/mem",
      str(tmp_path / "empty"),
      "what was this ?",
      "",
      str(text),
      "what was\tthis ?",
      "",
      str(text),
      " how many ? ",
    ]
    read = mock.Mock(side_effect=[*typed, EOFError])
    monkeypatch.setattr("builtins.input", read)
    terminal.converse_on_files(loaded_model.load(folder))
    prompts = "".join(call.args[0][0] for call in read.mock_calls)
    assert prompts == "cccqqcqqcqq"
    shown = capsys.readouterr().out.splitlines()
    assert f"{tmp_path}/none: no such file" in shown[0]
    assert "Input/output error" in shown[1]
    assert "the context is" in shown[2]
    assert shown[-1] == ""  # Ends the line of the last prompt.
    bests = [i for i, line in enumerate(shown) if line[:1] != " "][3:-1]
    assert len(bests) == 2
    for i in bests:
      best, first, second = shown[i : i + 3]
      assert first.endswith(f"%  {best}")
      assert not second.endswith(f"%  {best}")


def question_and_row():
  """A question, and the predictions of its only row."""
  question = squad.SquadExample("q", "what was this ?", ["the", "city"])
  logits = {"start_logits": np.ones(32), "end_logits": np.ones(32)}
  return question, [{"unique_ids": 1_000_000_000, **logits}]


def write(task, folder):
  """Writes the answer to a question."""
  question, predictions = question_and_row()
  rows = types.SimpleNamespace(split="test", examples=[question])
  task.write(str(folder), rows, iter([task.answer(question, predictions)]))


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_pipe_is_hashed_as_it_is_read(goldens, split):
  """A pipe, such as <(command), can only be read once."""
  content = (goldens / "squad_v1.json").read_bytes()
  reader, writer = os.pipe()
  with open(writer, "wb") as pipe:
    pipe.write(content)
  task = SquadTask(SMALL, paths={split: f"/dev/fd/{reader}"})
  (examples,) = task.examples(split).values()
  assert examples
  name = "train" if split == "train" else "dev"
  assert task.data_hashes() == {name: hashlib.sha256(content).hexdigest()}
  os.close(reader)


@pytest.mark.parametrize(
  ("content", "keeps_scores"),
  [
    ('{"results": {}, "predictions": "predictions.json"}', False),
    ('{"results": {}}', True),  # Those of an evaluation.
    ("damaged", True),
  ],
)
def test_predictions_without_scores(tmp_path, tokenizer, content, keeps_scores):
  """They end the scores of predictions, but not those of an evaluation."""
  scores = ["eval_results.txt", "eval_results.json"]
  old = [*scores, "answer.html", "null_odds.json"]
  for name in old:
    (tmp_path / name).write_text(content)
  (tmp_path / "predictions.json").write_text("{}")
  write(SquadTask(SMALL, tokenizer, {"test": "test.json"}), tmp_path)
  assert json.loads((tmp_path / "predictions.json").read_text()).keys() == {"q"}
  kept = [name for name in old if (tmp_path / name).exists()]
  assert kept == (scores if keeps_scores else [])


def _question_file(path, **answers):
  question = {"id": "q", "question": "what was this ?", **answers}
  paragraph = {"context": "the city", "qas": [question]}
  path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
  return str(path)


def test_updates_end_the_threshold_of_the_weights(tmp_path, tokenizer):
  """Unless the run needs it: then nothing is trained."""
  folder = str(tmp_path / "out")
  settings = SquadSettings(32, 8, 8, True, null_score_diff_threshold=-1.25)
  os.mkdir(folder)
  labeled = {"answers": [], "is_impossible": True}
  for name, answers, is_needed in (("a", labeled, False), ("b", {}, True)):
    squad_model.write_threshold(folder, SquadTask(settings), -1.25)
    paths = {"test": _question_file(tmp_path / name, **answers)}
    task = SquadTask(settings, tokenizer, paths, "auto", [folder])
    task.examples("test")
    if is_needed:
      with pytest.raises(UserError, match=r"=auto: .* pass a number, or a --p"):
        task.before_updates(folder)
    else:
      task.before_updates(folder)
      task.before_updates(folder)
    threshold = -1.25 if is_needed else None
    assert squad_model.stored_threshold(folder) == threshold
