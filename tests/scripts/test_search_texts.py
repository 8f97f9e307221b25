"""search_texts.py as a command: indexes, queries, negatives, bad input."""

import json

import mistakes
import pytest
import scripts
import task_folders

SCRIPT = "search_texts.py"

ANSWERS = [
  "id,question,answer",
  "1,who ?,Jim Henson made puppets",
  "2,where ?,the mountains of the north",
  "3,what ?,a city in the north",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden, goldens):
  """A release, an index of its vectors, and a model of another task."""
  folder = tmp_path_factory.mktemp("search")
  for name, task in (("release", ""), ("pairs", "multilabel")):
    (folder / name).mkdir()
    task_folders.write(folder / name, task, golden, goldens)
  (folder / "answers.csv").write_text("\n".join(ANSWERS))
  (folder / "empty.txt").write_text("\n \n")
  (folder / "queries.txt").write_text("who made puppets\nthe north\n")
  (folder / "no_words.txt").write_text("the north\n\n")
  (folder / "taken").mkdir()
  (folder / "taken" / "index.json").write_text('{"model": "a"}')
  run(folder, "--input_file=answers.csv", "--text_column=answer", *MODEL)
  return folder


MODEL = ["--model_dir=release"]


def run(folder, *flags, index="index", **kwargs):
  return scripts.fork(SCRIPT, f"--index={index}", *flags, cwd=folder, **kwargs)


def hits_of(output):
  return [
    [hit["text"] for hit in json.loads(line)["hits"]]
    for line in output.splitlines()
  ]


def test_query(folder):
  shown, _ = run(folder, "--query=who made puppets", "--top_k=1")
  first, own_id, second = shown.splitlines()
  score, text = first.split(maxsplit=1)
  assert 0.5 < float(score) <= 1
  assert text == "Jim Henson made puppets"
  assert own_id.split() == ["id:", "1"]
  assert second.split() == ["question:", "who", "?"]


@pytest.mark.parametrize("output", ["-", "found.jsonl"])
def test_query_file(folder, output):
  flags = ["--query_file=queries.txt", f"--output_file={output}", "--top_k=2"]
  shown, _ = run(folder, *flags)
  if output != "-":
    assert shown == ""
    shown = (folder / output).read_text()
  lines = list(map(json.loads, shown.splitlines()))
  assert [line["query"] for line in lines] == ["who made puppets", "the north"]
  assert [len(line["hits"]) for line in lines] == [2, 2]
  hit = lines[0]["hits"][0]
  assert hit["id"] == "1"
  assert hit["fields"] == {"question": "who ?"}


def test_interactive(folder):
  shown, _ = run(
    folder, "--interactive", "--top_k=1", stdin="the north\n\n\u200b\n"
  )
  assert "the north" in shown.splitlines()[0]
  assert "error: the query is '\\u200b', without a word; pass some" in shown


def test_reranker(folder):
  flags = ["--query=puppets", "--output_file=-", "--reranker=pairs"]
  (found,) = hits_of(run(folder, *flags, "--relevant_label=blue")[0])
  assert sorted(found) == sorted(line.split(",")[2] for line in ANSWERS[1:])


def test_add_and_remove(folder):
  (folder / "more.jsonl").write_text(
    json.dumps({"id": "4", "answer": "the city of puppets"})
    + '\n{"id": "5", "answer": ""}\n{"id": "6"}\n'
  )
  flags = ["--input_file=answers.csv", "--text_column=answer", *MODEL]
  run(folder, *flags, "--dtype=float32", index="changed")
  flags = ["--input_file=more.jsonl", "--text_column=answer"]
  _, log = run(folder, *flags, "--remove_ids=1,3", index="changed")
  assert "changed has 2 texts; 1 were encoded" in log
  assert "2 rows without a text left out: more.jsonl:2: --text_column=" in log
  flags = ["--query=the city of puppets", "--output_file=-"]
  (found,) = hits_of(run(folder, *flags, index="changed")[0])
  assert found == ["the city of puppets", "the mountains of the north"]


def test_an_update_reads_the_columns_that_the_index_was_made_of(folder):
  rows = ["key,answer", "a,the city", "b,the north"]
  table = folder / "keys.csv"
  table.write_text("\n".join(rows))
  flags = ["--text_column=answer", "--id_column=key", *MODEL]
  _, log = run(folder, "--input_file=keys.csv", *flags, index="keys")
  assert "warning" not in log
  table.write_text("\n".join([*rows, "c,who made puppets"]))
  _, log = run(folder, "--input_file=keys.csv", index="keys")
  assert "keys has 3 texts; 1 were encoded" in log
  # Rows of another table get ids, too.
  text = "answer\nwho made\u00a0puppets\n"  # The byte is not UTF-8.
  (folder / "no_keys.csv").write_bytes(text.encode("cp1252"))
  flags = ["--input_file=no_keys.csv", "--encoding=cp1252"]
  _, log = run(folder, *flags, index="keys")
  assert "keys has 4 texts; 1 were encoded" in log
  (folder / "titles.csv").write_text("key,title\nd,a title\n")
  flags = ["--input_file=titles.csv", "--text_column=title"]
  _, log = run(folder, *flags, index="keys")
  assert "keys was made with answer, and keeps those texts" in log
  run(folder, "--remove_ids=d", index="keys")
  shown, _ = run(folder, "--query=who made puppets", "--top_k=2", index="keys")
  assert [line.split()[-1] for line in shown.splitlines()] == [
    *("puppets", "c", "puppets")
  ]


def test_negatives(folder):
  flags = ["--text_a_column=question", "--text_b_column=answer"]
  flags += ["--mine_negatives=answers.csv", "--output_file=triples.jsonl"]
  _, log = run(folder, *flags, "--max_negative_share=1", "--num_negatives=2")
  lines = (folder / "triples.jsonl").read_text().splitlines()
  rows = list(map(json.loads, lines))
  right = dict(line.split(",")[1:] for line in ANSWERS[1:])
  assert {row["question"]: row["answer"] for row in rows} == right
  for row in rows:
    assert set(row["negative"]) <= {*right.values()} - {row["answer"]}
  count = sum(len(row["negative"]) for row in rows)
  assert f"triples.jsonl: 3 pairs with {count} negative" in log


def test_labels_of_negatives(folder):
  """A row with the label 0 is a negative of the right row."""
  rows = ["text_a,text_b,label", "who ?,Jim Henson made puppets,1"]
  rows += ["who ?,a city in the north,0", "why ?,the mountains of the north,0"]
  (folder / "labeled.csv").write_text("\n".join(rows))
  flags = ["--mine_negatives=labeled.csv", "--output_file=labeled.jsonl"]
  _, log = run(folder, *flags, "--label_column=label")
  (line,) = (folder / "labeled.jsonl").read_text().splitlines()
  first, second, _ = rows[1].split(",")
  negatives = ["a city in the north"]
  wanted = {"text_a": first, "text_b": second, "negative": negatives}
  assert json.loads(line) == wanted
  assert "labeled.jsonl: 1 pair with 1 negative" in log


MISTAKES = """
--query=a --index=none
  --index=none holds no index; write one with
--input_file=queries.txt --index=none
  --model_dir is required
--input_file=answers.csv --model_dir=release --index=none
  --text_column=text: answers.csv has no such column; its columns are
--input_file=empty.txt --model_dir=release --index=none
  empty.txt has no texts; pass a file with texts
--input_file=queries.txt --model_dir=pairs --index=none
  pairs is a classification model; pass one that gives vectors of texts, such as
--index=none
  nothing to do; pass --query, --query_file
"--query= "
  --query is ' ', without a word
--query_file=no_words.txt
  no_words.txt:2 is '', without
--remove_ids=9
  --remove_ids: the index has no '9'
--query=a --model_dir=pairs
  pairs is a classification model
--query=a --reranker=release
  release is no model of pairs; pass a classifier
--query=a --reranker=pairs --relevant_label=yes
  =yes is not one of 'red', 'green'
--mine_negatives=answers.csv
  --output_file is required
--query=a --index=taken
  taken is damaged
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(folder, mistake):
  good = {"index": "index"}
  mistakes.check(mistake, SCRIPT, folder, good, cwd=folder)


def test_a_model_that_was_trained_on(folder, golden, goldens):
  """The files of the model have changed since."""
  (folder / "own").mkdir()
  task_folders.write(folder / "own", "", golden, goldens)
  run(folder, "--input_file=queries.txt", "--model_dir=own", index="of_own")
  config = json.loads((folder / "own" / "bert_config.json").read_text())
  config["num_hidden_layers"] = 1
  (folder / "own" / "bert_config.json").write_text(json.dumps(config))
  _, err = run(folder, "--query=a", index="of_own", status=2)
  last = err.strip().splitlines()[-1]
  assert "--index=of_own has vectors of another model" in last
