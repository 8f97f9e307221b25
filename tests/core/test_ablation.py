"""The ablation of docs/architecture.md, applied to a copy and trained."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import scripts
import tiny_task

from bert.models.checkpoints import Checkpoint

_PAGE = pathlib.Path(scripts.ROOT, "docs", "architecture.md")

# The probabilities of `get_all_attention_probs` by the weights of a layer.
_MAPS = """
import sys, numpy as np, tensorflow as tf, modeling
from bert import variables
config = modeling.BertConfig.from_json_file(sys.argv[1])
ids = tf.constant([[5, 6, 7, 8, 9]])
with variables.VariableStore() as store:
  modeling.BertModel(config, False, ids)
  for name, variable in store.items():
    if name.endswith("query/kernel"):
      variable.assign(tf.zeros_like(variable))
    if name.endswith("relative_bias"):
      rows, heads = variable.shape
      variable.assign([[d * np.log(2.0)] * heads for d in range(rows)])
  model = modeling.BertModel(config, False, ids)
  print(model.get_all_attention_probs()[0][0, 0].numpy().tolist())
  one = model.sequence_output_at(tf.constant([[3]]))[0, 0]
  print(float(np.abs(one - model.get_sequence_output()[0, 3]).max()))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
  """A copy of the sources with the change of the page."""
  root = tmp_path_factory.mktemp("changed")
  for path in pathlib.Path(scripts.ROOT).glob("*.py"):
    shutil.copy(path, root)
  shutil.copytree(
    pathlib.Path(scripts.ROOT, "bert"),
    root / "bert",
    ignore=shutil.ignore_patterns("__pycache__"),
  )
  page = _PAGE.read_text("utf-8")
  (diff,) = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
  subprocess.run(
    ["git", "apply", "-"], cwd=root, input=diff, text=True, check=True
  )
  return root


@pytest.fixture(scope="module")
def config(files, tmp_path_factory):
  """A configuration with distances up to 3."""
  path = tmp_path_factory.mktemp("config") / "bert_config.json"
  fields = json.loads((files / "model" / "bert_config.json").read_text())
  path.write_text(json.dumps({**fields, "relative_positions": 3}))
  return path


def _run(root, *arguments, status=0):
  done = subprocess.run(
    [sys.executable, *map(str, arguments)],
    cwd=root,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == status, done.stderr
  return done


def test_maps_show_what_the_changed_model_computes(changed, config):
  lines = _run(changed, "-c", _MAPS, config).stdout.splitlines()
  probs, difference = map(json.loads, lines)
  # Queries of 0 leave the bias alone: 2^distance, for distances up to 3.
  powers = [2.0 ** np.clip(np.arange(5) - i, -3, 3) for i in range(5)]
  expected = [row / row.sum() for row in powers]
  np.testing.assert_allclose(probs, expected, rtol=1e-5)
  assert difference < 1e-5  # `select` computes the same.


def test_a_changed_model_trains_and_other_formats_refuse_it(
  changed, config, files, tmp_path
):
  out = tmp_path / "out"
  flags = tiny_task.flags(
    files,
    out,
    do_train=True,
    bert_config_file=config,
    init_checkpoint=None,
    num_train_epochs=1,
  )
  _run(changed, "run_classifier.py", *flags)
  trained = Checkpoint(str(out / "bert_model.ckpt"))
  bias = trained["bert/encoder/layer_0/attention/self/relative_bias"]
  assert bias.shape == (7, 4)  # Distances from -3 to 3, four heads.
  assert np.abs(bias).max() > 0
  other = f"--output_dir={tmp_path / 'other'}"
  convert = ["convert_checkpoint.py", f"--model_dir={out}", "--to=huggingface"]
  failed = _run(changed, *convert, other, status=2).stderr.splitlines()[-1]
  assert "relative_bias" in failed
  export = ["export_model.py", f"--model_dir={out}", "--format=onnx", other]
  failed = _run(changed, *export, status=2).stderr.splitlines()[-1]
  assert failed.startswith("error:")
