"""docs/add-a-task.md: the task there, from its files to every format."""

import csv
import json
import os
import re
import signal
import socket
import time
import urllib.request

import numpy as np
import pytest
import scripts

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
def folder(tmp_path_factory, goldens):
  """A folder with the task, its data and a trained model."""
  folder = tmp_path_factory.mktemp("own")
  (folder / "two_labels.py").write_text(CODE, encoding="utf-8")
  for split, repeats in (("train", 24), ("dev", 2), ("test", 1)):
    write_rows(folder / f"{split}.csv", repeats)
  _, log = scripts.fork(
    folder / "two_labels.py",
    *(f"--do_{what}=true" for what in ("train", "eval", "predict")),
    *(f"--{split}_file={split}.csv" for split in ("train", "dev", "test")),
    f"--vocab_file={goldens / 'vocab.txt'}",
    f"--bert_config_file={goldens / 'model/bert_config.json'}",
    f"--init_checkpoint={goldens / 'model/bert_model.ckpt'}",
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


def test_it_trains_and_predicts(folder):
  results = json.loads((folder / "trained/eval_results.json").read_text())
  assert results["results"]["topic_accuracy"] == 1
  assert results["results"]["tone_accuracy"] == 1
  lines = (folder / "trained/test_predictions.jsonl").read_text().splitlines()
  wanted = [{"topic": a, "tone": b} for a in TEXTS for b in TONES]
  assert list(map(json.loads, lines)) == wanted
  record = json.loads((folder / "trained/task.json").read_text())
  assert record == {
    "task": "two labels",
    "max_seq_length": 16,
    "topic": sorted(TEXTS),
    "tone": sorted(TONES),
  }
  assert (folder / "trained/report.html").exists()


def test_it_answers(folder):
  wanted = [{"topic": a, "tone": b} for a in TEXTS for b in TONES]
  assert answers_of(folder, "trained") == wanted
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
  _, log = scripts.fork(
    folder / "two_labels.py",
    *("--do_eval=true", "--dev_file=odd.csv", "--init_checkpoint=trained"),
    "--output_dir=odd",
    cwd=folder,
    status=2,
  )
  *_, line = log.splitlines()
  assert line == "error: odd.csv:2: tone=odd; pass ('bad', 'good')"


def test_an_unknown_task_is_one_line(folder):
  _, log = scripts.fork(
    "export_model.py",
    "--model_dir=trained",
    "--format=onnx",
    "--output_dir=none",
    cwd=folder,
    status=2,
  )
  assert "'two labels'" in log
  assert "--task_module" in log


def test_it_is_served(folder):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  process = scripts.Fork(
    "serve.py", OWN, "--model_dir=trained", f"--port={port}", cwd=folder
  )
  body = json.dumps({"text": "the bread was in the war"}).encode()
  url = f"http://127.0.0.1:{port}/answer"
  deadline = time.monotonic() + 60
  while True:
    try:
      with urllib.request.urlopen(url, body) as reply:
        answer = json.load(reply)
      break
    except urllib.error.URLError:
      assert time.monotonic() < deadline
      time.sleep(0.05)
  os.kill(process.pid, signal.SIGTERM)
  assert process.wait()[0] == 0
  assert answer == {"topic": "food", "tone": "bad"}


def test_hugging_faces_format_and_back(folder):
  scripts.fork(
    "convert_checkpoint.py",
    OWN,
    "--to=huggingface",
    "--model_dir=trained",
    "--output_dir=there",
    cwd=folder,
  )
  config = json.loads((folder / "there/config.json").read_text())
  assert config["architectures"] == ["BertModel"]
  assert answers_of(folder, "there") == answers_of(folder, "trained")
  scripts.fork(
    "convert_checkpoint.py",
    OWN,
    "--to=tensorflow",
    "--model_dir=there",
    "--output_dir=back",
    cwd=folder,
  )
  for path in (folder / "back").glob("bert_model.ckpt.*"):
    assert path.read_bytes() == (folder / "trained" / path.name).read_bytes()


def test_onnx(folder, goldens):
  onnxruntime = pytest.importorskip("onnxruntime")
  scripts.fork(
    "export_model.py",
    OWN,
    "--format=onnx",
    "--model_dir=trained",
    "--output_dir=onnx",
    cwd=folder,
  )
  session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
  vocab = (goldens / "vocab.txt").read_text(encoding="utf-8").split("\n")
  pieces = ["[CLS]", "the", "city", "was", "in", "the", "war", "[SEP]"]
  ids = np.array([list(map(vocab.index, pieces))])
  row = {
    "input_ids": ids,
    "input_mask": np.ones_like(ids),
    "segment_ids": np.zeros_like(ids),
  }
  names = [output.name for output in session.get_outputs()]
  found = dict(zip(names, session.run(None, row), strict=True))
  assert sorted(TEXTS)[found["topic"].argmax()] == "travel"
  assert sorted(TONES)[found["tone"].argmax()] == "bad"
