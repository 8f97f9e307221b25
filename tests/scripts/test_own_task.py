"""docs/add-a-task.md: the task there, from its files to every format."""

import csv
import json
import os
import re
import signal
import socket
import time

import mistakes
import pytest
import scripts
import served

from bert.contract.ops import TensorOps

PAGE = (scripts.ROOT / "docs/add-a-task.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE.split("Write it as")[0], re.S)

TEXTS = {"travel": "the city", "food": "the bread"}
TONES = {"good": "is old and great", "bad": "was in the war"}
OWN = "--task_module=two_labels"


def write_rows(path, repeats):
  with open(path, "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["text", "topic", "tone"])
    for _ in range(repeats):
      for topic, text in TEXTS.items():
        for tone, end in TONES.items():
          table.writerow([f"{text} {end}", topic, tone])


@pytest.fixture(scope="module")
def folder(files):
  """A folder with the task, its data and a trained model."""
  folder = files / "own"
  folder.mkdir()
  (folder / "two_labels.py").write_text(CODE, encoding="utf-8")
  for split, repeats in (("train", 24), ("dev", 2), ("test", 1)):
    write_rows(folder / f"{split}.csv", repeats)
  _, log = scripts.fork(
    folder / "two_labels.py",
    *(f"--do_{what}=true" for what in ("train", "eval", "predict")),
    *(f"--{split}_file={split}.csv" for split in ("train", "dev", "test")),
    f"--init_checkpoint={files / 'model'}",
    "--max_seq_length=16",
    "--learning_rate=3e-3",
    "--train_batch_size=16",
    "--num_train_epochs=10",
    "--output_dir=trained",
    cwd=folder,
  )
  assert "4 initialized" in log
  return folder


def answers_of(folder, model):
  """What `bert.load` says in a fresh process, of one text for each pair."""
  texts = [f"{a} {b}" for a in TEXTS.values() for b in TONES.values()]
  path = folder / "ask.py"
  path.write_text(
    "import bert, json\n"
    "bert.register('two_labels')\n"
    f"print(json.dumps(bert.load({model!r})({texts!r})))\n",
    encoding="utf-8",
  )
  return json.loads(scripts.fork(path, cwd=folder)[0])


def test_it_fits_on_a_page():
  assert len(CODE.splitlines()) <= 80


def test_all_operations_are_listed():
  names = [name for name in vars(TensorOps) if not name.startswith("_")]
  assert len(names) > 9
  assert [name for name in names if f"`{name}(x" not in PAGE] == []


def test_it_trains_and_answers(folder):
  results = json.loads((folder / "trained/eval_results.json").read_text())
  assert results["results"]["eval_topic_accuracy"] == 1
  assert results["results"]["eval_tone_accuracy"] == 1
  record = json.loads((folder / "trained/task.json").read_text())
  assert record == {
    "task": "two labels",
    "max_seq_length": 16,
    "topic": sorted(TEXTS),
    "tone": sorted(TONES),
  }
  wanted = [{"topic": a, "tone": b} for a in TEXTS for b in TONES]
  assert answers_of(folder, "trained") == wanted
  texts = [f"{a} {b}" for a in TEXTS.values() for b in TONES.values()]
  lines = (folder / "trained/test_predictions.jsonl").read_text().splitlines()
  assert list(map(json.loads, lines)) == [
    {"id": str(n), "text": text, **answer}
    for n, (text, answer) in enumerate(zip(texts, wanted, strict=True))
  ]
  shown, _ = scripts.fork(
    folder / "two_labels.py",
    "--interactive",
    "--output_dir=trained",
    cwd=folder,
    stdin="the city is old and great\n",
  )
  assert "topic: travel\ntone: good\n" in shown


def test_an_unknown_label_is_one_line(folder):
  (folder / "odd.csv").write_text("text,topic,tone\nthe city,travel,odd\n")
  flags = "--do_eval=true --dev_file=odd.csv --init_checkpoint=trained"
  mistake = flags, "odd.csv:2: tone=odd; pass ('bad', 'good')"
  script, out = folder / "two_labels.py", {"output_dir": "odd"}
  mistakes.check(mistake, script, folder / "trained", out, folder)


def test_an_unknown_task_is_one_line(folder):
  good = {"model_dir": "trained", "output_dir": "none", "format": "onnx"}
  mistake = "", "'two labels' ... --task_module"
  mistakes.check(mistake, "export_model.py", folder, good, folder)


def test_it_is_served(folder):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  process = scripts.Fork(
    "serve.py", OWN, "--model_dir=trained", f"--port={port}", cwd=folder
  )
  deadline = time.monotonic() + 60
  while True:
    try:
      answer = served.Client(port).answer("the bread was in the war")
      break
    except ConnectionError:
      assert time.monotonic() < deadline
      time.sleep(0.05)
  os.kill(process.pid, signal.SIGTERM)
  assert process.wait()[0] == 0
  assert answer == (200, {"topic": "food", "tone": "bad"})


@pytest.mark.parametrize(
  ("script", "flag", "path"),
  [
    ("convert_checkpoint.py", "--to=huggingface", "config.json"),
    ("export_model.py", "--format=onnx", "model.onnx"),
  ],
)
def test_other_scripts_find_it_by_its_module(folder, script, flag, path):
  """What they write is compared in test_every_task.py."""
  out = f"--output_dir={path}"
  scripts.fork(script, OWN, flag, "--model_dir=trained", out, cwd=folder)
  assert (folder / path / path).exists()
