"""run_multiple_choice.py from the shell, on the sample questions."""

import csv
import gzip
import json
import re
import types

import mistakes
import numpy as np
import pytest
import scripts
import tiny_task

import tokenization
from bert.contract.task import Settings
from bert.tasks.multiple_choice import data as choices, task as multiple_choice
from bert.tasks.multiple_choice.data import Example
from bert.tasks.multiple_choice.task import MultipleChoiceTask

DATA = scripts.ROOT / "sample_data" / "multiple_choice"


def flags(files, out, **changes):
  data = {
    f"{split}_file": DATA / f"{split}.jsonl" for split in ("train", "dev")
  }
  changes = {"task_name": None, "data_dir": None, **data, **changes}
  return tiny_task.flags(files, out, **changes)


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
  """The folder of a training on rows with two to four choices."""
  folder = tmp_path_factory.mktemp("trained")
  rows = [
    json.loads(line)
    for line in (DATA / "train.jsonl").read_text().splitlines()[:40]
  ]
  for row in rows[::2]:
    del row["choices"][row["label"] + 1 :]
    if len(row["choices"]) < 2:
      row["choices"].append("Nothing happens.")
  for row in rows[::3]:
    row["question"] = "Then"
  for split, part in (("train", rows), ("dev", rows[:10]), ("test", rows[:10])):
    tiny_task.write_lines(folder / f"{split}.jsonl", map(json.dumps, part))
  out = folder / "out"
  data = {f"{s}_file": folder / f"{s}.jsonl" for s in ("train", "dev", "test")}
  scripts.fork(
    "run_multiple_choice.py",
    *flags(files, out, num_train_epochs=1, **data, **tiny_task.HEAD_ONLY),
    *("--do_train", "--do_eval", "--do_predict"),
  )
  return out, rows[:10]


def test_accuracy_is_that_of_the_predictions(trained):
  out, rows = trained
  with open(out / "test_predictions.tsv", encoding="utf-8") as reader:
    table = list(csv.DictReader(reader, delimiter="\t"))
  right = 0
  for row, found in zip(rows, table, strict=True):
    shares = [float(found[f"choice_{i}"]) for i in range(len(row["choices"]))]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert int(found["prediction"]) == int(np.argmax(shares))
    right += int(found["prediction"]) == row["label"]
  results = json.loads((out / "eval_results.json").read_text())
  assert (
    f"eval_accuracy = {right / 10}" in (out / "eval_results.txt").read_text()
  )
  assert results["correct"] == right
  page = (out / "report.html").read_text()
  assert f"{10 - right} of 10 choices are wrong" in page


def test_rows_with_fewer_choices_have_all_columns(tmp_path):
  examples = [Example("", "", "", ["a"] * count) for count in (3, 2)]
  task = MultipleChoiceTask(Settings(8), None, {"test": examples})
  rows = types.SimpleNamespace(examples=examples, num_rows=2)
  row = {"probabilities": np.array([0.5, 0.25, 0.25])}
  answers = (task.answer(example, [row]) for example in examples)
  task.write(str(tmp_path), rows, answers)
  assert (tmp_path / "test_predictions.tsv").read_text() == (
    "id\tprediction\tchoice_0\tchoice_1\tchoice_2\n"
    "0\t0\t0.500000\t0.250000\t0.250000\n"
    "1\t0\t0.500000\t0.250000\t\n"
  )


def test_a_dialogue(trained):
  out, _ = trained
  text, _ = scripts.fork(
    "run_multiple_choice.py",
    *(f"--output_dir={out}", "--interactive"),
    stdin="It rains.\n\nShe opens the umbrella. | She tunes the violin.\n"
    "It rains.\n\nShe sings.\n"
    "It rains.\n\nShe sings. | \n",
  )
  assert text.startswith("context> question> choices (a | b | c)> ")
  shares = re.findall(r"([\d.]+)%  She", text)
  assert sum(map(float, shares)) == pytest.approx(100, abs=0.2)
  problem = "pass two or more choices that are not empty"
  assert re.findall(r"error: (.*)", text) == [problem] * 2


def test_a_row_has_a_sequence_for_each_choice(goldens):
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  example = Example("", "the", "he", ["the", "of the mountains"], 1)
  row = multiple_choice.make_row(example, tokenizer, 7)
  assert [tokenizer.convert_ids_to_tokens(ids) for ids in row["input_ids"]] == [
    ["[CLS]", "the", "[SEP]", "he", "the", "[SEP]", "[PAD]"],
    ["[CLS]", "the", "[SEP]", "he", "of", "the", "[SEP]"],
  ]
  assert row["input_mask"] == [[1] * 6 + [0], [1] * 7]
  assert row["segment_ids"] == [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
  assert row["label_ids"] == 1


@pytest.mark.parametrize(
  ("context", "question", "choice", "found"),
  [
    ("", "the the of", "mountains", "the the mountains"),
    ("", "the the of", "mountains of the he", "the mountains of"),
    ("he he he he", "the the of", "mountains", "mountains"),
    ("he", "the", "mountains of the he", "the mountains"),
  ],
)
def test_a_long_question_leaves_room_for_the_choice(
  goldens, context, question, choice, found
):
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  example = Example("", context, question, [choice, "he"], 1)
  row = multiple_choice.make_row(example, tokenizer, 6)
  ids, segments = (row[name][0] for name in ("input_ids", "segment_ids"))
  second = [i for i, segment in zip(ids, segments, strict=True) if segment]
  pieces = tokenizer.convert_ids_to_tokens(second)
  assert pieces == [*found.split(), "[SEP]"]


# The first column has no name.
SWAG_HEADER = (
  ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,"
  "ending2,ending3,label"
)
SWAG_ROW = "0,a,1,A man sits. He,A man sits.,He,gold,runs.,sleeps.,{},sings.,{}"


def test_swag_is_read(tmp_path):
  path = tmp_path / "val.csv.gz"
  rows = (SWAG_ROW.format("eats.", i % 4) for i in range(8))
  path.write_bytes(gzip.compress("\n".join([SWAG_HEADER, *rows]).encode()))
  choices_of = ["runs.", "sleeps.", "eats.", "sings."]
  assert choices.read_examples(str(path), True)[5] == Example(
    f"{path}:7", "A man sits.", "He", choices_of, 1
  )


MISTAKES = """
{"context": "a", "choices": ["b", ""], "label": 0}
  choices a list of two or more that are not empty
{"context": "a", "choices": "bc", "label": 0}
  choices a list of two or more that are not empty
{"context": "a", "choices": ["b", "c"], "label": 2}
  label is 2; pass the index of a choice, 0 to 1
{"context": "a", "choices": ["b", "c"], "label": 1e999}
  label is inf; pass the index of a choice, 0 to 1
{"context": "a", "choices": ["b", "c"]}
  with label
{"choices": ["b", "c"], "label": 0}
  SWAG's columns
"""


@mistakes.each_of(MISTAKES)
def test_a_row_with_a_mistake_is_named(files, mistake):
  row, message = mistake
  path = files / "mistake.jsonl"
  tiny_task.write_lines(path, [row])
  good = [*flags(files, files / "out", dev_file=None), "--do_train"]
  mistake = f"--train_file={path}", f"{path} ... {message.strip()}"
  mistakes.check(mistake, "run_multiple_choice.py", files, good)


@pytest.mark.parametrize(
  ("lines", "message"),
  [
    (
      [SWAG_HEADER, SWAG_ROW.format("eats.", 0), SWAG_ROW.format(" ", 1)],
      "swag.csv:3: context and question must be strings, and choices a list",
    ),
    (
      ["sent1,sent2,ending0,ending1,ending2,label", "a,b,c,d,e,0"],
      "swag.csv has neither SWAG's columns, sent1, sent2, ending0, ending1,",
    ),
  ],
)
def test_a_mistake_in_swag_is_named(files, lines, message):
  path = files / "swag.csv"
  tiny_task.write_lines(path, lines)
  good = [*flags(files, files / "out", dev_file=None), "--do_train"]
  mistake = f"--train_file={path}", message
  mistakes.check(mistake, "run_multiple_choice.py", files, good)
