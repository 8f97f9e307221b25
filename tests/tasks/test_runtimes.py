"""Each class that answers from a model folder gives an engine's answers."""

import numpy as np
import pytest
import task_folders

from bert.tasks import (
  chooser,
  classifier,
  features,
  fill_mask,
  squad_reader,
  tagger,
)

TEXTS = ["Jim Henson was a puppeteer", "the mountains of the north"]
PAIR = tuple(TEXTS)


def classify(folder, runtime):
  return classifier.Classifier(folder, runtime=runtime).probabilities(TEXTS)


def read(folder, runtime):
  found = squad_reader.Reader(folder, runtime=runtime)(*PAIR)
  return {candidate.text: candidate.probability for candidate in found}


def tag(folder, runtime):
  found = tagger.Tagger(folder, runtime=runtime)(TEXTS[0])
  return {entity.text: entity.probability for entity in found}


def choose(folder, runtime):
  return chooser.Chooser(folder, runtime=runtime)("He", TEXTS)


def fill(folder, runtime):
  (found,) = fill_mask.MaskFiller(folder, runtime=runtime)([PAIR])
  return [*(score for _, score in found.words), found.next_sentence_probability]


def extract(folder, runtime):
  run = features.FeatureExtractor(
    folder,
    layers=[-1, -2],
    pooling="mean",
    layer_combination="concat",
    runtime=runtime,
  )
  return run.vectors(TEXTS)


CLASSES = {
  classify: "classification",
  read: "squad",
  tag: "tagging",
  choose: "multiple choice",
  fill: "",
  extract: "",
}


@pytest.mark.parametrize("answer", CLASSES)
def test_answers_are_those_of_tensorflow(tmp_path, golden, goldens, answer):
  folder = task_folders.write(tmp_path, CLASSES[answer], golden, goldens)
  by_tensorflow, by_engine = (
    answer(folder, runtime) for runtime in ("tensorflow", "onnxruntime")
  )
  assert len(list((tmp_path / "onnx").iterdir())) == 1
  if isinstance(by_engine, dict):
    assert by_engine.keys() == by_tensorflow.keys()
    by_tensorflow, by_engine = (
      list(found.values()) for found in (by_tensorflow, by_engine)
    )
  np.testing.assert_allclose(by_engine, by_tensorflow, atol=1e-4)
