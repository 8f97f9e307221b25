"""Each format of a model of BERT's family has the same numbers and answers."""

import json

import formats
import numpy as np
import pytest
import served
import tokenizers
from safetensors import numpy as safetensors

import bert
import families
from bert.export import huggingface
from bert.models.huggingface_names import DECODERS
from bert.serving import rest

INPUTS = {
  "Model": ["The old bridge", "Who wrote it?"],
  "ForMaskedLM": ["The old [MASK] over the [MASK].", ("one", "two [MASK]")],
  "ForSequenceClassification": ["The old bridge", ("Who closed it?", "one")],
  "ForTokenClassification": ["The old bridge was closed.", "one two"],
  "ForQuestionAnswering": [
    ("Who closed the bridge?", "The old bridge was closed by the city. " * 5),
    ("What?", "one"),
  ],
  "ForMultipleChoice": [{"context": "one", "choices": ["two", "the bridge"]}],
}

pytestmark = pytest.mark.families

FAMILIES = pytest.mark.parametrize("family", families.FAMILIES)
HEADS = pytest.mark.parametrize("head", families.HEADS)
TASK_HEADS = pytest.mark.parametrize("head", families.HEADS[2:])


def _load(folder, head):
  return bert.load(folder, "fill_mask" if head == "ForMaskedLM" else None)


@HEADS
@FAMILIES
def test_answers_after_a_conversion_and_back(tmp_path, family, head):
  theirs = families.path(family, head)
  ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
  huggingface.to_tensorflow(theirs, ours)
  architecture = huggingface.to_huggingface(ours, back)
  assert architecture.endswith(head)
  first, *others = (
    _load(folder, head)(INPUTS[head]) for folder in (theirs, ours, back)
  )
  for answers in others:
    np.testing.assert_equal(answers, first)
  before, after = (
    safetensors.load_file(f"{folder}/model.safetensors")
    for folder in (theirs, back)
  )
  assert before.keys() - DECODERS == after.keys()
  for name, value in after.items():
    np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("make", [formats.saved_model, formats.onnx])
@TASK_HEADS
@FAMILIES
def test_numbers_of_exported_models(tmp_path, family, head, make):
  model = _load(families.path(family, head), head)
  formats.check_numbers(model, INPUTS[head], make(model, str(tmp_path)))


@FAMILIES
def test_other_programs_split_labeled_words_alike(tmp_path, family):
  model = bert.load(families.path(family, "ForTokenClassification"))
  example = model.task.example("The old bridge, over the river.")
  ((row,),) = model.task.features([example], False)
  folder = tmp_path / "there"
  huggingface.to_huggingface(model.folder, str(folder))
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
  encoded = tokenizer.encode(example.words, is_pretokenized=True)
  mask = np.array(row["input_mask"]) > 0
  assert encoded.ids == np.array(row["input_ids"])[mask].tolist()
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  assert settings.get("add_prefix_space", True)
  has_segments = "token_type_ids" in settings["model_input_names"]
  assert has_segments == (family in ("albert", "electra"))


@HEADS
@FAMILIES
def test_answers_by_another_runtime(tmp_path, family, head):
  folder = str(tmp_path / "model")
  huggingface.to_tensorflow(families.path(family, head), folder)
  task = "fill_mask" if head == "ForMaskedLM" else None
  ours, theirs = (
    bert.load(folder, task, runtime=runtime)(INPUTS[head])
    for runtime in ("tensorflow", "onnxruntime")
  )
  assert formats.same(theirs, ours, 1e-4)


@TASK_HEADS
@FAMILIES
def test_answers_of_the_server(family, head):
  model = bert.load(families.path(family, head))
  for value in INPUTS[head]:
    wanted = rest.to_json(model(value))
    assert formats.same(served.ask(model, value), wanted, 1e-4)
