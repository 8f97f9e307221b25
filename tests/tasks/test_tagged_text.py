"""Files of labeled words."""

import gzip
import json
import pathlib

import pytest

from bert.errors import UserError
from bert.tasks.tagging import data as tagged_text

CASES = pathlib.Path(__file__).parent.parent / "cases"

COLUMNS = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

Peter NNP B-PER
-DOCSTART- -X- O
It PRP O
"""


def write(tmp_path, text, name="train.txt"):
  path = tmp_path / name
  path.write_text(text, encoding="utf-8")
  return str(path)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns(tmp_path, zipped, end):
  path = tmp_path / ("a.txt.gz" if zipped else "a.txt")
  content = COLUMNS.replace("\n", end).encode()
  path.write_bytes(gzip.compress(content) if zipped else content)
  found = tagged_text.read_sentences(str(path), True)
  assert [s.words for s in found] == [["EU", "rejects"], ["Peter"], ["It"]]
  assert [s.labels for s in found] == [["B-ORG", "O"], ["B-PER"], ["O"]]
  assert [s.document for s in found] == [1, 1, 2]
  assert [s.where for s in found] == [f"{path}:{n}" for n in (3, 6, 8)]
  assert found[0].lines == ["EU NNP B-ORG", "rejects VBZ O"]
  marked = "-DOCSTART- -X- O"
  assert [s.document_lines for s in found] == [[marked], [], [marked]]


def test_documents_without_sentences(tmp_path):
  content = "-DOCSTART- 1\n\n-DOCSTART- 2\n\na O\n-DOCSTART- 3\n"
  (found,) = tagged_text.read_sentences(write(tmp_path, content), True)
  assert found.document_lines == ["-DOCSTART- 1", "-DOCSTART- 2"]
  assert found.document == 2


@pytest.mark.parametrize(
  ("text", "sentences"),
  [
    ("New York\tB-LOC\nis\tO\n", [["New York", "is"]]),
    # A number sign may be a word, or begin a comment.
    ("# O\n1 O\n# X\n", [["#", "1", "#"]]),
    ("#\tO\n1\tO\n#\tX\n", [["#", "1", "#"]]),
    ("# text = a\na O\n\nb O\n", [["a"], ["b"]]),
    ("a\tO\n\n# id = 1\nb\tO\n", [["a"], ["b"]]),
    ("# id = 1\na A B O\n\n# id = 2\nb A B O\n", [["a"], ["b"]]),
    (
      "#\tfrom a page\na\tO\n\n#\thttp://b\tx\n#\tO\nb\tO\n",
      [["a"], ["#", "b"]],
    ),
    # Words may be numbers.
    ("1 CD O\n\n1 CD O\n", [["1"], ["1"]]),
    ("1 O\n2 O\n", [["1", "2"]]),
    ("1 CD O\n3 CD O\n", [["1", "3"]]),
    ("1 In IN O\n2 Oslo NNP B-LOC\n\n1 Ann NNP O\n", [["In", "Oslo"], ["Ann"]]),
    # Lines of unusual blanks are empty.
    ("a O\n\ufeff\nb O\n \ufeff \nc O\n", [["a"], ["b"], ["c"]]),
    ("a O\n\u00a0\nb O\n", [["a"], ["b"]]),
  ],
)
def test_words(tmp_path, text, sentences):
  found = tagged_text.read_sentences(write(tmp_path, text), True)
  assert [sentence.words for sentence in found] == sentences


def test_unlabeled_columns(tmp_path):
  text = "a\nb\n\n\ufeff\nc\n"
  found = tagged_text.read_sentences(write(tmp_path, text), False)
  assert [s.words for s in found] == [s.lines for s in found]
  assert [s.words for s in found] == [["a", "b"], ["c"]]
  assert found[0].labels is None


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_other_blanks_are_part_of_a_word(tmp_path, separator):
  words = ["10\u00a0000", "\u3000"]
  rows = [[words[0], "CD"], [words[1], "O"]]
  text = "".join(f"{separator.join(row)}\n" for row in rows)
  (found,) = tagged_text.read_sentences(write(tmp_path, text), True)
  assert found.words == words
  assert found.separator == separator
  unlabeled = write(tmp_path, "".join(f"{word}\n" for word in words))
  (found,) = tagged_text.read_sentences(unlabeled, False)
  assert found.words == words


CONLLU = """# sent_id = 1
# text = Im Haus
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tIn\tin\tADP\tAPPR\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\tART\tCase=Dat\t3\tdet\t_\t_
3\tHaus\tHaus\tNOUN\tNN\tCase=Dat\t0\troot\t_\tSpaceAfter=No
3.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_

# text = Ja
1\tJa\tja\tPART\tPTKANT\t_\t0\troot\t_\t_
"""


class TestNumberedWords:
  """Files that number the words of each sentence in their first column."""

  def test_entities_within_entities(self):
    path = str(CASES / "ner_numbered.txt")
    first, second = tagged_text.read_sentences(path, True)
    assert first.words == ["Lena", "Vogt", "lebt", "in", "Kassel", "."]
    assert first.labels == ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
    assert second.words == ["Die", "Akademie", "Kassel", "schweigt", "."]
    assert second.labels == ["O", "B-ORG", "I-ORG", "O", "O"]
    assert second.where == f"{path}:8"
    assert second.lines[2] == "3\tKassel\tI-ORG\tB-LOC"
    (first, _) = tagged_text.read_sentences(path, False)
    assert first.words[0] == "Lena"

  def test_comments(self, tmp_path):
    text = (CASES / "ner_numbered.txt").read_text()
    commented = f"#\thttp://a.de [2005-02-26]\n{text}"
    commented = commented.replace("\n\n", "\n\n#\tb.de vom 26.\n")
    found = tagged_text.read_sentences(write(tmp_path, commented), True)
    assert [len(sentence.words) for sentence in found] == [6, 5]
    assert found[1].where.endswith(":10")

  @pytest.mark.parametrize("name", ["a.conllu", "a.txt"])
  def test_conllu(self, tmp_path, name):
    path = write(tmp_path, CONLLU, name)
    first, second = tagged_text.read_sentences(path, True)
    assert (first.words, second.words) == (["In", "dem", "Haus"], ["Ja"])
    assert (first.labels, second.labels) == (["ADP", "DET", "NOUN"], ["PART"])


@pytest.mark.parametrize("key", ["labels", "ner_tags"])
def test_json_lines(tmp_path, key):
  rows = [
    {"tokens": ["a", "b"], key: ["X", "Y"], "document": 0},
    {"tokens": [7], key: [3], "document": 0},
    {"tokens": ["e"], key: ["X"]},
  ]
  path = write(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")
  found = tagged_text.read_sentences(path, True)
  assert [s.words for s in found] == [["a", "b"], ["7"], ["e"]]
  assert [s.labels for s in found] == [["X", "Y"], ["3"], ["X"]]
  assert found[0].document == found[1].document != found[2].document


@pytest.mark.parametrize(
  ("name", "text", "problem"),
  [
    ("a.txt", "", "has no sentence"),
    ("a.txt", "a O\nb X O\n", "a.txt:2: 3 columns, but 2"),
    ("a.txt", "# 12\na B O\n", "a.txt:2: 3 .* same way, remove comments"),
    ("a.txt", "1\ta\tO\n2\t\tO\n", "a.txt:2: .* lacks a column; add the word"),
    ("a.txt", "a\n", "a.txt:1: 'a' lacks a column; add"),
    ("a.txt", "a\tO\nNew York\n", "a.txt:2: 1 column, but 2 .* same way"),
    ("a.jsonl", "{\n", "a.jsonl:1"),
    ("a.jsonl", '{"tokens": []}', r"a.jsonl:1: tokens is \[\]; pass a"),
    ("a.jsonl", '{"tokens": [" "], "labels": ["O"]}', "a.jsonl:1: tokens"),
    ("a.jsonl", '{"tokens": [true], "labels": ["O"]}', "a.jsonl:1: tokens"),
    ("a.jsonl", '{"tokens": ["a\\nb"], "labels": ["O"]}', "line breaks"),
    ("a.jsonl", '{"tokens": ["a"]}', "a.jsonl:1: labels .* is missing"),
    ("a.jsonl", '{"tokens": ["a"], "labels": [""]}', "labels .* is .*; pass a"),
    (
      "a.jsonl",
      '{"tokens": ["a", "b"], "labels": ["O"]}',
      "a label for each of the 2 tokens",
    ),
  ],
)
def test_wrong_files(tmp_path, name, text, problem):
  with pytest.raises(UserError, match=problem):
    tagged_text.read_sentences(write(tmp_path, text, name), True)


def test_parquet():
  # The package `datasets` has written this file.
  path = str(CASES / "ner_tags.parquet")
  (sentence,) = tagged_text.read_sentences(path, True)
  assert sentence.words == ["Ann", "ran"]
  assert sentence.labels == ["B-PER", "O"]


def test_plain_text_is_not_columns(tmp_path, caplog):
  path = write(tmp_path, "Ada saw Oslo .\n\nIt was cold .\n")
  tagged_text.warn_of_plain_text(tagged_text.read_sentences(path, False))
  (line,) = caplog.messages
  assert line.endswith("plain text, pass it as --predict_file")
  assert line.startswith(f"{path}:1: each sentence has one word")
  path = write(tmp_path, "Ada saw Oslo .\n\nIt was\n")
  with pytest.raises(UserError, match="plain text as --predict_file"):
    tagged_text.read_sentences(path, False)


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("a.txt", "Ada\n\nOslo\n"),
    ("a.txt", "Ada N\nsaw V\n\nIt P\n"),
    ("a.txt", "Ada\tN\n\nOslo\tN\n"),
    ("a.jsonl", '{"tokens": ["New York"]}'),
  ],
)
def test_columns_are_not_plain_text(tmp_path, caplog, name, text):
  path = write(tmp_path, text, name)
  tagged_text.warn_of_plain_text(tagged_text.read_sentences(path, False))
  assert caplog.messages == []


def test_an_unknown_label_is_named(tmp_path):
  found = tagged_text.read_sentences(write(tmp_path, "a X\nb Y\n"), True)
  assert tagged_text.find_labels(found) == ["X", "Y"]
  problem = r"train.txt:2: the label 'Y' of 'b' is not one of 'X', '0'"
  with pytest.raises(UserError, match=problem) as caught:
    tagged_text.check_labels(found, ["X", *map(str, range(99))])
  assert str(caught.value).endswith("and 80 more")
