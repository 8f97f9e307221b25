"""Every script trains every model of BERT's family, and continues exactly."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import scripts

import bert
import create_pretraining_data
import extract_features
import families
import run_classifier
import run_pretraining
import run_squad
from bert.commands import (
  fill_mask,
  run_embeddings,
  run_multiple_choice,
  run_ner,
)
from bert.training import checkpoints

pytestmark = [
  pytest.mark.families,
  # Its native part has no module names, says Python 3.13.
  pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SAMPLES = scripts.ROOT / "sample_data"
FAMILIES = pytest.mark.parametrize("family", families.FAMILIES)

TRAINING = {
  "do_train": True,
  "do_eval": True,
  "max_seq_length": 32,
  "train_batch_size": 4,
  "num_train_epochs": 1.0,
  "save_checkpoints_steps": 2,
  "keep_checkpoint_max": 0,
}
QUESTIONS = scripts.ROOT / "tests" / "goldens" / "squad_v1.json"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
  """A folder with the first rows of each data set."""
  folder = tmp_path_factory.mktemp("data")
  for split in ("train", "dev", "test"):
    lines = (SAMPLES / "multiple_choice" / f"{split}.jsonl").read_text("utf-8")
    rows = lines.splitlines(keepends=True)[:16]
    (folder / f"{split}.jsonl").write_text("".join(rows), "utf-8")
    rows = "one bridge\tgood\nthe river\tbad\n" * 8
    (folder / f"{split}.tsv").write_text("text\tlabel\n" + rows, "utf-8")
    rows = "".join(f"query {n},the answer {n}\n" for n in range(16))
    path = folder / f"{split}_pairs.csv"
    path.write_text("text_a,text_b\n" + rows, "utf-8")
  return folder


def _commands(data):
  """Script and flags of each task."""
  files = {f"{s}_file": str(data / f"{s}.tsv") for s in ("train", "dev")}
  choices = {f"{s}_file": str(data / f"{s}.jsonl") for s in ("train", "dev")}
  pairs = {f"{s}_file": str(data / f"{s}_pairs.csv") for s in ("train", "dev")}
  reading = {"max_seq_length": 48, "doc_stride": 16, "max_query_length": 12}
  questions = {"train_file": str(QUESTIONS), "predict_file": str(QUESTIONS)}
  return {
    "classification": (run_classifier, {"task_name": "custom", **files}),
    "tagging": (
      run_ner,
      {"data_dir": str(SAMPLES / "ner"), "do_predict": True},
    ),
    "multiple choice": (run_multiple_choice, choices),
    "vectors": (run_embeddings, pairs),
    "squad": (
      run_squad,
      {**questions, **reading, "do_predict": True, "do_eval": None},
    ),
  }


INPUTS = {
  "classification": ["one bridge", "the river"],
  "vectors": ["The old bridge", "query 1"],
  "tagging": ["Anna saw the old bridge."],
  "multiple choice": [{"context": "one", "choices": ["two", "the bridge"]}],
  "squad": [("Who closed the bridge?", "The city closed the old bridge.")],
}


@pytest.mark.parametrize("task", INPUTS)
@FAMILIES
def test_a_task_is_trained_and_continued(data, tmp_path, family, task):
  script, flags = _commands(data)[task]
  out, again = tmp_path / "out", tmp_path / "again"
  values = {**TRAINING, **flags, "init_checkpoint": families.path(family)}
  values = {name: v for name, v in values.items() if v is not None}
  script.run(**values, output_dir=str(out))
  answers = bert.load(out)(INPUTS[task])
  assert len(answers) == len(INPUTS[task])
  # A copy of the folder, as a kill after the first checkpoint leaves it.
  shutil.copytree(out, again)
  for path in again.iterdir():
    step = re.match(r"model\.ckpt-(\d+)\.", path.name)
    if path.name.startswith("bert_model.") or (step and int(step[1]) > 2):
      path.unlink()
  script.run(**values, output_dir=str(again))
  name = "bert_model.ckpt.data-00000-of-00001"
  assert (again / name).read_bytes() == (out / name).read_bytes()
  np.testing.assert_equal(bert.load(again)(INPUTS[task]), answers)
  step = checkpoints.Checkpoint(str(out / "bert_model.ckpt")).step
  assert step > 2


@pytest.mark.parametrize("dynamic", [False, True])
@FAMILIES
def test_pretraining_continues_a_model(tmp_path, goldens, family, dynamic):
  base = families.path(family, "ForMaskedLM")
  lengths = {"max_seq_length": 32, "max_predictions_per_seq": 5}
  create_pretraining_data.run(
    input_file=str(goldens / "corpus.txt"),
    output_file=str(tmp_path / "rows"),
    vocab_file=f"{base}/tokenizer.json",
    max_seq_length=32,
    dupe_factor=1,
    num_workers=1,
    next_sentence_prediction=False,
    **(
      {"no_masking": True}
      if dynamic
      else {"max_predictions_per_seq": 5, "do_whole_word_mask": True}
    ),
  )
  found = run_pretraining.run(
    input_file=str(tmp_path / "rows"),
    output_dir=str(tmp_path / "out"),
    init_checkpoint=base,
    do_train=True,
    do_eval=True,
    train_batch_size=8,
    num_train_steps=4,
    num_warmup_steps=1,
    max_eval_steps=2,
    dynamic_masking=dynamic,
    **lengths,
  )
  assert np.isfinite(found["masked_lm_loss"])
  filled = bert.load(tmp_path / "out", "fill_mask")("The old [MASK].")
  assert len(filled["masks"]) == 1
  assert "[MASK]" not in filled["text"]


@FAMILIES
def test_features_and_masks(tmp_path, family, capsys):
  base = families.path(family, "ForMaskedLM")
  path, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
  path.write_text("The old bridge\none ||| two\n", "utf-8")
  extract_features.run(
    input_file=str(path),
    output_file=str(out),
    init_checkpoint=base,
    layers="-1",
  )
  first, pair = map(json.loads, out.read_text("utf-8").splitlines())
  tokenizer = bert.load(base).task.tokenizer
  special = tokenizer.special
  tokens = [feature["token"] for feature in first["features"]]
  wanted = [special.cls, *tokenizer.tokenize("The old bridge"), special.sep]
  assert tokens == wanted
  between = [f["token"] for f in pair["features"]].count(special.sep)
  assert between == 1 + special.between
  path.write_text("The old [MASK].\nThe old bridge.\n", "utf-8")
  fill_mask.run(model_dir=base, input_file=str(path))
  shown = capsys.readouterr().out
  assert "[MASK] 1:" in shown
  assert os.linesep in shown
