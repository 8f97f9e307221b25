"""transformers and our code compute the same from the same weights.

Set TRANSFORMERS_PYTHON to a Python that has torch and transformers.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import task_folders
import tensorflow as tf

import bert
import modeling
from bert import variables
from bert.contract import ops
from bert.contract.task import Settings
from bert.export import huggingface
from bert.models import checkpoints, task_file
from bert.models.resolve import resolve
from bert.tasks.classification.label_types import Classification
from bert.tasks.classification.task import (
  ClassificationTask,
  ClassifierSettings,
)
from bert.tasks.multiple_choice import task as multiple_choice
from bert.tasks.pretraining import task as pretraining
from bert.tasks.squad import task as squad_model
from bert.tasks.tagging import task as tagging

pytestmark = pytest.mark.peers

LENGTH = 48
NAMES = ("O", "B-PER", "I-PER")
TASKS = {
  "BertForSequenceClassification": ClassificationTask(
    ClassifierSettings(LENGTH).with_label_type(Classification(NAMES))
  ),
  "BertForTokenClassification": tagging.TaggingTask(
    tagging.TaggerSettings(LENGTH, NAMES, "IOB2")
  ),
  "BertForQuestionAnswering": squad_model.SquadTask(
    squad_model.SquadSettings(LENGTH, doc_stride=8, max_query_length=8)
  ),
  "BertForMultipleChoice": multiple_choice.MultipleChoiceTask(Settings(LENGTH)),
}


def _heads(config):
  """Dict from architecture to (variables of the head, files of the task)."""
  heads = {
    "BertModel": ({}, {}),
    "BertForPreTraining": (pretraining.variable_shapes(config), {}),
    "BertForMaskedLM": (pretraining.variable_shapes(config, False), {}),
  }
  for architecture, task in TASKS.items():
    content = task_file.content(task.kind, task.settings)
    files = {task_file.NAME: content}
    heads[architecture] = task.head_shapes(config), files
  return heads


def _outputs(architecture, folder, inputs):
  """Our outputs of the model in a folder, by their names in transformers."""
  model = resolve(str(folder))
  config, prefix = model.config, checkpoints.find_checkpoint(str(folder))
  weights = checkpoints.Checkpoint(prefix)
  with variables.VariableStore(initial_values=weights):
    bert = modeling.BertModel(
      config,
      False,
      inputs["input_ids"],
      inputs["input_mask"],
      inputs["segment_ids"],
    )
    if architecture == "BertModel":
      sequence, pooled = bert.get_sequence_output(), bert.get_pooled_output()
      return {"last_hidden_state": sequence, "pooler_output": pooled}
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
      sequence = bert.get_sequence_output()
      logits = pretraining.masked_lm_logits(
        config, modeling.reshape_to_matrix(sequence), bert.get_embedding_table()
      )
      shape = [*sequence.shape[:2], config.vocab_size]
      logits = tf.reshape(logits, shape)
      if architecture == "BertForMaskedLM":
        return {"logits": logits}
      zeros = tf.zeros([shape[0]], tf.int32)
      _, _, follows = pretraining.get_next_sentence_output(
        config, bert.get_pooled_output(), zeros
      )
      return {"prediction_logits": logits, "seq_relationship_logits": follows}
    if architecture == "BertForQuestionAnswering":  # The task masks padding.
      outputs = squad_model.SquadTask().head(ops.TensorOps(), bert, inputs)
      names = ("start_logits", "end_logits")
      return {name: outputs[f"all_{name}"] for name in names}
    if architecture == "BertForMultipleChoice":  # The rows are the choices.
      inputs = {name: value[np.newaxis] for name, value in inputs.items()}
    outputs = TASKS[architecture].head(ops.TensorOps(), bert, inputs)
    return {"logits": outputs["logits"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden, goldens):
  """The golden model with each head, and what transformers makes of it."""
  python = os.environ.get("TRANSFORMERS_PYTHON")
  if not python:
    pytest.skip("TRANSFORMERS_PYTHON is not set")
  base = tmp_path_factory.mktemp("peers")
  rng = np.random.default_rng(5)
  weights = checkpoints.Checkpoint(golden.checkpoint)
  encoder = {n: weights[n] for n in weights.shapes if n.startswith("bert/")}
  for architecture, (shapes, files) in _heads(golden.config).items():
    values = {
      name: rng.normal(0, 0.5, shape).astype(np.float32)
      for name, shape in shapes.items()
    }
    contents = {
      "bert_config.json": golden.config.to_json_string(),
      "vocab.txt": (goldens / "vocab.txt").read_bytes(),
      **files,
    }
    ours = base / "ours" / architecture
    ours.mkdir(parents=True)
    checkpoints.write_release(str(ours), {**encoder, **values}, contents)
    target = base / "converted" / architecture
    assert huggingface.to_huggingface(str(ours), str(target)) == architecture
  np.savez(base / "inputs.npz", **golden.inputs)
  script = pathlib.Path(__file__).parent / "transformers_outputs.py"
  subprocess.run([python, script, base], check=True)
  return base


ARCHITECTURES = [
  "BertModel",
  "BertForPreTraining",
  "BertForMaskedLM",
  "BertForSequenceClassification",
  "BertForTokenClassification",
  "BertForQuestionAnswering",
  "BertForMultipleChoice",
]


def _check(architecture, theirs, ours):
  assert set(theirs.files) == set(ours)
  for name, found in ours.items():
    wanted = theirs[name]
    if name == "seq_relationship_logits":
      wanted = tf.nn.log_softmax(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_converted_models_give_our_outputs(folder, golden, architecture):
  theirs = np.load(folder / "converted" / f"{architecture}.npz")
  ours = _outputs(architecture, folder / "ours" / architecture, golden.inputs)
  _check(architecture, theirs, ours)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_their_models_are_read_directly(folder, golden, architecture):
  theirs = np.load(folder / "saved" / f"{architecture}.npz")
  ours = _outputs(architecture, folder / "saved" / architecture, golden.inputs)
  _check(architecture, theirs, ours)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_their_models_are_converted(folder, golden, architecture, tmp_path):
  source = folder / "saved" / architecture
  huggingface.to_tensorflow(str(source), str(tmp_path / "ours"))
  theirs = np.load(folder / "saved" / f"{architecture}.npz")
  _check(
    architecture,
    theirs,
    _outputs(architecture, tmp_path / "ours", golden.inputs),
  )


CODE = """
import sys

for path in sys.argv[1:]:
  text = open(path).read()
  exec(text.partition("```python")[2].partition("```")[0])
"""


def test_the_code_of_converted_cards_runs(folder):
  python = os.environ["TRANSFORMERS_PYTHON"]
  cards = [f"{name}/README.md" for name in ARCHITECTURES]
  for card in cards:
    assert "library_name: transformers" in (
      folder / "converted" / card
    ).read_text("utf-8")
  subprocess.run(
    [python, "-c", CODE, *cards], cwd=folder / "converted", check=True
  )


PIPELINE = """
import json, sys
import transformers

folder, path = sys.argv[1:]
first, second = zip(*json.loads(open(path).read()))
pipeline = transformers.pipeline("text-classification", folder, top_k=None)
ids = pipeline.tokenizer(list(first), list(second), truncation=True)
pairs = [{"text": a, "text_pair": b} for a, b in zip(first, second)]
answers = [
  {part["label"]: part["score"] for part in pipeline(pair, truncation=True)}
  for pair in pairs
]
open(path, "w").write(json.dumps([ids["input_ids"], answers]))
"""


def test_their_pipeline_cuts_long_pairs_by_one_piece_otherwise(
  golden, goldens, tmp_path
):
  """docs/convert.md says which; of the same pieces, the numbers are equal."""
  python = os.environ.get("TRANSFORMERS_PYTHON")
  if not python:
    pytest.skip("TRANSFORMERS_PYTHON is not set")
  ours, theirs = tmp_path / "ours", tmp_path / "theirs"
  ours.mkdir()
  task_folders.write(ours, "multilabel", golden, goldens)
  huggingface.to_huggingface(str(ours), str(theirs))
  draw = np.random.default_rng(3).integers
  words = ["the", "mountains", "of", "north", "Jim", "made", "puppets"]
  pairs = [
    [" ".join(words[i] for i in draw(7, size=draw(3, 40))) for _ in "ab"]
    for _ in range(60)
  ]
  path = tmp_path / "pairs.json"
  path.write_text(json.dumps(pairs))
  subprocess.run([python, "-c", PIPELINE, theirs, path], check=True)
  all_ids, answers = json.loads(path.read_text())

  model = bert.load(str(ours))
  examples = [model.task.example(*pair) for pair in pairs]
  rows = [
    row for group in model.task.features(examples, False) for row in group
  ]
  sep = model.task.tokenizer.vocab["[SEP]"]
  num_other, room = 0, task_folders.LENGTH - 3
  for row, ids in zip(rows, all_ids, strict=True):
    mine = row["input_ids"] = list(row["input_ids"])
    if mine == ids:
      continue
    num_other += 1
    first, first_of_theirs = mine.index(sep), ids.index(sep)
    assert first == first_of_theirs + 1 == room // 2 + 2
    assert mine[1:first] == [*ids[1:first_of_theirs], mine[first - 1]]
    assert ids[first_of_theirs + 1 : -2] == mine[first + 1 : -1]
    row["input_ids"] = ids
    row["segment_ids"] = [0] * first + [1] * (len(ids) - first)
  assert num_other > 10
  for outputs, answer in zip(model.predictor(rows), answers, strict=True):
    wanted = [answer[name] for name in model.labels]
    np.testing.assert_allclose(outputs["probabilities"], wanted, atol=1e-5)
