"""Search by words: scores, updates, kills, damage, fusion, evaluation."""

import collections
import math
import os
import shutil
import sys

import bm25s
import numpy as np
import pytest
from hypothesis import given, strategies as st

from bert.data import files
from bert.errors import UserError
from bert.models.resolve import resolve
from bert.search import lexical, search, text_index, vector_index
from bert.search.vector_index import Row, VectorIndex
from bert.tasks.embeddings import retrieval
from bert.tasks.embeddings.data import Pair

TEXTS = [
  "Jim Henson made puppets in the north",
  "the city of the north",
  "who was it ?",
  "Puppets , puppets and more puppets of Henson",
  "the mountains of the north and the city",
  "\u200b",
]

WORDS = ["the", "city", "north", "Henson", "puppets", "was", "it", "?", "☃"]


def rows_of(texts):
  return [Row(str(i), text, {}) for i, text in enumerate(texts)]


def make_index(folder, model, texts=TEXTS, **options):
  options = {"dtype": "float32", "has_words": True, **options}
  text_index.change(str(folder), model, rows_of(texts), **options)
  return VectorIndex(str(folder))


@pytest.fixture
def index(tmp_path, model):
  return make_index(tmp_path / "index", model)


def split(model, text):
  """The pieces of a lower-cased text but unknown ones."""
  found = model.task.tokenizer.tokenize(text.lower())
  return [piece for piece in found if piece != "[UNK]"]


def scores_by_formula(query, texts):
  """BM25 as Lucene defines it, of lists of pieces, in double precision."""
  mean = sum(map(len, texts)) / len(texts)
  scores = []
  for text in texts:
    counts, score = collections.Counter(text), 0.0
    for piece in query:
      holding = sum(piece in other for other in texts)
      rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
      length = 1.5 * (1 - 0.75 + 0.75 * len(text) / mean)
      score += rarity * counts[piece] / (counts[piece] + length)
    scores.append(score)
  return scores


_texts = st.lists(
  st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
  min_size=1,
  max_size=9,
)


class TestScores:
  @given(_texts, st.lists(st.sampled_from(WORDS), max_size=6))
  def test_are_those_of_bm25s_and_of_the_formula(
    self, tmp_path_factory, model, texts, words
  ):
    folder = str(tmp_path_factory.mktemp("words"))
    checksum = lexical.write(folder, resolve(model.folder), texts, len(texts))
    found = lexical.WordIndex(folder, checksum)
    query = " ".join(words)
    ((scores, numbers),) = found.top_k([query], 20)
    pieces = [split(model, text) for text in texts]
    wanted = np.zeros(len(texts))
    if any(pieces):
      asked = split(model, query)
      wanted = np.array(scores_by_formula(asked, pieces))
      theirs = bm25s.BM25()
      theirs.index(pieces, show_progress=False)
      if known := theirs.get_tokens_ids(asked):
        theirs = theirs.get_scores_from_ids(known)
        np.testing.assert_array_equal(scores, theirs[numbers])
    assert {*numbers.tolist()} == {*np.flatnonzero(wanted).tolist()}
    assert scores.tolist() == pytest.approx(wanted[numbers], rel=1e-6)
    assert (np.diff(scores) <= 0).all()

  def test_the_best_rows_come_first(self, index):
    scores, numbers = index.words.top_k(["PUPPETS", "of"], 2)[0]
    assert numbers.tolist() == [3, 0]
    assert scores[0] > scores[1] > 0
    # Rows with equal scores are in their order.
    ((_, numbers),) = index.words.top_k(["\u2603"], 9)
    assert numbers.tolist() == []

  @pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "albert"])
  def test_other_tokenizers(self, tmp_path, goldens, name):
    """A word is the same at the start of a text and within it."""
    folder = tmp_path / "model"
    shutil.copytree(goldens / "variants" / name / "Model", folder)
    words = str(tmp_path / "words")
    checksum = lexical.write(words, resolve(str(folder)), ["a Jim b", "no"], 2)
    shutil.rmtree(folder)
    found = lexical.WordIndex(words, checksum)
    assert [n[0] for _, n in found.top_k(["jim", "NO"], 5)] == [0, 1]


class TestUpdates:
  def test_rows_are_added_replaced_and_removed(self, tmp_path, model, index):
    folder = str(tmp_path / "index")
    changed = [Row("1", "a puppet", {}), Row("7", "the city was old", {})]
    text_index.change(folder, model, changed, ["0", "3"])
    after = VectorIndex(folder)
    texts = [row.text for row in after.rows(range(len(after)))]
    assert len(texts) == 5
    (found,) = after.words.top_k(["the puppet of the city"], 9)
    pieces = [split(model, text) for text in texts]
    wanted = scores_by_formula(split(model, "the puppet of the city"), pieces)
    assert found[1].tolist() == [
      n for n in np.argsort(-np.array(wanted), kind="stable") if wanted[n]
    ]
    # What was opened before stays as it was.
    assert index.words.top_k(["Henson"], 9)[0][1].tolist() == [0, 3]

  def test_all_rows_are_removed(self, tmp_path, model, index):
    folder = str(tmp_path / "index")
    text_index.change(folder, model, [], list(map(str, range(len(TEXTS)))))
    empty = VectorIndex(folder)
    assert empty.words.top_k(["Henson"], 3)[0][1].tolist() == []
    searcher = search.Searcher(model, empty, search="hybrid")
    assert searcher(["Henson"], 3) == [[]]
    text_index.change(folder, model, rows_of(TEXTS[:1]))
    assert VectorIndex(folder).words.top_k(["Henson"], 3)[0][1].tolist() == [0]

  def test_the_next_update_deletes_old_files(self, tmp_path, model, index):
    folder = tmp_path / "index"
    (old,) = folder.glob("*.words")
    text_index.change(str(folder), model, [Row("9", "new", {})])
    assert len(list(folder.glob("*.words"))) == 2
    text_index.change(str(folder), model, [Row("9", "newer", {})])
    assert len(list(folder.glob("*.words"))) == 2
    assert not old.exists()

  def test_words_are_added_to_an_index_without(self, tmp_path, model):
    """Its texts are not encoded again."""
    folder = tmp_path / "index"
    index = make_index(folder, model, has_words=False)
    assert not list(folder.glob("*.words"))
    assert "words" not in (folder / "index.json").read_text()
    assert len(search.Searcher(model, index)(["puppets"], 2)[0]) == 2
    for kind in ("lexical", "hybrid"):
      message = f"--index={folder} has no words .*--search=hybrid"
      with pytest.raises(UserError, match=message):
        search.load_searcher(str(folder), "no model", search=kind)
    found = text_index.change(
      str(folder), model, rows_of(TEXTS), has_words=True
    )
    assert found == (0, len(TEXTS))
    index = VectorIndex(str(folder))
    assert index.words.top_k(["puppets"], 1)[0][1].tolist() == [3]

  def test_killed_at_any_write(self, tmp_path, model, monkeypatch):
    """The vectors and the words are of the old index, or of the new one."""

    class Killed(BaseException):
      pass

    left = math.inf

    def until_killed(write):
      def count_down(*args, **kwargs):
        nonlocal left
        if left == 0:
          raise Killed
        left -= 1
        return write(*args, **kwargs)

      return count_down

    monkeypatch.setattr(files, "rename", until_killed(files.rename))
    monkeypatch.setattr(np, "save", until_killed(np.save))
    monkeypatch.setattr(files, "remove", until_killed(files.remove))
    monkeypatch.setattr(files, "remove_tree", until_killed(files.remove_tree))
    monkeypatch.setattr(vector_index, "BLOCK_BYTES", 4 * 4 * 32)
    make_index(tmp_path / "made", model)
    text_index.change(str(tmp_path / "made"), model, [Row("a", "it", {})])
    new = [Row("1", "Henson was Henson", {}), Row("9", "was it Henson", {})]

    def state(folder):
      index = VectorIndex(str(folder))
      ((scores, numbers),) = index.words.top_k(["Henson was"], 9)
      rows = [row.id for row in index.rows(range(len(index)))]
      return rows, [rows[n] for n in numbers], scores.tolist()

    before, seen = state(tmp_path / "made"), []
    for kill_at in range(100):
      folder = tmp_path / str(kill_at)
      shutil.copytree(tmp_path / "made", folder)
      left = kill_at
      try:
        text_index.change(str(folder), model, new, ["2"])
        break
      except Killed:
        left = math.inf
      seen.append(state(folder))
      text_index.change(str(folder), model, new, ["2"] * (seen[-1] == before))
    assert kill_at > 15
    after = state(folder)
    assert all(x in (before, after) for x in seen)
    assert seen[0] == before
    assert seen[-1] == after != before
    assert all(state(tmp_path / str(n)) == after for n in range(kill_at))


def _flip(path):
  content = bytearray(path.read_bytes())
  content[-5] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize("harm", [_flip, os.remove])
@pytest.mark.parametrize(
  "name", ["data.csc.index.npy", "vocab.index.json", "vocab.txt"]
)
def test_damaged_files_are_named(tmp_path, index, name, harm):
  (folder,) = (tmp_path / "index").glob("*.words")
  (folder / ".nfs0001").write_text("a network drive's own")
  assert index.words
  harm(folder / name)
  again = VectorIndex(str(tmp_path / "index"))
  with pytest.raises(UserError, match=f"{folder} is damaged .*checksum") as e:
    search.Searcher(None, again, search="lexical")
  assert "\n" not in str(e.value)
  shutil.rmtree(folder)
  again = VectorIndex(str(tmp_path / "index"))
  with pytest.raises(UserError, match=f"{folder} is damaged .*No such file"):
    search.Searcher(None, again, search="hybrid")


def test_the_package_is_missing(tmp_path, model, index, monkeypatch):
  """Search by vectors works; an update that would lose the words does not."""
  monkeypatch.setitem(sys.modules, "bm25s", None)
  folder = str(tmp_path / "index")
  again = VectorIndex(folder)
  assert search.Searcher(model, again)(["puppets"], 1)[0]
  message = "--search by words needs the package bm25s .*requirements-search"
  with pytest.raises(UserError, match=message):
    search.Searcher(None, again, search="lexical")
  for rows in (rows_of(["new"]), []):
    with pytest.raises(UserError, match=message):
      text_index.change(folder, model, rows, ["1"])
  assert len(VectorIndex(folder)) == len(TEXTS)


def _hits(*numbers):
  return np.zeros(len(numbers), np.float32), np.array(numbers, np.int64)


class TestFusion:
  def test_by_hand(self):
    scores, numbers = search.fused([_hits(7, 3, 5), _hits(3, 9)], 4)
    # 3 is second and first, 7 and 9 are in one ranking only.
    assert numbers.tolist() == [3, 7, 9, 5]
    wanted = [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]
    assert scores.tolist() == pytest.approx(wanted, rel=1e-6)
    # The first ranking wins ties.
    assert search.fused([_hits(4), _hits(2)], 1)[1].tolist() == [4]
    assert search.fused([_hits(), _hits()], 1)[1].tolist() == []

  @given(st.permutations(range(12)), st.permutations(range(12)), st.data())
  def test_is_the_sum_over_ranks(self, first, second, data):
    cut = data.draw(st.integers(0, 12))
    second = second[:cut]
    scores, numbers = search.fused([_hits(*first), _hits(*second)], 20)
    wanted = {
      n: 1 / (61 + first.index(n))
      + (1 / (61 + second.index(n)) if n in second else 0)
      for n in first
    }
    assert scores.tolist() == pytest.approx(
      [wanted[n] for n in numbers.tolist()], rel=1e-6
    )
    assert sorted(numbers.tolist()) == sorted(wanted)
    assert (np.diff(scores) <= 0).all()

  def test_a_hybrid_search_joins_both(self, model, index):
    query = "puppets of the city"
    dense = search.Searcher(model, index)([query], 9)[0]
    words = search.Searcher(None, index, search="lexical")([query], 9)[0]
    assert words[-1].score < words[0].score / 2 < words[1].score
    words = [hit for hit in words if hit.score >= words[0].score / 2]
    totals = collections.Counter()
    for hits in (dense, words):
      for rank, hit in enumerate(hits, 1):
        totals[hit.row.id] += 1 / (60 + rank)
    found = search.Searcher(model, index, search="hybrid")([query], 3)[0]
    best = sorted(totals.values(), reverse=True)[:3]
    assert [hit.score for hit in found] == pytest.approx(best, rel=1e-6)
    assert [totals[hit.row.id] for hit in found] == pytest.approx(best)

  def test_an_unknown_search(self, model, index):
    with pytest.raises(UserError, match=r"'hybird' is not one of .*'hybrid'"):
      search.Searcher(model, index, search="hybird")


class _Reranker:
  """Prefers short texts."""

  def __call__(self, query, texts):
    return [-len(text) for text in texts]


def test_the_reranker_reorders_hits_by_words(index):
  searcher = search.Searcher(None, index, _Reranker(), 2, search="lexical")
  (hits,) = searcher(["puppets puppets Henson"], 1)
  # Both hits have the words; the shorter one is second by BM25.
  assert hits[0].row.text == TEXTS[0]


def test_negatives_by_words(model, index):
  """They share words with the query, and are less similar than allowed."""
  pairs = [Pair("", "the city", TEXTS[1])]
  searcher = search.Searcher(model, index, search="lexical")
  unit = text_index.encode(model, ["the city", *TEXTS])
  similar = unit[1:] @ unit[0]
  for share in (2.0, 1.0):
    ((_, _, wrong),) = search.mine_negatives(searcher, pairs, 9, 9, share)
    (ranked,) = searcher(["the city"], 9)
    wanted = [hit.row.text for hit in ranked]
    assert TEXTS[2] not in wanted
    limit = share * similar[1]
    wanted = [x for x in wanted if similar[TEXTS.index(x)] <= limit]
    assert wrong == [text for text in wanted if text != TEXTS[1]]


class TestEvaluation:
  @pytest.fixture
  def judged(self, tmp_path, index):
    rows = [("q", "puppets"), ("1", "city north")]
    lines = [f'{{"_id": "{name}", "text": "{text}"}}' for name, text in rows]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines))
    table = ["query-id\tcorpus-id\tscore", "q\t0\t1", "1\t4\t1"]
    (tmp_path / "qrels.tsv").write_text("\n".join(table))
    corpus = {str(i): text for i, text in enumerate(TEXTS)}
    names = (str(tmp_path / name) for name in ("queries.jsonl", "qrels.tsv"))
    return retrieval.judged(*names, corpus, "the index")

  def test_metrics_are_those_of_the_ranks(self, index, judged):
    """The first query finds its text second; the other one first.

    Row 1 would be first, but it has the id of the query.
    """
    searcher = search.Searcher(None, index, search="lexical")
    assert searcher(["city north"], 1)[0][0].row.id == "1"
    found = retrieval.metrics_of(list(search.evaluate(searcher, judged)))
    assert found["mrr_at_10"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["ndcg_at_10"] == pytest.approx((1 / math.log2(3) + 1) / 2)
    assert found["recall_at_1"] == 0.5
    assert found["recall_at_100"] == 1

  def test_a_reranker_reorders_its_candidates_only(self, index, judged):
    searcher = search.Searcher(None, index, _Reranker(), 1, search="lexical")
    first, second = search.evaluate(searcher, judged)
    assert first.documents.tolist() == [3]
    assert second.documents.tolist() == []  # Its only candidate is left out.
