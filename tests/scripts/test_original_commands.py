"""The commands of the original's README, with its flags as they stand there.

Only paths, sizes and numbers of steps differ: model and data are tiny.
"""

import itertools
import json
import shutil

import pytest
import scripts
import tiny_task

from bert.models import checkpoints

COMMANDS = {
  "train_mrpc": """run_classifier.py --task_name=MRPC
    --do_train=true --do_eval=true --data_dir=$GLUE_DIR/MRPC
    --vocab_file=$BERT_BASE_DIR/vocab.txt
    --bert_config_file=$BERT_BASE_DIR/bert_config.json
    --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt
    --max_seq_length=128 --train_batch_size=32 --learning_rate=2e-5
    --num_train_epochs=3.0 --output_dir=/tmp/mrpc_output/""",
  "predict_mrpc": """run_classifier.py --task_name=MRPC
    --do_predict=true --data_dir=$GLUE_DIR/MRPC
    --vocab_file=$BERT_BASE_DIR/vocab.txt
    --bert_config_file=$BERT_BASE_DIR/bert_config.json
    --init_checkpoint=$TRAINED_CLASSIFIER --max_seq_length=128
    --output_dir=/tmp/mrpc_output/""",
  "squad_base": """run_squad.py --vocab_file=$BERT_BASE_DIR/vocab.txt
    --bert_config_file=$BERT_BASE_DIR/bert_config.json
    --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt
    --do_train=True --train_file=$SQUAD_DIR/train-v1.1.json
    --do_predict=True --predict_file=$SQUAD_DIR/dev-v1.1.json
    --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2.0
    --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_base/""",
  "squad_large": """run_squad.py --vocab_file=$BERT_LARGE_DIR/vocab.txt
    --bert_config_file=$BERT_LARGE_DIR/bert_config.json
    --init_checkpoint=$BERT_LARGE_DIR/bert_model.ckpt
    --do_train=True --train_file=$SQUAD_DIR/train-v2.0.json
    --do_predict=True --predict_file=$SQUAD_DIR/dev-v2.0.json
    --train_batch_size=24 --learning_rate=3e-5 --num_train_epochs=2.0
    --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_large/
    --version_2_with_negative=True""",
  "squad_threshold": """run_squad.py --vocab_file=$BERT_LARGE_DIR/vocab.txt
    --bert_config_file=$BERT_LARGE_DIR/bert_config.json
    --init_checkpoint=$BERT_LARGE_DIR/bert_model.ckpt
    --do_train=False --train_file=$SQUAD_DIR/train-v2.0.json
    --do_predict=True --predict_file=$SQUAD_DIR/dev-v2.0.json
    --train_batch_size=24 --learning_rate=3e-5 --num_train_epochs=2.0
    --max_seq_length=384 --doc_stride=128 --output_dir=/tmp/squad_large/
    --version_2_with_negative=True --null_score_diff_threshold=$THRESH""",
  "features": """extract_features.py --input_file=/tmp/input.txt
    --output_file=/tmp/output.jsonl --vocab_file=$BERT_BASE_DIR/vocab.txt
    --bert_config_file=$BERT_BASE_DIR/bert_config.json
    --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4
    --max_seq_length=128 --batch_size=8""",
  "create_data": """create_pretraining_data.py
    --input_file=./sample_text.txt --output_file=/tmp/tf_examples.tfrecord
    --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=True
    --max_seq_length=128 --max_predictions_per_seq=20 --masked_lm_prob=0.15
    --random_seed=12345 --dupe_factor=5""",
  "pretrain": """run_pretraining.py --input_file=/tmp/tf_examples.tfrecord
    --output_dir=/tmp/pretraining_output --do_train=True --do_eval=True
    --bert_config_file=$BERT_BASE_DIR/bert_config.json
    --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --train_batch_size=32
    --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20
    --num_warmup_steps=10 --learning_rate=2e-5""",
}

# Sizes of the data and numbers of steps: all that is not as in the README.
SMALL = {
  "run_classifier.py": {"max_seq_length": 48, "save_checkpoints_steps": 1},
  "run_squad.py": {
    "max_seq_length": 96,
    "doc_stride": 40,
    "max_query_length": 24,
    "save_checkpoints_steps": 1,
    "train_batch_size": 12,
  },
  "run_pretraining.py": {
    "num_train_steps": 2,
    "num_warmup_steps": 1,
    "train_batch_size": 4,
    "save_checkpoints_steps": 1,
    "max_eval_steps": 1,
  },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """A folder with all that the commands read."""
  folder = tmp_path_factory.mktemp("files")
  tiny_task.make_files(folder, goldens)  # The model has one layer.
  (folder / "data").rename(folder / "MRPC")
  _make_deep(folder / "model", folder / "deep")
  for number in ("1.1", "2.0"):
    squad = json.loads((goldens / f"squad_v{number[0]}.json").read_text())
    (article,) = squad["data"]
    for name, places in (("train", slice(4)), ("dev", slice(4, 7))):
      part = {**article, "paragraphs": article["paragraphs"][places]}
      path = folder / f"{name}-v{number}.json"
      path.write_text(json.dumps({"data": [part]}), encoding="utf-8")
  shutil.copy(goldens / "extract_input.txt", folder / "input.txt")
  return folder


def _make_deep(model, folder):
  """Writes a model of four layers, as --layers=-1,-2,-3,-4 needs."""
  shutil.copytree(model, folder)
  config = folder / "bert_config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps({**fields, "num_hidden_layers": 4}))
  values = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  weights = {name: values[name] for name in values.shapes}
  for name, layer in itertools.product(values.shapes, (2, 3)):
    if "/layer_1/" in name:
      weights[name.replace("layer_1", f"layer_{layer}")] = weights[name]
  checkpoints.write_checkpoint(str(folder / "bert_model.ckpt"), weights)


@pytest.fixture(scope="module")
def run(files):
  """A function that runs a command by its name; returns its log.

  Other flags than those of the README, and values of its variables, are among
  its arguments.
  """

  def run(name, **changes):
    text = COMMANDS[name].replace("/tmp", str(files))
    model = files / ("deep" if name == "features" else "model")
    values = {
      **dict.fromkeys(("BERT_BASE_DIR", "BERT_LARGE_DIR"), model),
      **dict.fromkeys(("GLUE_DIR", "SQUAD_DIR"), files),
      **{name: changes.pop(name) for name in list(changes) if name.isupper()},
    }
    for variable, value in values.items():
      text = text.replace(f"${variable}", str(value))
    script, *flags = text.split()
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    given |= {**SMALL.get(script, {}), **changes}
    return scripts.fork(script, *(f"--{n}={v}" for n, v in given.items()))[1]

  return run


@pytest.fixture(scope="module")
def mrpc(run, files):
  """The folder of the training on MRPC: of three steps."""
  run("train_mrpc")
  return files / "mrpc_output"


@pytest.fixture(scope="module")
def squad(run, files):
  """The folder of the training on SQuAD 2.0."""
  run("squad_large")
  return files / "squad_large"


def _steps(folder):
  """The steps of the checkpoints in a folder."""
  found = checkpoints.training_checkpoints(str(folder))
  return [int(prefix.rpartition("-")[2]) for prefix in found]


def test_mrpc(mrpc):
  names = {path.name for path in mrpc.iterdir()}
  assert {"eval_results.txt", "checkpoint", "train.tf_record"} <= names
  assert tiny_task.results(mrpc)["global_step"] == _steps(mrpc)[-1] == 3


def test_squad(run, files):
  run("squad_base")
  answers = json.loads((files / "squad_base" / "predictions.json").read_text())
  dev = json.loads((files / "dev-v1.1.json").read_text())
  paragraphs = dev["data"][0]["paragraphs"]
  assert answers.keys() == {q["id"] for p in paragraphs for q in p["qas"]}


def test_squad_2_with_a_threshold(run, squad):
  task = (squad / "task.json").read_bytes()
  trained = json.loads((squad / "null_odds.json").read_text())
  odds = sorted(trained.values())
  threshold = (odds[0] + odds[-1]) / 2
  found = {}
  for step in (_steps(squad)[-1], 1):
    named = {"init_checkpoint": squad / f"model.ckpt-{step}"}
    run("squad_threshold", THRESH=threshold, **named)
    found[step] = [
      json.loads((squad / f"{name}.json").read_text())
      for name in ("predictions", "null_odds")
    ]
    # What is the best for other weights is not for the trained model.
    assert (squad / "task.json").read_bytes() == task
  (answers, odds), (_, others) = found.values()
  assert all(not answers[n] for n, odd in odds.items() if odd > threshold)
  assert odds == pytest.approx(trained, abs=1e-4)
  assert odds != pytest.approx(others, abs=1e-4)


def test_features(run, files):
  run("features")
  lines = (files / "output.jsonl").read_text().splitlines()
  texts = (files / "input.txt").read_text().splitlines()
  assert len(lines) == len(texts)
  for layers in (token["layers"] for token in json.loads(lines[0])["features"]):
    assert [layer["index"] for layer in layers] == [-1, -2, -3, -4]


def test_pretraining(run, files):
  run("create_data")
  run("pretrain")
  found = tiny_task.results(files / "pretraining_output")
  assert found["global_step"] == 2
  assert {"masked_lm_accuracy", "next_sentence_loss"} <= found.keys()
