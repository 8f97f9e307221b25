"""What is wrong with flags and files is one line, and leaves nothing behind.

A row is the flags that differ from a good command, and what the line says:
where it is wrong, the value, the remedy. FILES stands for the folder of files.
"""

import json
import re
import shutil

import pytest
import scripts
import tiny_task

MODEL = "FILES/model"
TABLES = "FILES/tables"
CHECKPOINT = f"{MODEL}/bert_model.ckpt"
LOOKUP = "bert/embeddings/word_embeddings"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# A good command for a table of one's own.
CUSTOM = {
  "task_name": "custom",
  "data_dir": None,
  "train_file": f"{TABLES}/good.tsv",
}
# A good command for what needs a trained model.
USE = {"do_train": None, "output_dir": "FILES/trained"}

FLAG_ROWS = {
  "unknown flag": ({"learning_rat": 1}, ["learning_rat", "learning_rate"]),
  "no whole number": ({"seed": "one"}, ["--seed=one", "int"]),
  "no truth value": (
    {"do_eval": "perhaps"},
    ["--do_eval=perhaps", "true or false"],
  ),
  "none of a list": (
    {"precision": "float8"},
    ["--precision=float8", "<float32|bfloat16|float16|int8>"],
  ),
  "a plan for no training": (
    {"do_train": None, "do_eval": True, "dry_run": True},
    ["--dry_run", "--do_train"],
  ),
  "a TPU of another machine": (
    {"use_tpu": True, "tpu_name": "my-tpu"},
    ["--tpu_name=my-tpu", "machine of the TPU", "--tpu_name=local"],
  ),
  "no hosts": (
    {"distribution_strategy": "multi_worker"},
    ["--distribution_strategy=multi_worker", "TF_CONFIG", "set it"],
  ),
  "no TPU": (
    {"distribution_strategy": "tpu"},
    [
      "error: this machine has no TPU (",
      "); omit --use_tpu and --distribution_strategy=tpu",
    ],
  ),
  "a home that the shell leaves": (
    {"output_dir": "~/out"},
    ["--output_dir=~/out", "--output_dir=$HOME/out, or --output_dir ~/out"],
  ),
  "a pipe for several runs": (
    {**CUSTOM, "train_file": "/dev/null", "num_seeds": 2},
    ["--train_file=/dev/null", "cannot be read twice; save its content"],
  ),
  "micro-batches that do not divide": (
    {"gradient_accumulation_steps": 3},
    [
      "--train_batch_size=8",
      "--gradient_accumulation_steps=3",
      "multiple of 3",
    ],
  ),
  "too few rows": (
    {"train_batch_size": 99},
    ["--train_batch_size=99", "--num_train_epochs=2.0", "lower"],
  ),
  "more frozen layers than there are": (
    {"freeze_layers": 2},
    ["--freeze_layers=2", "1 layers", "lower"],
  ),
  "a checkpoint that is misspelled": (
    {"init_checkpoint": "FILES/modle", "vocab_file": None},
    [
      "no checkpoint FILES/modle: there is no file FILES/modle.index, and no "
      "folder FILES/modle; pass"
    ],
  ),
  "too long": (
    {"max_seq_length": 129},
    ["--max_seq_length=129", "128 positions", "bert_config.json", "lower"],
  ),
  "nothing to do": ({"do_train": None}, ["nothing to do", "pass --do_train"]),
  "unknown task": (
    {"task_name": "MRPCC"},
    ["--task_name=MRPCC", "cola", "custom", "xnli", "did you mean 'mrpc'?"],
  ),
  "unknown task with a table": (
    {"task_name": "reviews", "train_file": "rows.tsv"},
    ["--task_name=reviews is not one of"],
  ),
  "unknown task among others": (
    {"task_name": "MRPC,RTEE"},
    ["--task_name=RTEE", "did you mean 'rte'?"],
  ),
  "no task": ({"task_name": None}, ["--task_name"]),
  "no data_dir": ({"data_dir": None}, ["--data_dir"]),
  "unknown language": (
    {"task_name": "XNLI", "xnli_language": "nl"},
    ["--xnli_language=nl", "<ar|bg|de|", "zh"],
  ),
  "table with another task": (
    {"train_file": "rows.tsv"},
    ["--train_file", "--task_name=custom", "omit it"],
  ),
  "both kinds": (
    {**CUSTOM, "regression": True, "multilabel": True},
    ["--regression and --multilabel cannot both be given", "omit one"],
  ),
  "best by an unknown metric": (
    {"keep_best": "bleu"},
    ["--keep_best=bleu", "accuracy, f1, loss"],
  ),
  "best by a metric of numbers": (
    {**CUSTOM, "keep_best": "pearson"},
    ["--keep_best=pearson", "accuracy", "f1_macro", "loss"],
  ),
  "weights of numbers": (
    {
      **CUSTOM,
      "label_column": "number",
      "regression": True,
      "class_weights": "balanced",
    },
    ["--class_weights=balanced", "labels"],
  ),
}

_PREDICT = {"do_train": None, "do_predict": True}

MODEL_ROWS = {
  "casing of a trained model": (
    {**_PREDICT, "init_checkpoint": "FILES/trained", "do_lower_case": False},
    [
      "--do_lower_case=False contradicts FILES/trained/bert_config.json",
      "--do_lower_case=True; pass that",
    ],
  ),
  "vocabulary of a trained model": (
    {
      **_PREDICT,
      "init_checkpoint": "FILES/trained",
      "vocab_file": "FILES/other_words.txt",
    },
    [
      "the model was trained with another vocabulary",
      "pass --vocab_file=FILES/trained/vocab.txt",
    ],
  ),
  "SentencePiece model": (
    {
      "vocab_file": None,
      "bert_config_file": None,
      "init_checkpoint": "FILES/pieces",
    },
    ["--spm_model_file is required; pass FILES/pieces/x.model"],
  ),
  "evaluation of no model": (
    {
      "do_train": None,
      "do_eval": True,
      "vocab_file": None,
      "bert_config_file": None,
      "init_checkpoint": None,
    },
    ["--vocab_file is required; pass it, or", "--output_dir=", "no model"],
  ),
  "plan of a training that would not continue": (
    {"output_dir": "FILES/trained", "max_seq_length": 47, "dry_run": True},
    ["--max_seq_length=47: the training in FILES/trained began with 48"],
  ),
  "no vocabulary": ({"vocab_file": None}, ["--vocab_file"]),
  "configuration as vocabulary": (
    {"vocab_file": "FILES/model/bert_config.json"},
    ["bert_config.json has no WordPiece vocabulary"],
  ),
  "vocabulary is missing": (
    {"vocab_file": "nowhere"},
    ["--vocab_file=nowhere", "pass the path"],
  ),
  "vocabulary is empty": (
    {"vocab_file": "FILES/no_words.txt"},
    ["FILES/no_words.txt has no piece [CLS]", "pass the file"],
  ),
  "vocabulary without specials": (
    {"vocab_file": "FILES/no_cls.txt"},
    ["no_cls.txt has no piece [CLS]", "pass the file"],
  ),
  "vocabulary is not UTF-8": (
    {"vocab_file": "FILES/latin1.txt"},
    ["FILES/latin1.txt:6", "byte 34", "UTF-8"],
  ),
  "vocabulary is too large": (
    {"bert_config_file": "FILES/few_words.json"},
    ["vocab.txt has 1001 entries", "vocab_size=99", "few_words.json", "pass"],
  ),
  "no config": ({"bert_config_file": None}, ["--bert_config_file"]),
  "config is missing": (
    {"bert_config_file": "nowhere"},
    ["--bert_config_file=nowhere", "pass the path"],
  ),
  "config is empty": (
    {"bert_config_file": "FILES/empty.json"},
    ["FILES/empty.json is not a valid", "pass the bert_config.json"],
  ),
  "config is cut": (
    {"bert_config_file": "FILES/cut.json"},
    ["FILES/cut.json is not a valid", "line 2", "pass the bert_config.json"],
  ),
  "config is a list": (
    {"bert_config_file": "FILES/list.json"},
    ["FILES/list.json", "not a JSON object"],
  ),
  "size is a string": (
    {"bert_config_file": "FILES/string.json"},
    ["FILES/string.json", "hidden_size='32'", "integer"],
  ),
  "unknown activation": (
    {"bert_config_file": "FILES/activation.json"},
    ["FILES/activation.json", "gelo"],
  ),
  "heads": (
    {"bert_config_file": "FILES/heads.json"},
    ["hidden_size=32", "num_attention_heads=5", "heads.json"],
  ),
  "casing of the config": (
    {"bert_config_file": "FILES/cased.json"},
    ["--do_lower_case=True contradicts", "cased.json", "pass"],
  ),
  "casing of the checkpoint": (
    {"init_checkpoint": "FILES/cased_L-12_H-768_A-12/bert_model.ckpt"},
    ["--do_lower_case=True", "cased_L-12_H-768_A-12", "--do_lower_case=False"],
  ),
  "checkpoint is missing": (
    {"init_checkpoint": "nowhere"},
    ["no checkpoint nowhere", "nowhere.index", "pass the"],
  ),
  "release is misspelt": (
    {"init_checkpoint": "uncased_L-12_H-768_A-1"},
    ["no checkpoint uncased_L-12_H-768_A-1", "mean 'uncased_L-12_H-768_A-12'?"],
  ),
  "checkpoint in an empty folder": (
    {"init_checkpoint": "FILES/empty"},
    ["FILES/empty/bert_model.ckpt", "pass the"],
  ),
  "checkpoint is cut": (
    {"init_checkpoint": "FILES/cut.ckpt"},
    ["FILES/cut.ckpt is damaged or incomplete", "copy or download"],
  ),
  "checkpoint is altered": (
    {"init_checkpoint": "FILES/altered.ckpt"},
    ["FILES/altered.ckpt is damaged or incomplete", "copy or download"],
  ),
  "index is altered": (
    {"init_checkpoint": "FILES/no_index.ckpt"},
    ["FILES/no_index.ckpt is damaged or incomplete", "copy or download"],
  ),
  "wider": (
    {"bert_config_file": "FILES/wide.json"},
    [CHECKPOINT, LOOKUP, "[1001, 32]", "[1001, 64]", "the bert_config.json"],
  ),
  "deeper": (
    {"bert_config_file": "FILES/deep.json"},
    ["lacks bert/encoder/layer_2/attention/self/query/kernel", "15 more"],
  ),
  "no sentencepiece model": (
    {"spm_model_file": f"{MODEL}/vocab.txt"},
    ["vocab.txt is not a SentencePiece model"],
  ),
}

OUTPUT_ROWS = {
  "no output": ({"output_dir": None}, ["--output_dir"]),
  "output is a file": (
    {"output_dir": f"{MODEL}/vocab.txt"},
    [f"--output_dir={MODEL}/vocab.txt", "not a writable folder", "pass"],
  ),
  "output cannot be written": (
    {"output_dir": "/proc/self/out"},
    ["--output_dir=/proc/self/out"],
  ),
  "output holds fewer labels": (
    {
      "output_dir": "FILES/trained",
      "task_name": "MNLI",
      "data_dir": "FILES/two_tasks/MNLI",
    },
    ["trained/task.json has the labels 0, 1", "contradiction", "another"],
  ),
  "output holds another model": (
    {
      "output_dir": "FILES/trained",
      "bert_config_file": "FILES/wide.json",
      "init_checkpoint": None,
    },
    [
      "--output_dir=FILES/trained holds another model (classification: ",
      LOOKUP,
      "[1001, 32]",
      "[1001, 64]",
      "pass another folder",
    ],
  ),
  "output holds other labels": (
    {"output_dir": "FILES/trained", **CUSTOM},
    [
      "task.json has the labels 0, 1 (classification)",
      "--task_name=custom",
      "bad, good",
      "pass",
    ],
  ),
  "output holds a release": (
    {"output_dir": MODEL},
    [f"--output_dir={MODEL} holds a model", "overwrite", "pass another"],
  ),
  "output holds another history": (
    {"output_dir": "FILES/damaged_history", "keep_best": "loss"},
    ["FILES/damaged_history/best.json is damaged", "make it anew"],
  ),
  "output holds damaged labels": (
    {"output_dir": "FILES/damaged_labels"},
    ["FILES/damaged_labels/task.json", "copy it again"],
  ),
  "output holds damaged flags": (
    {"output_dir": "FILES/damaged_flags"},
    ["FILES/damaged_flags/flags.json is damaged", "copy it again"],
  ),
  "predicting untrained": (
    {"do_train": None, "do_predict": True},
    ["--output_dir", "--init_checkpoint", "add --do_train"],
  ),
  "answering untrained": (
    {"predict_file": f"{TABLES}/good.tsv", "do_train": None},
    ["OUT does not exist", "pass the --output_dir"],
  ),
  "talking untrained": (
    {"interactive": True, "output_dir": "FILES/empty", "do_train": None},
    ["FILES/empty does not hold a trained model", "pass the"],
  ),
  "answering and training": (
    {"predict_file": "-"},
    ["--predict_file and --do_train cannot both be given", "omit one"],
  ),
  "answering and talking": (
    {**USE, "predict_file": "-", "interactive": True},
    ["--predict_file and --interactive cannot both be given", "omit one"],
  ),
  "answering without a folder": (
    {"predict_file": "-", "output_dir": None, "do_train": None},
    ["--output_dir"],
  ),
  "a table for lines": (
    {**USE, "predict_file": f"{TABLES}/header.csv"},
    ["header.csv would be read as lines of text", "--test_file"],
  ),
  "file to answer is missing": (
    {**USE, "predict_file": "nowhere"},
    ["--predict_file=nowhere", "pass the path"],
  ),
  "file to answer has one text": (
    {**USE, "predict_file": "FILES/one_text.txt"},
    ["FILES/one_text.txt:1", "two texts"],
  ),
  "file to answer has three texts": (
    {**USE, "predict_file": "FILES/three_texts.txt"},
    ["FILES/three_texts.txt:1", "3 texts", "two texts"],
  ),
}

DATA_ROWS = {
  "no data": (
    {"data_dir": "FILES/empty"},
    ["FILES/empty", "train.tsv", "pass"],
  ),
  "no folder of data": (
    {"data_dir": "nowhere"},
    ["--data_dir=nowhere: no such folder; check the path"],
  ),
  "unknown label": (
    {"data_dir": "FILES/bad_label"},
    ["FILES/bad_label/train.tsv:42", "'7'", "'0', '1'"],
  ),
  "a line lacks columns": (
    {"data_dir": "FILES/short_line"},
    ["FILES/short_line/train.tsv:42", "2 columns", "5"],
  ),
  "data is not UTF-8": (
    {"data_dir": "FILES/latin1"},
    ["FILES/latin1/train.tsv:2", "byte 40", "UTF-8"],
  ),
  "data is empty": (
    {"data_dir": "FILES/no_rows"},
    ["FILES/no_rows/train.tsv", "no examples"],
  ),
  "the second task is wrong": (
    {"task_name": "MRPC,RTE", "data_dir": "FILES/two_tasks"},
    ["FILES/two_tasks/RTE/train.tsv:3", "'maybe'", "entailment"],
  ),
  "the second task lacks its file to predict": (
    {"task_name": "MNLI,AX", "data_dir": "FILES/two_tasks", "do_predict": True},
    ["FILES/two_tasks/AX", "diagnostic.tsv", "pass"],
  ),
  "a task without training": (
    {"task_name": "AX", "data_dir": "FILES/two_tasks/MNLI"},
    ["--task_name=AX", "MNLI", "pass --do_predict"],
  ),
}

TABLE_ROWS = {
  "no table": ({**CUSTOM, "train_file": None}, ["--train_file is required"]),
  "no table to predict": (
    {**CUSTOM, "do_predict": True},
    ["--test_file is required; pass the file"],
  ),
  "table is missing": (
    {**CUSTOM, "train_file": f"{TABLES}/nowhere.csv"},
    [f"{TABLES}/nowhere.csv: no such file", "check the path"],
  ),
  "development table is missing": (
    {**CUSTOM, "dev_file": "nowhere.csv", "do_eval": True},
    ["nowhere.csv: no such file", "check the path"],
  ),
  "table is a folder": (
    {**CUSTOM, "train_file": TABLES},
    [f"{TABLES} has none of the known extensions", "export or convert"],
  ),
  "table of another format": (
    {**CUSTOM, "train_file": f"{TABLES}/rows.xlsx"},
    ["rows.xlsx has none of", 'save the workbook as "CSV UTF-8"'],
  ),
  "table is empty": (
    {**CUSTOM, "train_file": f"{TABLES}/empty.tsv"},
    [f"{TABLES}/empty.tsv has no rows", "pass a file with rows"],
  ),
  "table has a header alone": (
    {**CUSTOM, "train_file": f"{TABLES}/header.csv"},
    [f"{TABLES}/header.csv has no rows", "pass"],
  ),
  "table is not compressed": (
    {**CUSTOM, "train_file": f"{TABLES}/plain.tsv.gz"},
    [f"{TABLES}/plain.tsv.gz is not a complete gzip file", "again"],
  ),
  "JSON is malformed": (
    {**CUSTOM, "train_file": f"{TABLES}/malformed.jsonl"},
    [f"{TABLES}/malformed.jsonl:2", "one JSON object per line"],
  ),
  "JSON is no object": (
    {**CUSTOM, "train_file": f"{TABLES}/list.jsonl"},
    [f"{TABLES}/list.jsonl:1", "is not a JSON object"],
  ),
  "a text is null": (
    {**CUSTOM, "train_file": f"{TABLES}/null.jsonl"},
    [f"{TABLES}/null.jsonl:2", "--text_a_column=text", "pass text"],
  ),
  "table is not UTF-8": (
    {**CUSTOM, "train_file": f"{TABLES}/latin1.csv"},
    [f"{TABLES}/latin1.csv:3", "byte 23", "convert the file to UTF-8"],
  ),
  "a row has more columns": (
    {**CUSTOM, "train_file": f"{TABLES}/wide.csv"},
    [f"{TABLES}/wide.csv:3: 3 columns", "has 2", "quotation marks"],
  ),
  "a row has fewer columns": (
    {**CUSTOM, "train_file": f"{TABLES}/narrow.tsv"},
    [f"{TABLES}/narrow.tsv:4: 1 column", "has 2", "a tab"],
  ),
  "a quotation mark is open": (
    {**CUSTOM, "train_file": f"{TABLES}/open.csv"},
    [f"{TABLES}/open.csv:2", "close each quotation mark"],
  ),
  "no such column": (
    {**CUSTOM, "label_column": "lable"},
    [
      "--label_column=lable",
      "'text', 'label', 'number'",
      "did you mean 'label'?",
    ],
  ),
  "no such column number": (
    {**CUSTOM, "header": False, "text_a_column": 0, "label_column": 3},
    ["--label_column=3", "no such column", "from -3 to 2"],
  ),
  "names without a header": (
    {**CUSTOM, "header": False},
    ["--text_a_column=text", "without a header", "from -3 to 2"],
  ),
  "unknown label in a table": (
    {**CUSTOM, "dev_file": f"{TABLES}/bad_label.tsv", "do_eval": True},
    [
      f"{TABLES}/bad_label.tsv:3: label 'god'",
      "'bad', 'good'",
      "did you mean 'good'?",
    ],
  ),
  "a single label": (
    {**CUSTOM, "train_file": f"{TABLES}/one_label.tsv"},
    ["--label_column=label", "only the label 'good'", "2 or more"],
  ),
  "an empty label": (
    {**CUSTOM, "train_file": f"{TABLES}/no_label.tsv"},
    [f"{TABLES}/no_label.tsv:2", "--label_column=label is ''", "remove"],
  ),
  "a number is none": (
    {**CUSTOM, "regression": True},
    [f"{TABLES}/good.tsv:2", "--label_column=label is 'good'", "regression"],
  ),
}

ROWS = FLAG_ROWS | MODEL_ROWS | OUTPUT_ROWS | DATA_ROWS | TABLE_ROWS


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """What the rows name."""
  folder = tmp_path_factory.mktemp("files")
  tiny_task.make_files(folder, goldens)
  (folder / "empty").mkdir()
  _make_vocabularies(folder)
  _make_configs(folder)
  _make_checkpoints(folder)
  _make_data(folder)
  _make_tables(folder / "tables")
  _make_trained(folder)
  (folder / "one_text.txt").write_text("a b\n")
  (folder / "three_texts.txt").write_text("a b\tc\td\n")
  return folder


def _make_vocabularies(folder):
  words = (folder / "model" / "vocab.txt").read_text("utf-8").splitlines()
  words[500:502] = words[501], words[500]
  tiny_task.write_lines(folder / "other_words.txt", words)
  (folder / "pieces").mkdir()
  (folder / "pieces" / "x.model").write_bytes(b"")
  tiny_task.write_lines(folder / "no_words.txt", [])
  tiny_task.write_lines(folder / "no_cls.txt", ["[PAD]", "[UNK]", "[SEP]"])
  text = "\n".join([*SPECIALS, "caf"])
  (folder / "latin1.txt").write_bytes(text.encode() + b"\xe9\n")


def _make_configs(folder):
  fields = json.loads((folder / "model" / "bert_config.json").read_text())
  for name, changes in {
    "few_words": {"vocab_size": 99},
    "string": {"hidden_size": "32"},
    "activation": {"hidden_act": "gelo"},
    "heads": {"num_attention_heads": 5},
    "cased": {"do_lower_case": False},
    "wide": {"hidden_size": 64},
    "deep": {"num_hidden_layers": 3},
  }.items():
    (folder / f"{name}.json").write_text(json.dumps({**fields, **changes}))
  (folder / "list.json").write_text("[1]")
  (folder / "empty.json").write_text("")
  (folder / "cut.json").write_text('{\n"vocab_size": 1001,')


def _make_checkpoints(folder):
  (folder / "cased_L-12_H-768_A-12").mkdir()
  for path in (folder / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, folder / "cased_L-12_H-768_A-12")
    content = path.read_bytes()
    is_data = "data" in path.name
    middle = len(content) // 2
    altered = content[:middle] + b"\xff\xff\xff\xff" + content[middle + 4 :]
    for name, written in {
      "cut": content[:middle] if is_data else content,
      "altered": altered if is_data else content,
      "no_index": content if is_data else b"no index",
    }.items():
      (folder / path.name.replace("bert_model", name)).write_bytes(written)


def _make_data(folder):
  for name, addition in {
    "bad_label": b"7\t1\t2\ta\tb\n",
    "short_line": b"1\tshort\n",
  }.items():
    shutil.copytree(folder / "data", folder / name)
    with open(folder / name / "train.tsv", "ab") as writer:
      writer.write(addition)
  header = b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
  for name, rows in {"no_rows": b"", "latin1": b"\xe9\t1\t2\ta\tb\n"}.items():
    (folder / name).mkdir()
    (folder / name / "train.tsv").write_bytes(header + rows)
  two = folder / "two_tasks"
  shutil.copytree(folder / "data", two / "MRPC")
  for name in ("RTE", "MNLI", "AX"):
    (two / name).mkdir()
  rows = ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment"]
  tiny_task.write_lines(two / "RTE" / "train.tsv", [*rows, "1\ta\tb\tmaybe"])
  row = "\t".join([*"01234567", "He ate .", "He slept .", "neutral"])
  for name in ("train", "test_matched", "test_mismatched"):
    tiny_task.write_lines(two / "MNLI" / f"{name}.tsv", [row] * 30)


def _make_tables(folder):
  folder.mkdir()
  rows = [
    f"he {i}\t{label}\t{i}" for i in range(20) for label in ("good", "bad")
  ]
  good = ["text\tlabel\tnumber", *rows]
  tiny_task.write_lines(folder / "good.tsv", good)
  objects = ['{"text": "a", "label": "x"}', '{"text": "b", "label": "y"}']
  for name, lines in {
    "empty.tsv": [],
    "header.csv": ["text,label"],
    "rows.xlsx": good,
    "plain.tsv.gz": good,
    "malformed.jsonl": [objects[0], "{'text': 'b', 'label': 'y'}"],
    "list.jsonl": ['["a", "x"]'],
    "null.jsonl": [objects[0], '{"text": null, "label": "y"}'],
    "wide.csv": ["text,label", "a,good", "b, c,bad"],
    "narrow.tsv": ["text\tlabel", "a\tgood", "b\tbad", "c"],
    "open.csv": ["text,label", '"a,good', "b,bad"],
    "bad_label.tsv": ["text\tlabel", "a\tgood", "b\tgod"],
    "one_label.tsv": ["text\tlabel", "a\tgood", "b\tgood"],
    "no_label.tsv": ["text\tlabel", "a\t", "b\tgood"],
  }.items():
    tiny_task.write_lines(folder / name, lines)
  (folder / "latin1.csv").write_bytes(b"text,label\na,good\nb,caf\xe9\n")


def _make_trained(folder):
  """Trains, and makes damaged copies."""
  command = tiny_task.flags(folder, folder / "trained", num_train_epochs=0.25)
  scripts.fork("run_classifier.py", *command, "--do_train")
  for name, kind in (
    ("task.json", "labels"),
    ("flags.json", "flags"),
    ("best.json", "history"),
  ):
    copy = folder / f"damaged_{kind}"
    shutil.copytree(folder / "trained", copy)
    (copy / name).write_text("{")


@pytest.mark.parametrize("name", ROWS)
def test_bad_input_is_one_line_and_leaves_nothing(files, tmp_path, name):
  changes, wanted = ROWS[name]
  command = tiny_task.flags(
    files,
    tmp_path / "out",
    **{
      "do_train": True,
      **{
        flag: value.replace("FILES", str(files))
        if isinstance(value, str)
        else value
        for flag, value in changes.items()
      },
    },
  )
  before = scripts.tree(files)
  _, error = scripts.fork("run_classifier.py", *command, status=2)
  *log, line = error.splitlines()
  assert line.startswith("error: ")
  # What was found on the way may be told before.
  assert all(re.match(r"\d\d:\d\d:\d\d ", entry) for entry in log)
  for text in wanted:
    text = text.replace("FILES", str(files))
    assert text.replace("OUT", str(tmp_path / "out")) in line
  assert scripts.tree(files) == before
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  ("script", "unused", "changes"),
  [
    ("classifier", "dev_file", {"task_name": "custom"}),
    ("ner", "dev_file", {"task_name": None}),
    ("multiple_choice", "dev_file", {"task_name": None}),
    ("squad", "predict_file", {"task_name": None}),
    (
      "pretraining",
      "eval_input_file",
      {
        "task_name": None,
        "num_train_epochs": None,
        "train_file": None,
        "input_file": "nowhere",
      },
    ),
  ],
)
def test_a_file_that_is_not_used_is_named(
  files, tmp_path, script, unused, changes
):
  table = files / "tables" / "good.tsv"
  changes = {"data_dir": None, "train_file": "nowhere", **changes}
  command = tiny_task.flags(
    files, tmp_path / "out", **changes, **{unused: table}
  )
  _, log = scripts.fork(f"run_{script}.py", *command, "--do_train", status=2)
  *_, line = log.splitlines()
  assert "nowhere" in line
  users = "--do_predict, --do_eval" if script == "squad" else "--do_eval"
  warning = f"--{unused}={table} is not used; add {users} or --eval_steps\n"
  assert warning in log


# Commands that end with an error after the flags are checked: script, flags,
# and the warnings.
UNUSED = [
  (
    "run_classifier.py --do_eval --output_dir=nowhere --task_name=custom "
    "--dev_file=nowhere.csv --train_file=a.csv --test_file=b.csv "
    "--dev_fraction=0.5 --xnli_language=de --class_weights=balanced "
    "--keep_best=loss --early_stopping_patience=2 --eval_steps=3 --tpu_name=t "
    "--vocab_file=v.txt --spm_model_file=nowhere",
    [
      "--eval_steps=3, --keep_best=loss, --early_stopping_patience=2, "
      "--class_weights=balanced are not used; add --do_train",
      "--tpu_name=t is not used; omit it, or add --use_tpu",
      "--xnli_language=de is not used; pass --task_name=XNLI",
      "--test_file=b.csv is not used; add --do_predict",
      "--dev_fraction=0.5 is not used; omit --dev_file",
      "--vocab_file=v.txt is not used; omit it or --spm_model_file",
    ],
  ),
  (
    "run_classifier.py --do_train --output_dir=nowhere --data_dir=nowhere "
    "--task_name=XNLI --xnli_language=de --class_weights=balanced "
    "--keep_best=loss --eval_steps=3 --vocab_file=nowhere",
    [],
  ),
  (
    "run_classifier.py --predict_file=- --output_dir=nowhere --task_name=MRPC "
    "--data_dir=d --train_file=a.csv --text_b_column=other --regression",
    [
      "--task_name=MRPC, --data_dir=d, --train_file=a.csv, "
      "--text_b_column=other, --regression=True are not used; omit them"
    ],
  ),
  (
    "run_ner.py --do_predict --output_dir=nowhere --test_file=nowhere "
    "--train_file=a.txt",
    ["--train_file=a.txt is not used; add --do_train"],
  ),
  (
    "run_multiple_choice.py --do_predict --output_dir=nowhere "
    "--test_file=nowhere --train_file=a.csv",
    ["--train_file=a.csv is not used; add --do_train"],
  ),
  (
    "run_squad.py --do_predict --output_dir=nowhere --predict_file=nowhere "
    "--train_file=a.json",
    ["--train_file=a.json is not used; add --do_train"],
  ),
  (
    "run_squad.py --interactive --output_dir=nowhere --predict_file=a.json",
    ["--predict_file=a.json is not used; omit it"],
  ),
  (
    "run_pretraining.py --do_eval --output_dir=nowhere --input_file=a "
    "--eval_input_file=nowhere --eval_steps=2",
    [
      "--eval_steps=2 is not used; add --do_train",
      "--input_file=a is not used; add --do_train",
    ],
  ),
  ("run_pretraining.py --do_eval --output_dir=nowhere --input_file=a", []),
  (
    "extract_features.py --input_file=FILES/one_text.txt --output_file=- "
    "--init_checkpoint=nowhere --tpu_name=t --master=m --num_tpu_cores=8",
    ["--tpu_name=t, --master=m are not used; omit them, or add --use_tpu"],
  ),
]


@pytest.mark.parametrize(("command", "warnings"), UNUSED)
def test_flags_that_are_not_used_are_named(files, command, warnings):
  script, *flags = command.replace("FILES", str(files)).split(" ")
  _, log = scripts.fork(script, *flags, status=2)
  *lines, error = log.splitlines()
  assert error.startswith("error: ")
  assert [line.partition("warning: ")[2] for line in lines] == warnings


def test_a_fault_of_the_program_keeps_its_traceback(tmp_path):
  script = tmp_path / "faulty.py"
  script.write_text(
    "from bert.training import startup\n\n"
    "def main(flags):\n"
    "  raise ValueError('not the fault of the user')\n\n"
    "run, command = startup.script(main, {})\n"
    "command()\n"
  )
  _, log = scripts.fork(script, status=1)
  assert "This is a bug in the program, or in code of yours" in log
  assert "Traceback (most recent call last)" in log
  assert "ValueError: not the fault of the user" in log
  assert "error: " not in log


SPACE = "No space left on device"
AGAIN = "; free some space and run the same command again"


@pytest.mark.parametrize(
  ("fault", "line"),
  [
    ("OSError(28, 'No space left on device')", f"[Errno 28] {SPACE}{AGAIN}"),
    (f"tf.errors.ResourceExhaustedError(None, None, '{SPACE}')", SPACE + AGAIN),
    # A message that names the remedy is not changed.
    (f"UserError('{SPACE}; free some space')", f"{SPACE}; free some space"),
    (
      "tf.errors.ResourceExhaustedError(None, None, '{{function_node a}} OOM "
      "when allocating tensor with shape[8,9] [Op:MatMul] name: ')",
      "OOM when allocating tensor with shape[8,9]; lower the batch size or "
      "--max_seq_length",
    ),
  ],
)
def test_a_full_device_is_one_line_with_a_remedy(tmp_path, fault, line):
  script = tmp_path / "full.py"
  script.write_text(
    "import tensorflow as tf\n"
    "from bert.errors import UserError\n"
    "from bert.training import startup\n\n"
    "def main(flags):\n"
    f"  raise {fault}\n\n"
    "run, command = startup.script(main, {})\n"
    "command()\n"
  )
  _, log = scripts.fork(script, status=2)
  assert log == f"error: {line}\n"
