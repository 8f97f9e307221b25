"""Every script trains every model of BERT's family, and continues exactly."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import scripts
import task_runs

import bert
import create_pretraining_data
import extract_features
import families
import run_pretraining
from bert.commands import fill_mask
from bert.models import checkpoints

pytestmark = [
  pytest.mark.families,
  # Its native part has no module names, says Python 3.13.
  pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

FAMILIES = pytest.mark.parametrize("family", families.FAMILIES)
TASKS = task_runs.RUNS.keys() - {"fill_mask", "rating"}


@pytest.fixture(scope="module")
def data(tmp_path_factory, goldens):
  """A folder of files, and the flags of each task."""
  folder = task_runs.make_files(tmp_path_factory.mktemp("data"), goldens)
  return folder, {name: task_runs.RUNS[name].write(folder) for name in TASKS}


@pytest.mark.parametrize("task", sorted(TASKS))
@FAMILIES
def test_a_task_is_trained_and_continued(data, tmp_path, family, task):
  (folder, flags), run = data, task_runs.RUNS[task]
  out, again = tmp_path / "out", tmp_path / "again"
  model = {"init_checkpoint": families.path(family)}
  model |= dict.fromkeys(("vocab_file", "bert_config_file", "freeze_layers"))
  predicts = []
  if task == "squad":
    predicts = ["--do_predict"]
    model |= {"max_seq_length": 48, "doc_stride": 16, "max_query_length": 12}

  def train(where):
    command = task_runs.command(task, folder, where, **{**flags[task], **model})
    scripts.fork(*command, "--do_train", "--do_eval", *predicts)

  train(out)
  questions = run.questions(folder)[:2]
  answers = bert.load(out)(questions)
  assert len(answers) == len(questions)
  # A copy of the folder, as a kill after the first checkpoint leaves it.
  shutil.copytree(out, again)
  for path in again.iterdir():
    step = re.match(r"model\.ckpt-(\d+)\.", path.name)
    if path.name.startswith("bert_model.") or (step and int(step[1]) > 2):
      path.unlink()
  train(again)
  name = "bert_model.ckpt.data-00000-of-00001"
  assert (again / name).read_bytes() == (out / name).read_bytes()
  np.testing.assert_equal(bert.load(again)(questions), answers)
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
