"""Indexes of texts: rows of files, updates, prompts, bad input."""

import json

import numpy as np
import pytest
import task_folders

from bert.data.vector_index import Row, VectorIndex
from bert.errors import UserError
from bert.tasks import features, loaded_model, text_index

TEXTS = [
  "the mountains of the north",
  "Jim Henson made puppets",
  "who was it ?",
  "a city in the north",
  "puppets of the city",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory, golden, goldens):
  """A release, which gives vectors."""
  folder = tmp_path_factory.mktemp("release")
  return loaded_model.load(task_folders.write(folder, "", golden, goldens))


@pytest.fixture
def other(tmp_path, golden, goldens):
  """The same model with other settings."""
  folder = tmp_path / "other"
  folder.mkdir()
  folder = task_folders.write(folder, "", golden, goldens)
  return loaded_model.load(folder, pooling="max")


def rows_of(texts):
  return [Row(str(i), text, {}) for i, text in enumerate(texts, 1)]


def test_prompts_go_before_queries_and_texts(goldens):
  """As sentence-transformers has encoded them."""
  folder = goldens / "variants" / "st-cls-prompts"
  texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
  expected = np.load(folder / "outputs.npz")["query"]
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  model = loaded_model.load(folder / "folder")
  found = text_index.encode(model, texts, features.QUERY_PROMPTS)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  of_passages = text_index.encode(model, [f"passage: {texts[0]}"], ())
  np.testing.assert_allclose(
    text_index.encode(model, texts[:1]), of_passages, atol=1e-5
  )


class TestRows:
  def test_a_table(self, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,id,answer\nwhy ?,7, because \nhow ?,x,so\n")
    found = text_index.read_rows(str(path), "answer")
    assert found == [
      Row("7", "because", {"question": "why ?"}),
      Row("x", "so", {"question": "how ?"}),
    ]
    (first, _) = text_index.read_rows(str(path), "answer", "question")
    assert first == Row("why ?", "because", {"id": "7"})

  def test_json_lines(self, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"id": 3, "text": "a", "tags": ["x"]}, {"id": 4, "text": "b"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = text_index.read_rows(str(path))
    assert found == [Row("3", "a", {"tags": ["x"]}), Row("4", "b", {})]

  def test_lines_have_ids_of_their_content(self, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\none\n")
    found = text_index.read_rows(str(path))
    assert [row.text for row in found] == ["one", "two"]
    path.write_text("two\none\n")
    assert text_index.read_rows(str(path)) == found[::-1]

  @pytest.mark.parametrize(
    ("content", "message"),
    [
      ("text,id\na,1\n ,2\n", ":3: --text_column=text is empty; fill it"),
      ("text,id\na,1\nb,1\n", ":3: the id '1' is that of .*:2, too; rename"),
      ("text,id\na,\n", ":2 has no id"),
      ("texts\na\n", "--text_column=text: .*its columns are 'texts'"),
      ("text;id\na;1\na;1\n", ":3: the id '1' is that of .*:2, too; rename"),
    ],
  )
  def test_bad_rows(self, tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
      text_index.read_rows(str(path))

  def test_a_text_that_is_none(self, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": 3}')
    with pytest.raises(
      UserError, match=":1: --text_column=text is 3; pass a text"
    ):
      text_index.read_rows(str(path))


class TestChanges:
  def test_only_new_texts_are_encoded(self, tmp_path, model):
    folder = str(tmp_path / "i")
    rows = rows_of(TEXTS)

    def change(rows, *removed):
      encoded = []
      found = text_index.change(
        folder, model, rows, removed, None, encoded.append
      )
      assert sum(encoded) == found[0]
      return found

    assert change(rows[:3]) == (3, 3)
    assert change(rows[:4]) == (1, 4)
    assert change(rows[:4]) == (0, 4)
    changed = [rows[0]._replace(text="north"), rows[1], rows[4]]
    assert change(changed, "3") == (2, 4)
    index = VectorIndex(folder)
    assert index.header.dtype == "float16"
    found = index.rows(list(range(4)))
    assert {row.id: row.text for row in found} == {
      "1": "north",
      "2": TEXTS[1],
      "4": TEXTS[3],
      "5": TEXTS[4],
    }
    expected = text_index.encode(model, [row.text for row in found])
    np.testing.assert_allclose(
      index.vectors(list(range(4))), expected, atol=1e-3
    )

  def test_bad_changes_change_nothing(self, tmp_path, model, other):
    folder = str(tmp_path / "i")
    text_index.change(folder, model, rows_of(TEXTS))
    for args, message in (
      ((model, [], ["9"]), "--remove_ids: the index has no '9'"),
      ((model, rows_of("a"), [], "float32"), "--dtype=float32: .* has float16"),
      (
        (other, rows_of("a")),
        "vectors of another model, .*release.* as it was",
      ),
    ):
      with pytest.raises(UserError, match=message):
        text_index.change(folder, *args)
      assert len(VectorIndex(folder)) == len(TEXTS)

  def test_a_model_of_another_task(self, tmp_path, golden, goldens):
    folder = task_folders.write(tmp_path, "tagging", golden, goldens)
    tagger = loaded_model.load(folder)
    with pytest.raises(
      UserError, match="is a tagging model; pass one that giv"
    ):
      text_index.change(str(tmp_path / "i"), tagger, rows_of("a"))
    assert not (tmp_path / "i").exists()
