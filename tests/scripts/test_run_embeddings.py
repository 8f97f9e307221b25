"""run_embeddings.py from the shell, on the sample questions."""

import csv
import json
import shutil

import mistakes
import numpy as np
import pytest
import scripts
import tiny_task

import bert
from bert.tasks.embeddings import data as text_pairs

DATA = scripts.ROOT / "sample_data" / "embeddings"
COLUMNS = ["--text_a_column=question", "--text_b_column=answer"]


def flags(files, out, **changes):
  data = {f"{split}_file": DATA / f"{split}.csv" for split in ("train", "dev")}
  changes = {"task_name": None, "data_dir": None, **data, **changes}
  return tiny_task.flags(files, out, **changes)


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
  """The folder of a training in two sizes, with prompts and a test set."""
  folder = tmp_path_factory.mktemp("trained")
  with open(DATA / "dev.csv", encoding="utf-8") as reader:
    rows = list(csv.DictReader(reader))[:7]
  test = folder / "test.jsonl"
  tiny_task.write_lines(test, map(json.dumps, rows))
  out = folder / "out"
  scripts.fork(
    "run_embeddings.py",
    *flags(files, out, test_file=test, keep_best="ndcg_at_10"),
    *COLUMNS,
    *("--do_train", "--do_eval", "--do_predict", "--dimensions=32,8"),
    *("--query_prompt=the ", "--gradient_accumulation_steps=2"),
    "--pooling=max",
  )
  return out, rows


def test_the_trained_model_gives_the_vectors(trained):
  """With the pooling and the prompt of the training."""
  out, rows = trained
  model = bert.load(out)
  assert model.task.settings.pooling == "max"
  assert model.task.settings.prompts == (("query", "the "),)
  lines = (out / "test_predictions.jsonl").read_text().splitlines()
  for row, line in zip(rows, map(json.loads, lines), strict=True):
    first, second = model(
      [{"text": row["question"], "prompt": "query"}, {"text": row["answer"]}]
    )
    assert line["text_a"] == row["question"]
    cosine = first["vector"] @ second["vector"]
    assert line["similarity"] == pytest.approx(cosine, abs=1e-5)


def test_the_metrics_are_those_of_the_vectors(trained):
  """MRR by NumPy, of whole vectors and of the first eight numbers."""
  out, _ = trained
  model = bert.load(out)
  pairs = text_pairs.read_pairs(
    str(DATA / "dev.csv"), text_pairs.Columns("question", "answer")
  )
  questions = model(
    [{"text": pair.text_a, "prompt": "query"} for pair in pairs]
  )
  answers = model([pair.text_b for pair in pairs])
  found = tiny_task.results(out)
  for size, suffix in ((32, ""), (8, "_dim_8")):
    first, second = (
      np.stack([a["vector"][:size] for a in part])
      for part in (questions, answers)
    )
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    scores = first @ second.T
    own = np.diag(scores)[:, np.newaxis]
    ranks = 1 + np.sum(scores > own, axis=1)
    mrr = np.mean(np.where(ranks <= 10, 1 / ranks, 0))
    assert found[f"eval_mrr_at_10{suffix}"] == pytest.approx(mrr, abs=1e-6)
  page = (out / "report.html").read_text()
  assert "of 20 queries find no relevant document first" in page


def test_labels_and_scores(files, tmp_path):
  """MRPC's labels; its labels as scores; a model that is not trained."""
  labeled, scored = files / "data" / "dev.tsv", tmp_path / "scored.tsv"
  header, *lines = labeled.read_text().splitlines()
  lines = [f"{i}{line[1:]}" for i, line in enumerate(lines[:5], 1)]
  tiny_task.write_lines(scored, [header, *lines])
  for path, column, metric in (
    (labeled, "label_column", "eval_mrr_at_10"),
    (scored, "score_column", "eval_spearman"),
  ):
    columns = {"text_a_column": "#1 String", "text_b_column": "#2 String"}
    columns |= {column: "Quality", "train_file": None, "dev_file": path}
    out = tmp_path / column
    command = flags(files, out, **columns)
    scripts.fork("run_embeddings.py", *command, "--do_eval")
    assert metric in tiny_task.results(out)


def test_a_folder_of_sentence_transformers_goes_on(goldens, tmp_path):
  """Its settings stay, but a prompt; hard negatives and a corpus."""
  folder = goldens / "variants" / "st-cls-prompts" / "folder"
  model = shutil.copytree(folder, tmp_path / "model")
  path = model / "config_sentence_transformers.json"
  changes = {"default_prompt_name": "query", "similarity_fn_name": "dot"}
  changes |= {"truncate_dim": 16}
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
  rows = [
    {"text_a": f"Who wrote {n}?", "text_b": f"{n} did.", "no": ["No.", "Yes."]}
    for n in range(8)
  ]
  tiny_task.write_lines(tmp_path / "train.jsonl", map(json.dumps, rows))
  for name, row in (
    ("queries", {"_id": "q", "text": "Who wrote 3?"}),
    ("corpus", {"_id": "d", "text": "3 did."}),
    ("qrels", {"query-id": "q", "corpus-id": "d", "score": 1}),
  ):
    tiny_task.write_lines(tmp_path / f"{name}.jsonl", [json.dumps(row)])
  out = tmp_path / "out"
  _, log = scripts.fork(
    "run_embeddings.py",
    *("--do_train", "--do_eval", f"--output_dir={out}"),
    *(f"--init_checkpoint={model}", "--query_prompt="),
    f"--train_file={tmp_path / 'train.jsonl'}",
    *("--negative_column=no", "--train_batch_size=4", "--both_directions"),
    *(
      f"--{n}_file={tmp_path / n}.jsonl" for n in ("queries", "corpus", "qrels")
    ),
  )
  assert tiny_task.results(out)["eval_recall_at_1"] == 1.0
  settings = bert.load(out).task.settings
  assert settings.pooling == "cls"
  assert not settings.normalize
  assert dict(settings.prompts) == {"query": "", "document": "passage: "}
  assert settings.prompt_text() == ""
  assert settings.truncate_dim == 16
  assert settings.similarity == "cosine"
  assert f"Training compares cosines, unlike {model}" in log


MISTAKES = """
--text_a_column=q
  --text_a_column=q:
--dimensions=64
  --dimensions: 64 is not from 1 to 32
--dimensions=a,b
  --dimensions=a,b must be whole numbers
--loss=cosine
  --loss=cosine needs --score_column
--loss=cosine --score_column=n --train_file=SCORED --dev_file=SCORED
  --loss=cosine needs scores from 0 to 1 ... SCORED:3 is 5; divide ... by 5
--dev_file= --qrels_file=x
  --queries_file is required
--qrels_file=x --queries_file=y --corpus_file=z
  --dev_file and --qrels_file cannot both be given
--score_column=a --label_column=b
  cannot both be given
--label_column=n --dev_file=WRONG --train_file= --do_train=
  WRONG has no pair with the label 1; add pairs
--label_column=n --train_file=WRONG --dev_file= --do_eval=
  WRONG has no pair with the label 1; add pairs
--score_column=n --train_file=SCORED --dev_file=SCORED --both_directions
  --loss=cosent does not use --both_directions; omit it
--score_column=n --train_file=SCORED --dev_file=SCORED --negative_column=answer
  --loss=cosent does not use --negative_column; omit it
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(files, mistake):
  good = [*flags(files, files / "out"), *COLUMNS, "--do_train", "--do_eval"]
  scored = files / "scored.csv"
  tiny_task.write_lines(scored, ["question,answer,n", "a,b,1", "c,d,5"])
  wrong = files / "wrong.csv"
  tiny_task.write_lines(wrong, ["question,answer,n", "a,b,0", "c,d,0"])
  names = {"SCORED": scored, "WRONG": wrong}
  mistakes.check(mistake, "run_embeddings.py", files, good, **names)
