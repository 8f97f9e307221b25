"""The data sets of a user's own tables."""

import collections
import csv
import dataclasses
import json
import logging
import pathlib
import re

import hypothesis
import hypothesis.strategies as st
import pytest
from sklearn.model_selection import train_test_split
from table_files import write, write_rows

from bert.tasks.classification import label_types, tabular
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.seen_rows import SeenRows, row_hash


def labeled(folder, labels, name="train.tsv"):
  """A file with rows "text 0", "text 1" ... of these labels."""
  rows = [(f"text {n}", label) for n, label in enumerate(labels)]
  return write_rows(folder, name, ("text", "label"), rows)


def as_tuples(examples):
  return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


def texts(examples):
  return [e.text_a for e in examples]


def is_one_line(error):
  return "\n" not in str(error.value) and len(str(error.value)) < 400


class TestExamples:
  @pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.csv.gz"])
  def test_pairs_with_names(self, tmp_path, name):
    rows = [("e1", "yes", "One.", "Two."), ("e2", "no", "Three.", "")]
    path = write_rows(tmp_path, name, ("id", "answer", "q", "s"), rows)
    processor = tabular.TableProcessor(
      train_file=path,
      dev_file=path,
      test_file=path,
      text_a_column="q",
      text_b_column="-1",
      label_column="answer",
      id_column="id",
    )
    examples = processor.get_train_examples()
    assert as_tuples(examples) == [
      ("e1", "One.", "Two.", "yes"),
      ("e2", "Three.", "", "no"),
    ]
    lines = (1, 2) if "json" in name else (2, 3)
    assert [e.where for e in examples] == [f"{path}:{n}" for n in lines]
    assert as_tuples(processor.get_dev_examples()) == as_tuples(examples)
    assert as_tuples(processor.get_test_examples()) == [
      ("e1", "One.", "Two.", None),
      ("e2", "Three.", "", None),
    ]
    assert processor.get_labels() == ["no", "yes"]

  def test_numbers_for_names(self, tmp_path):
    path = write(tmp_path, "test.csv", 'text\n"a\nb"\nc\n')
    processor = tabular.TableProcessor(test_file=path)
    examples = processor.get_test_examples()
    assert as_tuples(examples) == [
      ("0", "a\nb", None, None),
      ("1", "c", None, None),
    ]
    assert [e.where for e in examples] == [f"{path}:2", f"{path}:4"]

  def test_without_header(self, tmp_path):
    path = write(tmp_path, "x.tsv", "a\tone\nb\ttwo\n")
    processor = tabular.TableProcessor(
      train_file=path,
      dev_file=path,
      text_a_column="1",
      label_column="0",
      header=False,
    )
    assert as_tuples(processor.get_train_examples()) == [
      ("0", "one", None, "a"),
      ("1", "two", None, "b"),
    ]

  def test_class_labels_of_parquet(self):
    path = pathlib.Path(__file__).parent.parent / "cases/class_labels.parquet"
    processor = tabular.TableProcessor(train_file=str(path), kind="multilabel")
    processor.label_column = "tags"
    assert processor.get_labels() == ["a", "b"]
    processor = tabular.TableProcessor(train_file=str(path))
    with pytest.raises(ValueError, match=r":2: .*=label is missing"):
      processor.get_labels()

  def test_spaces_around_labels(self, tmp_path):
    path = write(tmp_path, "x.csv", "text,label\n a ,x \nb, y\nc,x\n")
    processor = tabular.TableProcessor(train_file=path, dev_file=path)
    assert processor.get_labels() == ["x", "y"]
    first, *_ = as_tuples(processor.get_train_examples())
    assert first == ("0", " a ", None, "x")

  def test_encoding(self, tmp_path):
    path = write(tmp_path, "x.csv", "text\ngrößer\n".encode("cp1252"))
    processor = tabular.TableProcessor(test_file=path, encoding="cp1252")
    assert texts(processor.get_test_examples()) == ["größer"]

  def test_data_dir(self, tmp_path):
    path = labeled(tmp_path, "ab")
    for train_file, data_dir in (
      ("train.tsv", tmp_path),
      (path, "/nowhere"),
      (path, None),
      (path, ""),
    ):
      processor = tabular.TableProcessor(
        train_file=train_file, data_dir=data_dir
      )
      assert processor.get_labels() == ["a", "b"]
      assert len(processor.get_train_examples(data_dir)) == 1
      (examples,) = processor.get_example_sets(data_dir, "dev").values()
      assert len(examples) == 1

  def test_empty_texts_are_predicted(self, tmp_path, caplog):
    content = "id\ttext\n1\ta\n2\t\n3\t \n"
    columns = {"text_a_column": "id", "text_b_column": "text"}
    for names in ({}, columns):
      path = write(tmp_path, "test.tsv", content)
      processor = tabular.TableProcessor(test_file=path, **names)
      assert len(processor.get_test_examples()) == 3
      caplog.clear()
      processor.log_data()
      message = f"{path}: rows with an empty text (2 of 3): lines 3, 4"
      assert caplog.messages == [message]

  def test_rows_without_a_text_are_left_out_of_training(self, tmp_path, caplog):
    rows = [(f"text {n}", "ab"[n % 2]) for n in range(40)]
    for place in (3, 9, 17):
      rows[place] = (" ", "a" if place < 17 else "")
    path = write_rows(tmp_path, "x.csv", ("text", "label"), rows)
    processor = tabular.TableProcessor(train_file=path, dev_fraction=0.5)
    parts = processor.get_train_examples(), processor.get_dev_examples()
    assert sorted(map(len, parts)) == [18, 19]
    found = {e.guid: e.text_a for part in parts for e in part}
    wanted = {str(n): text for n, (text, _) in enumerate(rows) if text.strip()}
    assert found == wanted
    processor.log_data()
    reason = "left out, because they have no text"
    message = f"{path}: rows {reason} (3 of 40): lines 5, 11, 19"
    warned = [r for r in caplog.records if r.levelname == "WARNING"]
    assert [record.getMessage() for record in warned] == [message]
    # A file to evaluate on is evaluated as it is.
    path = write_rows(tmp_path, "dev.csv", ("text", "label"), rows[:10])
    processor = tabular.TableProcessor(dev_file=path, labels=["a", "b"])
    assert len(processor.get_dev_examples()) == 10
    path = write_rows(tmp_path, "empty.csv", ("text", "label"), rows[3:4])
    with pytest.raises(ValueError, match="has no rows with a text"):
      tabular.TableProcessor(train_file=path).get_labels()

  def test_half_a_pair_is_trained_on(self, tmp_path, caplog):
    path = write(tmp_path, "x.csv", "a,b,label\n,,x\n1,,x\n2,3,y\n")
    columns = {"text_a_column": "a", "text_b_column": "b"}
    processor = tabular.TableProcessor(
      train_file=path, dev_file=path, **columns
    )
    assert texts(processor.get_train_examples()) == ["1", "2"]
    processor.log_data()
    assert [m.partition(": ")[2] for m in caplog.messages] == [
      "rows left out, because they have no text (1 of 3): lines 2",
      "rows with an empty text (1 of 2): lines 3",
    ]

  @pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
      (
        "classification",
        ["", "a", " ", "b", ""],
        "''; .*; 2 more such rows: 4, 6$",
      ),
      ("regression", ["1", "x", "2", "nan"], "'x'; .*; 1 more such row: 5$"),
      ("regression", ["1", "x", "2"], "'x'; pass a number, .* remove the row$"),
      (
        "regression",
        ["x"] * 30,
        "'x'; .*; 29 more such rows: 3, .*, 22 and 9 more",
      ),
    ],
  )
  def test_all_wrong_labels_are_named_at_once(
    self, tmp_path, kind, labels, message
  ):
    processor = tabular.TableProcessor(
      train_file=labeled(tmp_path, labels), kind=kind
    )
    with pytest.raises(ValueError, match=message) as error:
      processor.get_train_examples()
    assert is_one_line(error)


class TestJsonLabels:
  def read(self, tmp_path, kind, *labels):
    rows = [{"text": "a", "label": label} for label in labels]
    path = write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    processor = tabular.TableProcessor(
      train_file=path, dev_file=path, kind=kind, labels=None
    )
    examples = processor.get_train_examples()
    return [e.label for e in examples], processor.get_labels()

  def test_classification(self, tmp_path):
    found, labels = self.read(
      tmp_path, "classification", "x", 1, 2.5, True, False, " y"
    )
    assert found == ["x", "1", "2.5", "true", "false", "y"]
    assert labels == ["1", "2.5", "false", "true", "x", "y"]

  def test_regression(self, tmp_path):
    found, labels = self.read(tmp_path, "regression", 1, -2.5, "3e2")
    assert [float(label) for label in found] == [1.0, -2.5, 300.0]
    assert labels == []

  def test_multilabel(self, tmp_path):
    found, labels = self.read(
      tmp_path, "multilabel", ["x", 1], [], "y | x", "", True, ["x", "x"]
    )
    assert found == ["x|1", "", "y|x", "", "true", "x"]
    assert labels == ["1", "true", "x", "y"]

  @pytest.mark.parametrize(
    ("cell", "wanted"),
    [
      ("['a', 'c']", "a|c"),
      ('["a", "c"]', "a|c"),
      (" ['it\\'s']", "it's"),
      ("[1, 2]", "1|2"),
      ("['a' \"c\"\n 'd']", "a|c|d"),  # NumPy's.
      ("[]", ""),
      ("[urgent]", "[urgent]"),
      ("[a|b", "[a|b"),
    ],
  )
  def test_a_list_as_text(self, tmp_path, cell, wanted):
    path = tmp_path / "x.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
      csv.writer(file).writerows([["text", "label"], ["t", cell]])
    processor = tabular.TableProcessor(
      train_file=str(path), dev_file=str(path), kind="multilabel"
    )
    (example,) = processor.get_train_examples()
    assert example.label == wanted
    # One label may look like a list.
    processor = dataclasses.replace(processor, kind="classification")
    assert processor.get_train_examples()[0].label == cell.strip()

  @pytest.mark.parametrize(
    ("kind", "label", "message"),
    [
      ("classification", None, "is missing; pass text, a number, true or f"),
      ("classification", {"x": 1}, r"is \{'x': 1\}; pass text"),
      ("classification", " ", "is ' '; pass .*, or remove the row"),
      ("regression", None, "is missing"),
      ("regression", True, "is True; pass a number, as --regression needs"),
      ("regression", "nan", "is 'nan'; pass a number"),
      ("regression", "x", "is 'x'; pass a number"),
      ("multilabel", None, "is missing; pass .* or a list of them"),
      ("multilabel", ["x", None], r"is \['x', None\]; pass .* a list of them"),
    ],
  )
  def test_errors(self, tmp_path, kind, label, message):
    with pytest.raises(
      ValueError, match=r"/x.jsonl:2: --label_column=label " + message
    ) as error:
      self.read(tmp_path, kind, 1, label)
    assert is_one_line(error)


WHOLE = '{"text": "a", "b": "c", "label": "x", "id": 7}\n\n'
LABELED = "text\tlabel\ntext 0\ta\ntext 1\tb\n"
NO_COLUMN = "no such column; its columns are 'text', 'label'"
SAME = "are the same column of .*; pass another column$"
MISSING = "/x:3: --{}=.* is missing; pass text"

# What is read, the content of the file, the arguments, and the error.
WRONG = [
  (
    "dev",
    None,
    {},
    "^--dev_file is required; pass the file .*, or the --train_file of the tr",
  ),
  ("train", WHOLE + '{"label": "x"}', {}, MISSING.format("text_a_column")),
  ("train", WHOLE + '{"text": [5]}', {}, r":3: --text_a_column=text is \[5\];"),
  (
    "train",
    WHOLE + '{"text": "a", "label": "x"}',
    {"text_b_column": "b"},
    MISSING.format("text_b_column"),
  ),
  ("train", WHOLE + '{"text": "a"}', {}, MISSING.format("label_column")),
  *(
    ("test", LABELED, {flag: "7"}, f"^--{flag}=7: .* {NO_COLUMN}")
    for flag in ("text_a_column", "text_b_column", "id_column")
  ),
  (
    "train",
    LABELED,
    {"label_column": "text"},
    f"--text_a_column=text and --label_column=text {SAME}",
  ),
  (
    "test",
    LABELED,
    {"text_b_column": "0"},
    f"--text_a_column=text and --text_b_column=0 {SAME}",
  ),
  (
    "dev",
    LABELED,
    {"text_a_column": "0", "text_b_column": "1", "label_column": "-1"},
    f"--text_b_column=1 and --label_column=-1 {SAME}",
  ),
]


@pytest.mark.parametrize(("split", "content", "arguments", "message"), WRONG)
def test_wrong_sets(tmp_path, split, content, arguments, message):
  if content:
    name = "x.jsonl" if content.startswith("{") else "x.tsv"
    arguments = {**arguments, f"{split}_file": write(tmp_path, name, content)}
  processor = tabular.TableProcessor(**arguments)
  message = message.replace("/x:", "/x.jsonl:")
  with pytest.raises(ValueError, match=message) as error:
    getattr(processor, f"get_{split}_examples")()
  assert is_one_line(error)


@pytest.mark.parametrize(
  ("kind", "labels", "message"),
  [
    ("classification", "aa", "has only the label 'a', but .* needs 2 or more"),
    ("multilabel", ["", " | "], "has no label, but multilabel needs 1"),
  ],
)
def test_too_few_labels(tmp_path, kind, labels, message):
  path = labeled(tmp_path, labels)
  message = f"^--label_column=label of {re.escape(path)} {message}"
  with pytest.raises(ValueError, match=message):
    tabular.TableProcessor(train_file=path, kind=kind).get_labels()


@pytest.mark.parametrize(
  ("labels", "message"),
  [
    (["a", "a", *"bcd" * 8, *range(24)], None),  # 24 of 50 have their own.
    ([*"ab" * 12, *range(26)], "28 distinct values in 50 rows, .*; pass the c"),
    (range(60), "60 distinct .* the labels, or --regression to predict"),
    ("abc" * 3 + "xyzuvw", None),
  ],
)
def test_labels_that_do_not_repeat(tmp_path, labels, message):
  path = labeled(tmp_path, map(str, labels))
  processor = tabular.TableProcessor(train_file=path)
  if message is None:
    assert processor.get_labels() == sorted(set(map(str, labels)))
    return
  message = f"^--label_column=label of {re.escape(path)} has {message}"
  with pytest.raises(ValueError, match=message) as error:
    processor.get_labels()
  assert is_one_line(error)


def test_ids_of_a_test_set(tmp_path):
  path = labeled(tmp_path, "ab")
  # A text may be an id, and a test set may lack those of the training.
  for name, needs_ids, first in (
    ("text", True, "text 0"),
    ("text", False, "text 0"),
    ("key", False, "0"),
  ):
    processor = tabular.TableProcessor(
      test_file=path, id_column=name, needs_ids=needs_ids
    )
    assert processor.get_test_examples()[0].guid == first
  # Only predictions need them.
  processor = tabular.TableProcessor(train_file=path, id_column="key")
  assert len(processor.get_train_examples()) == 1


def test_held_out_texts_that_were_trained_on_are_left_out(tmp_path, caplog):
  path = labeled(tmp_path, "ababa")
  examples = tabular.TableProcessor(train_file=path, dev_file=path)
  hashes = list(map(row_hash, examples.get_train_examples()))
  # Two of the rows that were held out have the texts of rows for training.
  seen = SeenRows(frozenset(hashes[:3]), frozenset(hashes[1:4]))
  processor = tabular.TableProcessor(
    train_file=path, labels=["a", "b"], seen=seen
  )
  with caplog.at_level(logging.INFO, "absl"):
    assert texts(processor.get_dev_examples()) == ["text 0", "text 4"]
  assert "; left out, because also trained on: 2 held-out texts" in caplog.text


def test_one_row_is_not_divided(tmp_path):
  processor = tabular.TableProcessor(
    train_file=labeled(tmp_path, "1"), kind="regression"
  )
  with pytest.raises(ValueError, match=r"train\.tsv has no row for evaluation"):
    processor.get_dev_examples()


class TestLabels:
  @pytest.mark.parametrize(
    ("found", "labels"),
    [
      (["b", "a", "b"], ["a", "b"]),
      (["10", "9", "-1", "2.5"], ["-1", "2.5", "9", "10"]),
      (["10", "9", "x"], ["10", "9", "x"]),
      (["1.0", "1", "0"], ["0", "1", "1.0"]),
      (["nan", "2", "10"], ["10", "2", "nan"]),
      (["Z", "é", "a"], ["Z", "a", "é"]),
    ],
  )
  def test_order(self, tmp_path, found, labels):
    path = labeled(tmp_path, found)
    assert tabular.TableProcessor(train_file=path).get_labels() == labels

  def test_regression_reads_nothing(self):
    assert tabular.TableProcessor(kind="regression").get_labels() == []

  def test_given(self, tmp_path):
    processor = tabular.TableProcessor(
      train_file=labeled(tmp_path, "aaa"), labels=["b", "a"]
    )
    assert processor.get_labels() == ["b", "a"]
    assert len(processor.get_train_examples()) == 2


def made(labels):
  return [
    InputExample(str(n), f"text {n}", None, label)
    for n, label in enumerate(labels)
  ]


KINDS = st.sampled_from(["classification", "regression", "multilabel"])
FRACTIONS = st.floats(0.01, 0.99)


class TestSplit:
  @hypothesis.given(
    st.lists(st.sampled_from(["1", "2", "1|2"]), min_size=2, max_size=60),
    KINDS,
    FRACTIONS,
    st.integers(0, 2**31 - 1),
  )
  def test_parts(self, labels, kind, fraction, seed):
    examples = made(labels)
    train, dev = tabular.split_examples(examples, kind, fraction, seed)
    places = [[int(e.guid) for e in part] for part in (train, dev)]
    assert all(part == sorted(part) for part in places)
    assert sorted(places[0] + places[1]) == list(range(len(labels)))
    assert train
    assert abs(len(dev) - fraction * len(labels)) <= 1
    assert dev
    again = tabular.split_examples(examples, kind, fraction, seed)
    assert again == (train, dev)

  @hypothesis.given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), FRACTIONS
  )
  def test_shares(self, counts, fraction):
    labels = [str(n) for n, count in enumerate(counts) for _ in range(count)]
    hypothesis.assume(len(labels) > 1)
    _, dev = tabular.split_examples(made(labels), "classification", fraction, 1)
    found = collections.Counter(e.label for e in dev)
    rest = sum(count for count in counts if count > 1)
    if len(dev) <= rest:
      counts = [count if count > 1 else 0 for count in counts]
    else:
      rest = len(labels)
    for n, count in enumerate(counts):
      assert abs(found[str(n)] - count * len(dev) / rest) < 1

  @hypothesis.given(
    st.lists(
      st.sets(st.sampled_from("abcdefgh"), max_size=3).map("|".join),
      min_size=2,
      max_size=60,
    ),
    FRACTIONS,
    st.integers(0, 9),
  )
  def test_rare_labels_of_several(self, labels, fraction, seed):
    examples = made(labels)
    _, dev = tabular.split_examples(examples, "multilabel", fraction, seed)
    sets = [frozenset(filter(None, label.split("|"))) for label in labels]
    times = collections.Counter(name for names in sets for name in names)
    in_dev = {int(e.guid) for e in dev}
    alone = {
      n for n, names in enumerate(sets) if any(times[m] == 1 for m in names)
    }
    alone |= {sets.index(set())} if sets.count(set()) == 1 else set()
    if len(dev) <= len(labels) - len(alone):
      assert not in_dev & alone

  @hypothesis.given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("123")), min_size=2),
    KINDS,
    FRACTIONS,
  )
  def test_equal_texts_stay_together(self, rows, kind, fraction):
    """White space does not make texts differ."""
    examples = [
      InputExample(str(n), f"text{' ' * (n % 3 + 1)}{text}", None, label)
      for n, (text, label) in enumerate(rows)
    ]
    parts = tabular.split_examples(examples, kind, fraction, 1)
    train, dev = ({e.text_a.split()[1] for e in part} for part in parts)
    assert train
    assert not train & dev
    assert bool(dev) == (len(train | dev) > 1)
    guids = [e.guid for part in parts for e in part]
    assert sorted(guids, key=int) == [e.guid for e in examples]

  def test_a_frequent_text_is_for_training(self):
    """As empty texts are, which would else be half of the development set."""
    same = [InputExample("x", "same", None, "a") for _ in range(20)]
    for seed in range(9):
      _, dev = tabular.split_examples(
        made("ab" * 50) + same, "classification", 0.1, seed
      )
      assert len(dev) == 11
      assert not {*dev} & {*same}

  def test_shares_are_sklearns(self):
    labels = ["a"] * 30 + ["b"] * 20
    _, dev = tabular.split_examples(made(labels), "classification", 0.1, 7)
    _, expected = train_test_split(labels, test_size=0.1, stratify=labels)
    assert [e.label for e in dev] == sorted(expected)

  def test_a_rare_label_beside_frequent_ones(self):
    examples = made(["a|b", "a", "b", "a|c"] * 24 + ["a|rare", "b|c|rare"] * 5)
    for seed in range(20):
      train, dev = tabular.split_examples(examples, "multilabel", 0.1, seed)
      assert [
        sum("rare" in e.label for e in part) for part in (train, dev)
      ] in ([9, 1], [8, 2])

  def test_seeds(self, tmp_path):
    path = labeled(tmp_path, "ab" * 50)

    def dev_texts(seed):
      processor = tabular.TableProcessor(train_file=path, split_seed=seed)
      dev = texts(processor.get_dev_examples())
      train = texts(processor.get_train_examples())
      assert not set(dev) & set(train)
      assert {*dev, *train} == {f"text {n}" for n in range(100)}
      return dev

    assert dev_texts(1) == dev_texts(1)
    assert len({tuple(dev_texts(seed)) for seed in range(5)}) == 5


class TestWarnings:
  def test_rare_labels(self, caplog):
    many = [str(n) for n in range(30)]
    fewest = []
    for labels, label_type in (
      (["a", "a", "c", "b"], label_types.Classification(["a", "b", "c"])),
      (["1", "2"], label_types.Regression()),
      (["a|b", "b", ""], label_types.Multilabel(["a", "b"])),
      (["a", "a"], label_types.Classification(["a"])),
      (many, label_types.Classification(many)),
      (["b", "b"], label_types.Classification(["c", "b", "a"])),
      (["a", ""], label_types.Multilabel(["a", "b"])),
    ):
      fewest.append(tabular.log_rare_labels(made(labels), label_type))
    assert fewest == [1, 0, 1, 2, 1, 0, 0]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    messages = [record.getMessage() for record in caplog.records]
    once = "with a single example in the training set:"
    never = "with no example in the training set:"
    remedy = "; add rows, or merge such a label with another one"
    assert all(message.endswith(remedy) for message in messages)
    found = [message.removesuffix(remedy) for message in messages]
    assert found[:2] == [f"2 labels {once} 'b', 'c'", f"1 label {once} 'a'"]
    assert found[2].startswith(f"30 labels {once} '0', '1', '2',")
    assert found[2].endswith(" and 10 more")
    assert found[3:] == [
      f"2 labels {never} 'c', 'a'",
      f"1 label {never} 'b'",
      f"1 label {once} 'a'",
    ]

  def test_doubtful_labels(self, caplog):
    train = [
      InputExample(str(row), *texts, label, f"x.csv:{row}")
      for row, texts, label in (
        *((2, ("a", None), "IT"), (3, ("a", "a"), "it"), (4, ("b", None), "x")),
        *((5, ("a", None), "it"), (6, ("a", None), "x"), (7, ("b", None), "x")),
      )
    ]
    names = ["IT", "it", "x"]
    tabular.log_doubtful_labels(train, label_types.Classification(names))
    tabular.log_doubtful_labels(train, label_types.Regression())
    several = [InputExample("0", "a", label=x) for x in ("p|q", "q|p")]
    tabular.log_doubtful_labels(several, label_types.Multilabel(["p", "q"]))
    several.append(InputExample("2", "a", label="p"))
    tabular.log_doubtful_labels(several, label_types.Multilabel(["p", "q"]))
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.startswith("2 rows of the training set with the texts of an")
    assert first.endswith("of x.csv:5 is 'it', and that of x.csv:2 is 'IT'")
    assert "differ only in upper and lower case: 'IT', 'it';" in second
    assert third.startswith("1 row of")
