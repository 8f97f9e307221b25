"""What is wrong with flags and folders is one line, and leaves nothing."""

import json
import shutil

import mistakes
import pytest
import scripts

from bert.commands import export_model
from bert.flags.values import Flags

MISTAKES = """
--output_dir=
  --output_dir is required
--model_dir=FILES
  FILES contains no bert_config.json ... pass the folder
--model_dir=uncased_L-2_H-128_A-4
  no folder uncased ... did you mean 'uncased_L-2_H-128_A-2'?
--output_dir=FILES/model
  FILES/model is not an empty folder; pass the path of a new one
--output_dir=FILES/model/vocab.txt/out
  --output_dir=FILES/model/vocab.txt/out ... is not a writable folder
--quantize=dynamic
  --quantize=dynamic: --format=saved_model has none
--quantize=float16 --format=onnx
  --quantize=float16: --format=onnx has none or dynamic
--precision=int8
  --precision=int8: --format=saved_model has float32; ... --format=onnx
--precision=int8 --format=tflite
  --precision=int8 ... pass --format=onnx, or --quantize
--part=encoder --format=tflite
  --part=encoder: --format=tflite has task; pass that
--part=fill_mask
  --part=fill_mask: --format=saved_model has task or encoder or preprocess
--part=preprocess --max_seq_length=999
  --max_seq_length=999 ... 128 positions ... lower it
--model_dir=FILES/damaged
  FILES/damaged/task.json is damaged ... copy it again
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A release, and folders of tasks."""
  folder = tmp_path_factory.mktemp("files")
  shutil.copytree(goldens / "model", folder / "model")
  shutil.copy(goldens / "vocab.txt", folder / "model")
  damaged = shutil.copytree(folder / "model", folder / "damaged")
  fields = {"task": "squad", "max_seq_length": "long"}
  (damaged / "task.json").write_text(json.dumps(fields))
  return folder


def test_a_saved_model_has_its_configuration(files, tmp_path):
  """Its variables tell neither the activation nor, in this case, the heads."""
  model = shutil.copytree(files / "model", tmp_path / "model")
  fields = json.loads((model / "bert_config.json").read_text())
  wanted = {**fields, "hidden_act": "relu", "do_lower_case": False}
  (model / "bert_config.json").write_text(json.dumps(wanted))
  for script, flag, source, target, line in (
    ("export_model.py", "--part=task", "model", "saved", "the model"),
    ("convert_checkpoint.py", "--to=tensorflow", "saved", "back", tmp_path),
  ):
    _, log = scripts.fork(
      script,
      flag,
      f"--model_dir={tmp_path / source}",
      f"--output_dir={tmp_path / target}",
    )
    assert f"Wrote {line}" in log
  found = json.loads((tmp_path / "back" / "bert_config.json").read_text())
  assert found == wanted
  assert (tmp_path / "saved" / "assets.extra" / "vocab.txt").exists()


@pytest.mark.parametrize(
  ("values", "has_task", "unused"),
  [
    ({}, False, ""),
    ({}, True, "--pooling=max, --normalize=True, --max_seq_length=9"),
    ({"format": "tflite"}, True, "--pooling=max, --normalize=True"),
    ({"format": "onnx"}, False, ""),
    (
      {"format": "onnx", "part": "fill_mask"},
      False,
      "--pooling=max, --normalize=True, --max_seq_length=9",
    ),
    ({"part": "preprocess"}, False, "--pooling=max, --normalize=True"),
  ],
)
def test_flags_without_effect_are_named(caplog, values, has_task, unused):
  given = {"pooling": "max", "normalize": True, "max_seq_length": 9, **values}
  caplog.set_level("WARNING", "absl")
  export_model.warn_of_unused(Flags(export_model.FLAGS, given), has_task)
  expected = [f"{unused} are not used; omit them"] if unused else []
  assert caplog.messages == expected


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, mistake):
  good = {"model_dir": files / "model", "output_dir": files / "out/new"}
  mistakes.check(mistake, "export_model.py", files, good, FILES=files)
