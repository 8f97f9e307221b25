"""Scripts as functions: the work, the results and the errors of a command."""

import importlib
import inspect
import json
import re

import pytest
import scripts
import tiny_task
from absl import flags as absl_flags
from source_modules import ALIASES, MODULES

import bert
import create_pretraining_data
import extract_features
import run_classifier
from bert.errors import UserError

SCRIPTS = sorted(
  name.removeprefix("bert.commands.")
  for name, (folder, _) in MODULES.items()
  if name.startswith("bert.commands.")
  or (folder == "scripts" and name in ALIASES)
)

# Numbers that are not used, that may have any value, or that only one of the
# tasks of a script checks.
UNCHECKED = ("num_tpu_cores", "random_seed", "dev_fraction")


def values_of(files, out, **changes):
  """Arguments of `run` for a small MRPC."""
  return {
    "task_name": "MRPC",
    "data_dir": files / "data",
    "init_checkpoint": files / "model",
    "max_seq_length": 48,
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_train_epochs": 1,
    "output_dir": out,
    **tiny_task.HEAD_ONLY,
    **changes,
  }


@pytest.fixture(scope="module", params=SCRIPTS)
def described(request):
  """A script as a module, and what --help says of each flag."""
  script = request.param
  module = getattr(bert, script, None)
  module = module or importlib.import_module(f"bert.{script}")
  shown, _ = scripts.fork(f"{script}.py", "--help", status=1)
  assert module.__doc__.splitlines()[0] in shown
  _, *texts = re.split(r"^  --(?:\[no\])?(?=\w+:)", shown, flags=re.M)
  return module, dict(text.split(":", 1) for text in texts)


def test_a_value_that_a_flag_cannot_have_is_named(described):
  module, flags = described
  for name, text in flags.items():
    wrong = []
    if "(a number" in text or "(a non-negative number" in text:
      wrong = ["nan", "fast"]
    elif "integer" in text.rsplit("(", 1)[-1]:
      wrong = [-2, "one"]
    elif re.match(r" <.*\|", text):
      wrong = ["none_of_them"]
    for value in wrong:
      with pytest.raises(UserError) as error:
        module.run(**{name: value})
      if name not in UNCHECKED:
        assert f"--{name}={value}" in str(error.value)


def test_each_flag_is_defined_once_and_accepted(described):
  module, flags = described
  names = [*inspect.signature(module.run).parameters]
  assert sorted(names) == sorted(flags)
  # None is the default, and each script requires something.
  with pytest.raises(UserError) as error:
    module.run(**dict.fromkeys(names))
  assert "there is no flag" not in str(error.value)


def test_a_function_does_what_the_command_does(files, tmp_path):
  """Several runs are a list; a second call has flags of its own."""
  shell, python = tmp_path / "shell", tmp_path / "python"
  values = values_of(files, shell, do_train=True, do_eval=True)
  command = [f"--{name}={value}" for name, value in values.items()]
  scripts.fork("run_classifier.py", *command)
  found = run_classifier.run(**{**values, "output_dir": python}, num_seeds=2)
  assert [(run.pop("task"), run.pop("seed")) for run in found] == [
    ("MRPC", 1),
    ("MRPC", 2),
  ]
  for seed, run in enumerate(found, 1):
    assert run == pytest.approx(tiny_task.results(python / f"seed-{seed}"))
  assert found[0] == pytest.approx(tiny_task.results(shell), rel=1e-5)
  assert found[0] != found[1]
  recorded = [
    json.loads((folder / "flags.json").read_text())["flags"]
    for folder in (shell, python / "seed-1")
  ]
  for record in recorded:
    for name in ("output_dir", "num_seeds"):
      record.pop(name)
  assert recorded[0] == recorded[1]
  again = run_classifier.run(
    task_name=["MRPC"],
    data_dir=files / "data",
    output_dir=python / "seed-1",
    do_eval="true",
  )
  assert again == pytest.approx(found[0])
  given = json.loads((shell / "flags.json").read_text())["given"]
  assert run_classifier.run(**given) == pytest.approx(found[0], rel=1e-5)
  assert "task_name" not in absl_flags.FLAGS


@pytest.mark.parametrize(
  ("script", "values"),
  [
    ("run_classifier", {"learning_rat": 1}),
    ("run_classifier", {"seed": 1.5}),
    ("run_classifier", {"task_name": "MRPC"}),
    ("run_ner", {"output_dir": "~/x", "do_train": True}),
    ("run_pretraining", {"output_dir": "x", "do_eval": True}),
    ("extract_features", {"input_file": "nowhere", "output_file": "-"}),
    ("create_pretraining_data", {"input_file": "nowhere"}),
    ("serve", {"model_dir": "x", "host": ""}),
  ],
)
def test_an_error_is_the_line_of_the_command(script, values):
  module = importlib.import_module(
    script if script in ALIASES else f"bert.commands.{script}"
  )
  with pytest.raises(UserError) as error:
    module.run(**values)
  command = [f"--{name}={value}" for name, value in values.items()]
  _, log = scripts.fork(f"{script}.py", *command, status=2)
  assert log.splitlines()[-1] == f"error: {error.value}"


def test_results_of_scripts_that_do_not_train(tmp_path, goldens):
  counts = create_pretraining_data.run(
    input_file=goldens / "corpus.txt",
    output_file=tmp_path / "out.tfrecord",
    vocab_file=goldens / "vocab.txt",
    dupe_factor=1,
    num_workers=1,
  )
  assert counts["instances"] > 0
  found = extract_features.run(
    input_file=goldens / "extract_input.txt",
    output_file=tmp_path / "out.jsonl",
    vocab_file=goldens / "vocab.txt",
    bert_config_file=goldens / "model/bert_config.json",
    init_checkpoint=goldens / "model/bert_model.ckpt",
    max_seq_length=16,
  )
  lines = (goldens / "extract_input.txt").read_text().splitlines()
  assert found == {"lines": len(lines)}
