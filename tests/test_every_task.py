"""What holds for every kind of task, from its files to every format.

A kind that is new in the registry needs a row in task_runs.py.
"""

import functools
import html
import json
import os
import re
import shutil
import statistics
import subprocess
import venv

import formats
import huggingface_hub
import no_tensorflow
import numpy as np
import pytest
import scripts
import served
import tensorflow as tf
import task_runs
import tiny_task
import web_page
from formats import same
from task_runs import RUNS

import bert
from bert.contract import registry
from bert.data import records
from bert.errors import UserError
from bert.export import huggingface
from bert.models import checkpoints
from bert.reports import training_page
from bert.serving import rest

LENGTHS = ("max_seq_length", "doc_stride", "max_query_length")
WEIGHTS = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")

# A pre-trained model fills masks and gives vectors without any training.
TRAINED = [name for name in RUNS if name not in registry.UNTRAINED]
PREDICTED = [name for name, run in RUNS.items() if run.answers]

every_kind = pytest.mark.parametrize("name", RUNS)
every_trained_kind = pytest.mark.parametrize("name", TRAINED)


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  return task_runs.make_files(tmp_path_factory.mktemp("files"), goldens)


@pytest.fixture(scope="module")
def command(files):
  """A function from a kind and a folder to the command of its training."""
  flags = {name: run.write(files) for name, run in RUNS.items()}

  def make(name, out, *actions, **changes):
    made = task_runs.command(name, files, out, **{**flags[name], **changes})
    return [*made, *(actions or actions_of(name))]

  return make


def actions_of(name):
  predicts = ["--do_predict"] if RUNS[name].predictions else []
  return ["--do_train", "--do_eval", *predicts]


@pytest.fixture(scope="module")
def train(files, command):
  """A function from a kind to the folder and the log of its training."""
  found = {}

  def trained(name):
    if name not in found:
      out = files / "trained" / name
      found[name] = out, scripts.fork(*command(name, out))[1]
    return found[name]

  return trained


@pytest.fixture
def load(train, files, monkeypatch):
  """A function from a kind to its trained model."""
  monkeypatch.syspath_prepend(files)

  def load(name, folder=None, **options):
    if RUNS[name].kind not in registry.kinds():
      registry.register("rating")
    return bert.load(folder or train(name)[0], RUNS[name].kind, **options)

  return load


def contents(name, folder):
  """What a training and its predictions leave, by the name of the file."""
  names = (*WEIGHTS, *RUNS[name].predictions, "eval_results.txt")
  return {name: (folder / name).read_bytes() for name in names}


def refused(arguments):
  """The last line of a command that must fail."""
  _, log = scripts.fork(*arguments, status=2)
  assert "Traceback" not in log
  return log.splitlines()[-1]


def test_every_kind_is_here(tmp_path):
  script = tmp_path / "kinds.py"
  script.write_text(
    "import json; from bert.contract import registry; "
    "print(json.dumps(registry.kinds()))"
  )
  kinds, _ = scripts.fork(script)
  assert set(json.loads(kinds)) < {run.kind for run in RUNS.values()}


# The script.


@every_kind
def test_a_training_leaves_a_model_folder(train, files, name):
  out, log = train(name)
  assert re.search(r"loaded \d+ variables; \d initialized", log)
  assert "Traceback" not in log
  assert f"The trained model is in {out}" in log
  results = tiny_task.results(out)
  details = json.loads((out / "eval_results.json").read_text())["results"]
  assert details == pytest.approx(results, rel=1e-6)
  assert results["global_step"] > 1
  assert not [path for path in os.listdir(out) if "partial" in path]
  record = json.loads((out / "flags.json").read_text())
  assert {"tensorflow", "python"} < record["versions"].keys()
  assert "train" in record["data"]
  vocabulary = (files / "model" / "vocab.txt").read_bytes()
  assert (out / "vocab.txt").read_bytes() == vocabulary
  if name == "fill_mask":  # Which any pre-trained model is.
    return
  task = json.loads((out / "task.json").read_text())
  assert task["task"] == RUNS[name].kind
  page = web_page.Page((out / "report.html").read_text())
  shown = {row[0] for row in page.tables["Metrics"]}
  assert {training_page.metric_name(n) for n in results} <= shown
  assert len(shown) == len(page.tables["Metrics"])  # The loss, too, once.
  classes = {table["class"] for table in page.named("table")}
  assert {"plain"} <= classes <= {"plain", "errors", "matrix"}
  cells = [*page.named("td"), *page.named("th")]
  numbers = [cell for cell in cells if "number" in cell.get("class", "")]
  assert len(numbers) >= len(results)


@every_kind
def test_nothing_left_to_train_changes_nothing(train, command, tmp_path, name):
  out = shutil.copytree(train(name)[0], tmp_path / "out")
  _, log = scripts.fork(*command(name, out))
  assert "Nothing left to train" in log
  assert contents(name, out) == contents(name, train(name)[0])


def test_a_finished_training_without_an_evaluation_keeps_the_report(
  train, command, tmp_path
):
  out = shutil.copytree(train("classification")[0], tmp_path / "out")
  report = (out / "report.html").read_bytes()
  training = actions_of("classification")[0]
  _, log = scripts.fork(*command("classification", out, training))
  assert "Nothing left to train" in log
  assert (out / "report.html").read_bytes() == report
  (out / "report.html").unlink()
  scripts.fork(*command("classification", out, training))
  assert (out / "report.html").exists()


@every_kind
def test_killed_and_started_again_ends_in_the_same_bytes(
  train, command, tmp_path, name
):
  out = tmp_path / "out"
  scripts.kill_when(out / "model.ckpt-2.index", *command(name, out))
  _, log = scripts.fork(*command(name, out))
  # On a busy machine, the last update may come before the signal.
  wanted = f"Continuing from {out}/model.ckpt-", "Nothing left to train"
  assert any(message in log for message in wanted)
  assert contents(name, out) == contents(name, train(name)[0])


@pytest.mark.parametrize("name", ["classification", "squad", "vectors"])
def test_rows_that_memory_does_not_hold_end_in_the_same_bytes(
  train, command, tmp_path, name
):
  script, out = tmp_path / "limited.py", tmp_path / "out"
  script.write_text(
    "import runpy, sys; from bert.engine import inputs; "
    "inputs.MEMORY_BYTES = 0; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
  )
  called, *arguments = command(name, out)
  scripts.fork(script, scripts.ROOT / called, *arguments)
  assert contents(name, out) == contents(name, train(name)[0])
  path = "train.tf_record"
  assert (out / path).read_bytes() == (train(name)[0] / path).read_bytes()


@every_trained_kind
def test_examples_of_both_sets_are_counted(files, command, tmp_path, name):
  changes = {"dev_file": RUNS[name].write(files).get("train_file")}
  if name == "squad":
    changes = {"predict_file": changes["dev_file"]}
  elif name in ("classification", "few_shot"):
    changes = {"data_dir": tmp_path}
    for file in ("train.tsv", "dev.tsv"):
      shutil.copy(files / "data" / "train.tsv", tmp_path / file)
  out = tmp_path / "out"
  _, log = scripts.fork(
    *command(name, out, "--do_train", "--do_eval", **changes)
  )
  found = (
    r"(\d+) of the \1 development examples \(100.0 %\) are also in the "
    r"training set, starting with \S+"
  )
  assert re.search(found, log)
  assert re.search(found, html.unescape((out / "report.html").read_text()))


@every_kind
def test_the_folder_alone_is_evaluated_again(train, command, tmp_path, name):
  """With the vocabulary, the configuration and the settings in it."""
  out = shutil.copytree(train(name)[0], tmp_path / "out")
  before = (out / "eval_results.txt").read_bytes()
  (out / "eval_results.txt").unlink()
  parts = ("vocab_file", "bert_config_file", "init_checkpoint")
  if name == "fill_mask":
    parts = ("init_checkpoint",)
  scripts.fork(*command(name, out, "--do_eval", **dict.fromkeys(parts)))
  assert (out / "eval_results.txt").read_bytes() == before


@every_kind
def test_any_checkpoint_of_the_folder_is_evaluated(
  train, command, tmp_path, name
):
  """And a training that names one continues from the last."""
  out = shutil.copytree(train(name)[0], tmp_path / "out")
  before = contents(name, out)
  for step in (1, int(tiny_task.results(out)["global_step"])):
    given = {"init_checkpoint": out / f"model.ckpt-{step}"}
    scripts.fork(*command(name, out, *actions_of(name)[1:], **given))
    assert tiny_task.results(out)["global_step"] == step
  assert contents(name, out) == before
  given = {"init_checkpoint": out / "model.ckpt-1"}
  _, log = scripts.fork(*command(name, out, **given))
  assert "Nothing left to train" in log
  assert contents(name, out) == before


@every_kind
def test_another_folder_uses_it_in_other_batches(
  train, command, tmp_path, name
):
  folder, _ = train(name)
  given = {"init_checkpoint": folder, "pad_to_max_length": True}
  given |= RUNS[name].other_batches
  actions = actions_of(name)[1:]
  scripts.fork(*command(name, tmp_path / "out", *actions, **given))
  wanted = tiny_task.results(folder)
  assert tiny_task.results(tmp_path / "out") == pytest.approx(wanted, rel=1e-4)
  if RUNS[name].answers:
    path = RUNS[name].predictions[0]
    found, wanted = (
      RUNS[name].answers((where / path).read_text("utf-8"))
      for where in (tmp_path / "out", folder)
    )
    assert same(found, wanted, 1e-4)


def test_several_seeds_are_summarized(train, command, tmp_path):
  name, out = "squad", tmp_path / "out"
  scripts.fork(*command(name, out, num_seeds=2))
  one, two = (out / f"seed-{seed}" for seed in (1, 2))
  alone, other = contents(name, one), contents(name, two)
  assert alone == contents(name, train(name)[0])
  assert all(alone[path] != other[path] for path in WEIGHTS[1:])
  lines = (out / "results.tsv").read_text().splitlines()
  found = {row.split("\t")[1]: row.split("\t")[2:4] for row in lines[1:]}
  results = [tiny_task.results(folder) for folder in (one, two)]
  assert {*found, "global_step"} == results[0].keys()
  for metric, row in found.items():
    values = [of_seed[metric] for of_seed in results]
    wanted = statistics.mean(values), statistics.stdev(values)
    assert list(map(float, row)) == pytest.approx(wanted, rel=1e-2, abs=1e-4)


@every_trained_kind
def test_a_release_is_not_evaluated(command, tmp_path, name):
  out = tmp_path / "out"
  assert "trained" in refused(command(name, out, "--do_eval"))
  assert not out.exists()


@every_kind
def test_a_missing_checkpoint_is_named(command, tmp_path, name):
  out = tmp_path / "out"
  wrong = tmp_path / "none.ckpt"
  line = refused(command(name, out, init_checkpoint=wrong))
  assert f"no checkpoint {wrong}" in line
  assert not out.exists()


@every_kind
def test_another_training_in_the_folder_is_refused(train, command, name):
  folder, _ = train(name)
  before = scripts.tree(folder)
  line = refused(command(name, folder, "--do_train", do_lower_case=False))
  assert "--do_lower_case=False: the training in" in line
  assert scripts.tree(folder) == before


@pytest.mark.parametrize("name", ["classification", "squad", "fill_mask"])
def test_numbers_that_are_not_finite_are_refused(
  train, command, load, files, tmp_path, name
):
  """By an evaluation as by `bert.load`."""
  model = shutil.copytree(train(name)[0], tmp_path / "model")
  for path in model.glob("*.ckpt*"):
    path.unlink()
  weights = checkpoints.Checkpoint(str(train(name)[0] / "bert_model.ckpt"))
  values = {variable: weights[variable] for variable in weights.shapes}
  # Finite, but their products are not.
  values["bert/embeddings/LayerNorm/gamma"][:] = 3e38
  checkpoints.write_checkpoint(str(model / "bert_model.ckpt"), values)
  out = tmp_path / "out"
  line = refused(command(name, out, "--do_eval", init_checkpoint=model))
  assert "infinite or not a number" in line
  with pytest.raises(UserError, match="infinite or not a number"):
    load(name, model)(RUNS[name].questions(files)[0])


_QUESTIONS = [{"id": n, "question": "Who?"} for n in "12"]
_PARAGRAPH = {"context": "It is Jim Henson.", "qas": _QUESTIONS}

# Two rows without labels, by the kind of task.
UNLABELED = {
  "squad": json.dumps({"data": [{"paragraphs": [_PARAGRAPH]}]}),
  "tagging": "Jim Henson made puppets .\nthe city\n",
  "multiple choice": '{"context": "He", "choices": ["a", "b", "c"]}\n' * 2,
}


@pytest.mark.parametrize("name", UNLABELED)
def test_a_student_reads_as_its_teacher(train, command, tmp_path, name):
  """And learns from rows without labels."""
  teacher, out = train(name)[0], tmp_path / "out"
  endings = {"squad": "json", "tagging": "txt", "multiple choice": "jsonl"}
  unlabeled = tmp_path / f"unlabeled.{endings[name]}"
  unlabeled.write_text(UNLABELED[name], encoding="utf-8")
  given = {**dict.fromkeys(LENGTHS), "unlabeled_file": unlabeled}
  if name == "squad":  # A batch of all windows, so that each is counted.
    known = list(records.read_records(str(teacher / "train.tf_record")))
    given |= {
      "count_steps_on_windows": True,
      "train_batch_size": len(known) + 2,
    }
  made = command(name, out, "--do_train", teacher=teacher, **given)
  _, log = scripts.fork(*made)
  assert log.count(" by default, as in the training of ") == 1
  used, wanted = (
    json.loads((folder / "flags.json").read_text())["flags"]
    for folder in (out, teacher)
  )
  assert all(used.get(length) == wanted.get(length) for length in LENGTHS)
  rows = [
    tf.train.Example.FromString(row).features.feature
    for row in records.read_records(str(out / "train.tf_record"))
  ]
  labeled = [row["is_labeled"].int64_list.value[0] for row in rows]
  assert labeled == [1] * (len(rows) - 2) + [0, 0]


# The trained model.


@every_kind
def test_one_input_has_one_answer_and_a_list_has_a_list(load, files, name):
  model = load(name)
  questions = RUNS[name].questions(files)[:3]
  answers = model(questions)
  for question, answer in zip(questions, answers, strict=True):
    assert same(model(question), answer, 1e-5)
  assert model([]) == []
  assert model.task.inputs[0].name in repr(model)
  small = load(name, batch_size=2)
  assert same(small(questions[::-1]), answers[::-1], 1e-5)


@pytest.mark.parametrize("name", PREDICTED)
def test_the_script_predicted_what_python_answers(train, load, files, name):
  run, (out, _) = RUNS[name], train(name)
  wanted = run.answers((out / run.predictions[0]).read_text("utf-8"))
  answers = load(name)(run.questions(files))
  assert len(answers) > 1
  found = list(map(run.of_model, answers))
  assert same(found, wanted[: len(found)], 1e-5)


@every_kind
def test_the_server_gives_the_answers(load, files, name):
  model, question = load(name), RUNS[name].questions(files)[0]
  wanted = rest.to_json(model(question))
  assert same(served.ask(model, question), wanted, 2e-6)


@every_kind
def test_another_runtime_gives_the_answers(train, load, files, tmp_path, name):
  folder = shutil.copytree(train(name)[0], tmp_path / "model")
  questions = RUNS[name].questions(files)[:2]
  other = load(name, folder, runtime="onnxruntime")
  assert same(other(questions), load(name)(questions), 1e-4)


@pytest.fixture(scope="module")
def graph(train, files):
  """A function from a kind to the ONNX folder of its trained model."""

  @functools.cache
  def export(name):
    out = files / "graphs" / name
    part = "fill_mask" if name == "fill_mask" else "task"
    flags = ["--format=onnx", f"--part={part}", f"--output_dir={out}"]
    if RUNS[name].kind == "rating":
      flags.append("--task_module=rating")
    scripts.fork(
      "export_model.py", f"--model_dir={train(name)[0]}", *flags, cwd=files
    )
    return out

  return export


@every_kind
def test_an_onnx_folder_answers_without_tensorflow(graph, load, files, name):
  questions = RUNS[name].questions(files)
  wanted = list(map(rest.to_json, load(name)(questions)))
  module = "rating" if name == "rating" else None
  folder = graph(name)
  found = no_tensorflow.answers(folder, questions, [files], module)
  assert same(found, wanted, 1e-4)
  model = load(name, folder, runtime="openvino", precision="float32")
  assert same(list(map(rest.to_json, model(questions))), wanted, 1e-4)


@pytest.mark.runtime
def test_an_environment_without_tensorflow(graph, load, files, tmp_path):
  """The requirements and the wheel alone, of at most 250 MB."""
  venv.create(tmp_path / "env", with_pip=True)
  python = str(tmp_path / "env" / "bin" / "python")
  pip = [python, "-m", "pip", "-q"]
  requirements = str(scripts.ROOT / "requirements-runtime.txt")
  subprocess.run([*pip, "install", "-r", requirements], check=True)
  source = tmp_path / "source"
  ignored = shutil.ignore_patterns(".*", "tests", "*.egg-info", "build")
  shutil.copytree(scripts.ROOT, source, ignore=ignored)
  subprocess.run([*pip, "install", "--no-deps", source], check=True)
  paths = (tmp_path / "env").rglob("*")
  size = sum(p.stat().st_size for p in paths if p.is_file())
  assert size < 250e6
  for name in RUNS:
    questions = RUNS[name].questions(files)
    wanted = list(map(rest.to_json, load(name)(questions)))
    module = "rating" if name == "rating" else None
    found = no_tensorflow.answers(
      graph(name), questions, [files], module, python
    )
    assert same(found, wanted, 1e-4), name
  for script in ("bert-classify", "bert-pretrain"):
    command = tmp_path / "env" / "bin" / script
    done = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert "--output_dir" in done.stdout + done.stderr


def test_eight_bits_of_an_onnx_folder(graph, train, load, files, tmp_path):
  """Quantized when it is loaded, or when it is exported."""
  name = "classification"
  folder = shutil.copytree(graph(name), tmp_path / "graph")
  wanted = load(name)(RUNS[name].questions(files))

  def check(model):
    answers = model(RUNS[name].questions(files))
    for answer, full in zip(answers, wanted, strict=True):
      assert same(answer["probabilities"], full["probabilities"], 0.1)
    assert not same(answers, wanted, 1e-7)

  for runtime in ("onnxruntime", "openvino"):
    check(load(name, folder, precision="int8", runtime=runtime))
    (path,) = (folder / "onnx").glob(f"*-int8-{runtime}.onnx")
    time = path.stat().st_mtime_ns
    load(name, folder, precision="int8", runtime=runtime)
    assert path.stat().st_mtime_ns == time
  scripts.fork(
    "export_model.py",
    *("--format=onnx", "--precision=int8"),
    f"--model_dir={train(name)[0]}",
    f"--output_dir={tmp_path / 'small'}",
  )
  for runtime in ("onnxruntime", "openvino"):
    check(load(name, tmp_path / "small", runtime=runtime))
  sizes = [
    (base / "model.onnx").stat().st_size
    for base in (folder, tmp_path / "small")
  ]
  assert sizes[1] < 0.5 * sizes[0]
  text = (tmp_path / "small" / "README.md").read_text("utf-8")
  accuracy = tiny_task.results(train(name)[0])["eval_accuracy"]
  assert f"| accuracy | {accuracy:.4f} |" in text.replace("eval_", "")


@every_trained_kind
def test_the_card_of_a_model_holds_and_its_code_runs(
  train, graph, load, name, monkeypatch, capsys
):
  model = load(name)
  for folder in (train(name)[0], graph(name)):
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    results = tiny_task.results(train(name)[0])
    if card.data.pipeline_tag:
      measured = {r.metric_type: r.metric_value for r in card.data.eval_results}
      wanted = {key.removeprefix("eval_"): results[key] for key in results}
      assert measured == pytest.approx(
        {key: wanted[key] for key in measured}, rel=1e-6
      )
    assert set(model.labels) <= set(re.findall("`(.+?)`", card.text))
    monkeypatch.chdir(folder.parent)
    (code,) = re.findall("```python\n(.*?)```", card.text, re.S)
    exec(code, {})
    assert capsys.readouterr().out.startswith("{")


def test_a_readme_of_a_user_stays(train, command, tmp_path):
  out = shutil.copytree(train("classification")[0], tmp_path / "out")
  (out / "README.md").write_text("My notes.\n")
  scripts.fork(*command("classification", out, "--do_eval"))
  assert (out / "README.md").read_text() == "My notes.\n"


@every_kind
def test_an_onnx_folder_names_the_model_that_can_be_trained(
  graph, train, command, tmp_path, name
):
  out = tmp_path / "out"
  line = refused(command(name, out, init_checkpoint=graph(name)))
  assert f"{graph(name)}/model.onnx only answers" in line
  assert f"exported from, {train(name)[0]}" in line
  assert not out.exists()
  if name in TRAINED:
    line = refused(command(name, graph(name), "--do_eval"))
    assert f"{graph(name)}/model.onnx only answers (--predict_file" in line


@pytest.mark.parametrize("name", [n for n in RUNS if n != "fill_mask"])
def test_a_conversion_is_compared_with_its_source(
  graph, train, command, tmp_path, name
):
  out = shutil.copytree(train(name)[0], tmp_path / "out")
  before = (out / "eval_results.txt").read_bytes()
  given = {"compare_to": graph(name)}
  _, log = scripts.fork(*command(name, out, "--do_eval", **given))
  assert (out / "eval_results.txt").read_bytes() == before
  (line,) = (x for x in log.splitlines() if "compared with" in x)
  assert " 0 answers differ; largest difference of outputs: " in line
  if name not in ("vectors", "rating"):  # Without the range of a metric.
    assert re.search(r"; difference \+0(\.0+)? \(", line)
  shown = line.rpartition("outputs: ")[2].split(", ")
  assert all(float(x.split()[1]) < 1e-4 for x in shown)
  page = html.unescape((out / "report.html").read_text())
  assert f"Comparison with {graph(name)}" in page
  assert line.split(f"compared with {graph(name)}: ")[1] in page


def test_an_onnx_folder_predicts_no_table(graph, files, tmp_path):
  folder, flags = graph("classification"), f"--test_file={files}/any.csv"
  for model in f"--output_dir={folder}", f"--init_checkpoint={folder}":
    out = f"--output_dir={tmp_path}"
    line = refused(["run_classifier.py", "--do_predict", flags, out, model])
    assert f"{folder}/model.onnx only answers (--predict_file" in line


@pytest.mark.parametrize("make", [formats.saved_model, formats.onnx])
@pytest.mark.parametrize("name", [n for n in RUNS if n != "fill_mask"])
def test_exported_models_give_the_numbers(load, files, tmp_path, name, make):
  model = load(name)
  run = make(model, str(tmp_path))
  formats.check_numbers(model, RUNS[name].questions(files)[:2], run)


@every_kind
def test_answers_after_a_conversion_and_back(
  train, load, files, tmp_path, name
):
  ours, theirs, back = train(name)[0], tmp_path / "theirs", tmp_path / "back"
  questions = RUNS[name].questions(files)[:3]
  wanted = load(name)(questions)
  huggingface.to_huggingface(str(ours), str(theirs))
  huggingface.to_tensorflow(str(theirs), str(back))
  for folder in (theirs, back):
    np.testing.assert_equal(load(name, folder)(questions), wanted)
  for path in WEIGHTS:
    assert (back / path).read_bytes() == (ours / path).read_bytes()
