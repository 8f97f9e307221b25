"""docs/add-a-task.md: the tasks there, from their files to every format."""

import ast
import csv
import json
import os
import re
import signal
import socket
import time

import mistakes
import numpy as np
import onnxruntime
import pytest
import scripts
import served
import task_folders

import bert
from bert.contract.ops import TensorOps
from bert.export import huggingface

PAGE = (scripts.ROOT / "docs/add-a-task.md").read_text(encoding="utf-8")
CODE, _, ZERO_SHOT = re.findall(r"```python\n(.*?)```", PAGE, re.S)

TEXTS = {"travel": "the city", "food": "the bread"}
STARS = {2.0: "is old and great", 1.0: "was in the war"}
OWN = "--task_module=rating"


def write_rows(path, repeats):
  with open(path, "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["text", "topic", "stars"])
    for _ in range(repeats):
      for topic, text in TEXTS.items():
        for stars, end in STARS.items():
          table.writerow([f"{text} {end}", topic, stars])


@pytest.fixture(scope="module")
def folder(files):
  """A folder with the first task, its data and a trained model."""
  folder = files / "own"
  folder.mkdir()
  (folder / "rating.py").write_text(CODE, encoding="utf-8")
  for split, repeats in (("train", 24), ("dev", 2), ("test", 1)):
    write_rows(folder / f"{split}.csv", repeats)
  _, log = scripts.fork(
    folder / "rating.py",
    *(f"--do_{what}=true" for what in ("train", "eval", "predict")),
    *(f"--{split}_file={split}.csv" for split in ("train", "dev", "test")),
    f"--init_checkpoint={files / 'model'}",
    "--max_seq_length=16",
    "--learning_rate=1e-3",
    "--train_batch_size=16",
    "--num_train_epochs=20",
    "--output_dir=trained",
    cwd=folder,
  )
  assert "4 initialized" in log
  return folder


def near(number):
  """The number, as batches of another size round it."""
  return pytest.approx(number, abs=1e-5)


def answers_of(folder, model):
  """What `bert.load` says in a fresh process, of one text for each pair."""
  texts = [f"{a} {b}" for a in TEXTS.values() for b in STARS.values()]
  path = folder / "ask.py"
  path.write_text(
    "import bert, json\n"
    "bert.register('rating')\n"
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
  record = json.loads((folder / "trained/task.json").read_text())
  assert record == {
    "task": "rating",
    "max_seq_length": 16,
    "topics": sorted(TEXTS),
  }
  answers = answers_of(folder, "trained")
  wanted = [(topic, stars) for topic in TEXTS for stars in STARS]
  assert [answer["topic"] for answer in answers] == [pair[0] for pair in wanted]
  errors = np.subtract([a["stars"] for a in answers], [w[1] for w in wanted])
  assert np.abs(errors).max() < 0.5
  # The development set has each text twice.
  found = results["results"]["eval_stars_mse"]
  assert found == pytest.approx(np.mean(errors**2), rel=1e-3)
  texts = [f"{a} {b}" for a in TEXTS.values() for b in STARS.values()]
  lines = (folder / "trained/test_predictions.jsonl").read_text().splitlines()
  assert list(map(json.loads, lines)) == [
    {"id": str(n), "text": text, **answer, "stars": near(answer["stars"])}
    for n, (text, answer) in enumerate(zip(texts, answers, strict=True))
  ]
  shown, _ = scripts.fork(
    folder / "rating.py",
    "--interactive",
    "--output_dir=trained",
    cwd=folder,
    stdin="the city is old and great\n",
  )
  assert re.search(r"topic: travel\nstars: [12]\.\d+\n", shown)


@pytest.mark.parametrize("row", ["travel,odd", "odd,1.0", "travel,"])
def test_a_wrong_value_is_one_line(folder, row):
  (folder / "odd.csv").write_text(f"text,topic,stars\nthe city,{row}\n")
  topic, stars = row.split(",")
  flags = "--do_eval=true --dev_file=odd.csv --init_checkpoint=trained"
  line = f"odd.csv:2: {topic=} {stars=}; pass one of ('food', 'travel'), and a"
  mistake = flags, line
  script, out = folder / "rating.py", {"output_dir": "odd"}
  mistakes.check(mistake, script, folder / "trained", out, folder)


def test_an_unknown_task_is_one_line(folder):
  good = {"model_dir": "trained", "output_dir": "none", "format": "onnx"}
  mistake = "", "'rating' ... --task_module"
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
      client = served.Client(port)
      status, answer = client.answer("the bread was in the war")
      _, metadata, _ = client.request("/v1/models/trained/metadata")
      break
    except ConnectionError:
      assert time.monotonic() < deadline
      time.sleep(0.05)
  os.kill(process.pid, signal.SIGTERM)
  assert process.wait()[0] == 0
  assert status == 200
  *_, known = answers_of(folder, "trained")
  assert answer == {"topic": "food", "stars": near(known["stars"])}
  assert answer["stars"] == round(answer["stars"], 6)
  (signature,) = metadata["metadata"]["signature_def"]["signature_def"].values()
  stars = signature["outputs"]["stars"]
  assert stars["dtype"] == "DT_FLOAT"
  assert len(stars["tensor_shape"]["dim"]) == 1


def test_it_is_converted(folder):
  """What this and the next test write is compared in test_every_task.py."""
  flags = "--to=huggingface", "--model_dir=trained", "--output_dir=theirs"
  scripts.fork("convert_checkpoint.py", OWN, *flags, cwd=folder)
  assert (folder / "theirs/config.json").exists()


def test_it_is_exported(folder):
  flags = "--format=onnx", "--model_dir=trained", "--output_dir=onnx"
  scripts.fork("export_model.py", OWN, *flags, cwd=folder)
  session = onnxruntime.InferenceSession(str(folder / "onnx/model.onnx"))
  found = {x.name: (x.type, x.shape) for x in session.get_outputs()}
  assert found == {
    "topic": ("tensor(float)", ["batch", len(TEXTS)]),
    "stars": ("tensor(float)", ["batch"]),
  }


@pytest.fixture(scope="module", params=["ours", "theirs"])
def classifier(request, tmp_path_factory, golden, goldens):
  """The folder of a classifier of entailment, of each format."""
  folder = tmp_path_factory.mktemp("mnli_output")
  ours = task_folders.write_nli(folder, golden, goldens)
  if request.param == "ours":
    return ours
  theirs = str(folder / "theirs")
  huggingface.to_huggingface(ours, theirs)
  return theirs


def test_a_classifier_of_entailment_chooses_among_new_labels(
  classifier, tmp_path
):
  script = tmp_path / "zero_shot.py"
  code = ZERO_SHOT.replace("/tmp/mnli_output", classifier)
  script.write_text(code, encoding="utf-8")
  printed, _ = scripts.fork(script, cwd=tmp_path)
  found = ast.literal_eval(printed)
  labels = ["politics", "sport"]
  assert found.keys() == {"labels", "probabilities"}
  assert found["labels"] == labels
  model = bert.load(classifier)
  premise, index = "The striker scored twice.", model.labels.index("entailment")
  pairs = [(premise, f"This example is {label}.") for label in labels]
  # The softmax of the classifier's logits of entailment.
  powers = np.exp([a.logits[index] for a in model.answers(pairs)])
  wanted = powers / powers.sum()
  np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-6)
  assert abs(wanted[0] - wanted[1]) > 0.01
