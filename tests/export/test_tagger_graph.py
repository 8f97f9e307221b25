"""The graph's entities are those of the Tagger."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert.errors import UserError
from bert.export import tagger_graph, text_graph
from bert.tasks import tagging, text_words
from bert.tasks.tagged_rows import Reading
from bert.tasks.tagger import Tagger
from bert.training import checkpoints

LABELS = ["B-PER", "I-PER", "E-PER", "S-LOC", "O", "B-LOC", "I-LOC"]
TEXTS = [
  "Jim Henson's U.S. tour , 中国 state-of-the-art ... of the city",
  "",
  " \t ",
  "\x00 \u0301 ",
  "many years after this the state was over , " * 8,
  "the",
  "A.B.C. d.e 's'ss a_b ①½ ΑΣ's\u2028x\x85y e\u0301 नि",
]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, golden, goldens):
  draw = np.random.default_rng(8).normal
  values = {
    **dict(golden.store().initial_values),
    "output_weights": draw(size=[len(LABELS), 32]).astype(np.float32),
    "output_bias": draw(size=[len(LABELS)]).astype(np.float32),
  }
  task = tagging.TaggingTask({}, LABELS, "IOBES", None, Reading(16))
  files = {
    "bert_config.json": golden.config.to_json_string(),
    "vocab.txt": (goldens / "vocab.txt").read_bytes(),
    **task.assets(),
  }
  folder = str(tmp_path_factory.mktemp("tagger"))
  checkpoints.write_release(folder, values, files)
  return Tagger(folder)


@pytest.mark.parametrize(
  ("labels", "scheme"),
  [
    (LABELS, "IOBES"),
    (LABELS, None),
    (["B-PER", "I-PER", "X", "[SEP]", "O", "B-LOC", "I-LOC"], "IOB2"),
    (["B", "I", "E", "S", "B-", "B-LOC", "I"], "IOBES"),
  ],
)
def test_entities_are_the_taggers(tagger, monkeypatch, labels, scheme):
  monkeypatch.setattr(tagger, "labels", labels)
  monkeypatch.setattr(tagger, "scheme", scheme)
  wanted = tagger.tag(TEXTS)
  graph = tagger_graph.TaggerGraph(
    tagger, text_graph.GraphTokenizer(tagger.tokenizer)
  )
  found = {n: v.numpy() for n, v in graph.answer(tf.constant(TEXTS)).items()}
  assert found["count"].tolist() == list(map(len, wanted))
  assert max(found["count"]) == found["types"].shape[1] > 5
  for row, known in enumerate(wanted):
    for column, entity in enumerate(known):
      probability = found["probabilities"][row, column]
      assert probability == pytest.approx(entity.probability, rel=1e-4)
      assert entity[:4] == (
        found["entities"][row, column].decode(),
        found["types"][row, column].decode(),
        found["starts"][row, column],
        found["ends"][row, column],
      )
    assert (found["starts"][row, len(known) :] == -1).all()


def test_texts_come_in_a_list_or_from_a_generator(tagger):
  texts = TEXTS[:2]
  assert tagger.tag(iter(texts)) == tagger.tag(texts)
  with pytest.raises(UserError, match="pass a list of texts"):
    tagger.tag("Jim Henson")
  with pytest.raises(UserError, match="text 2 is 5; pass texts as str"):
    tagger.tag(["Jim Henson", 5])


@settings(max_examples=15)
@given(
  st.lists(
    st.text()
    | st.text(
      st.sampled_from("aAsS.'’-, :/_éÉ中\u3000!12\n\u0301\u200d\0\ufffd")
    ),
    min_size=1,
    max_size=40,
  )
)
@example(
  [
    *("J. R. R. R. Tolkien's", "U.S. W. É. B", "O’Brien'S 1,000,0 '\u3000A."),
    *("\u200bA \u2066\u200b\u0301 (\u200b)\u200b", " \0\u200b", "U.S.\u200bA"),
    *("\ufeffW. Smith", "a \u200bW. B", "\xadJ. Doe", "Anna’s\u200b it's\0 b"),
  ]
)
def test_words_are_those_of_split_text(texts):
  chars = tf.strings.unicode_decode(tf.constant(texts), "UTF-8")
  found = zip(*(x.to_list() for x in tagger_graph._split(chars)), strict=True)
  for text, (starts, ends) in zip(texts, found, strict=True):
    words = list(zip(starts, ends, strict=True))
    assert words == text_words.split_text(text)
