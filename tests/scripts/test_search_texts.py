"""search_texts.py as a command: indexes, queries, negatives, bad input."""

import json
import math

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
  assert "changed has 2 texts; encoded 1 in" in log
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
  assert "keys has 3 texts; encoded 1 in" in log
  # Rows of another table get ids, too.
  text = "answer\nwho made\u00a0puppets\n"  # The byte is not UTF-8.
  (folder / "no_keys.csv").write_bytes(text.encode("cp1252"))
  flags = ["--input_file=no_keys.csv", "--encoding=cp1252"]
  _, log = run(folder, *flags, index="keys")
  assert "keys has 4 texts; encoded 1 in" in log
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


@pytest.fixture(scope="module")
def words(folder):
  """An index with words, of texts with part numbers."""
  parts = [f"{n},the city was in part K-{n}{n + 3}" for n in range(1, 7)]
  (folder / "parts.csv").write_text("\n".join(["id,text", *parts]))
  flags = ["--input_file=parts.csv", *MODEL]
  _, log = run(folder, *flags, "--search=hybrid", index="words")
  assert "Indexing the words of 6 texts" in log
  return "words"


@pytest.mark.parametrize("kind", ["lexical", "hybrid"])
def test_words(folder, words, kind):
  flags = [f"--search={kind}", "--query=PART K-58", "--top_k=2"]
  shown, _ = run(folder, *flags, index=words)
  assert shown.splitlines()[0].endswith("the city was in part K-58")
  assert len(shown.splitlines()) == 4


def test_no_text_has_the_words(folder, words):
  flags = ["--search=lexical", "--query=mountains"]
  assert run(folder, *flags, index=words)[0] == "no hits\n"


def test_graphs_are_not_used_for_words(folder, words):
  flags = ["--search=lexical", "--query=city", "--ann=hnsw"]
  _, log = run(folder, *flags, index=words)
  assert "--ann=hnsw is not used; pass --search=hybrid" in log


def test_words_are_added_and_kept(folder):
  """Also by updates that do not ask for them."""
  flags = ["--input_file=answers.csv", "--text_column=answer"]
  run(folder, *flags, *MODEL, index="later")
  _, log = run(folder, *flags, "--search=lexical", index="later")
  assert "later has 3 texts; encoded 0 in" in log
  (folder / "later.jsonl").write_text('{"id": "8", "answer": "old mountains"}')
  run(folder, "--input_file=later.jsonl", "--remove_ids=2", index="later")
  flags = ["--search=lexical", "--query=mountains", "--output_file=-"]
  assert hits_of(run(folder, *flags, index="later")[0]) == [["old mountains"]]


@pytest.mark.parametrize("kind", ["dense", "lexical", "hybrid"])
def test_evaluation(folder, words, kind):
  """The text with the number of the query is first by words."""
  (folder / "asked.tsv").write_text("_id\ttext\na\tK-58\nb\tK-36\n")
  (folder / "qrels.tsv").write_text(
    "query-id\tcorpus-id\tscore\na\t5\t1\nb\t3\t1\nb\t9\t1\n"
  )
  flags = ["--queries_file=asked.tsv", "--qrels_file=qrels.tsv"]
  flags += [f"--search={kind}", "--output_file=metrics.jsonl"]
  shown, log = run(folder, *flags, index=words)
  assert "words lacks the documents of 1 row of qrels.tsv" in log
  (line,) = (folder / "metrics.jsonl").read_text().splitlines()
  written = json.loads(line)
  printed = dict(row.split(" = ") for row in shown.splitlines())
  assert written.pop("search") == kind
  assert printed.keys() == written.keys()
  for name, value in written.items():
    assert float(printed[name]) == pytest.approx(value, abs=1e-7)
  assert written["queries"] == 2
  assert written["recall_at_100"] == 0.75  # Row 9 is missing.
  if kind == "lexical":
    assert written["mrr_at_10"] == 1
    assert written["ndcg_at_10"] == pytest.approx(
      (1 + 1 / (1 + 1 / math.log2(3))) / 2
    )
  streamed, _ = run(folder, *flags[:-1], "--output_file=-", index=words)
  assert json.loads(streamed) == {"search": kind, **written}


def test_negatives_by_words(folder, words):
  (folder / "asked.csv").write_text(
    "text_a,text_b\nwhere is K-58,the city was in part K-58\n"
  )
  flags = ["--mine_negatives=asked.csv", "--output_file=by_words.jsonl"]
  flags += ["--search=lexical", "--max_negative_share=1", "--num_negatives=9"]
  run(folder, *flags, index=words)
  (line,) = (folder / "by_words.jsonl").read_text().splitlines()
  (*negatives,) = json.loads(line)["negative"]
  assert negatives
  assert "the city was in part K-58" not in negatives


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
--query=a --search=lexical
  --index=index has no words to search; repeat ... with --search=hybrid
--query=a --search=hybrid
  --index=index has no words to search; repeat
--query=a --search=bm25
  --search=bm25 ... dense
--queries_file=answers.csv
  --qrels_file is required
--qrels_file=answers.csv
  nothing to do; pass --query,
--queries_file=none --qrels_file=answers.csv
  --queries_file=none: no such file
--queries_file=answers.csv --qrels_file=answers.csv --query=a
  --query and --queries_file cannot both be given
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
