"""What a pre-trained model says about texts, against one row at a time."""

import gzip
import json
import math
import os
import pathlib
import shutil

import mistakes
import numpy as np
import pytest
import scripts
import sentencepiece
import tensorflow as tf
import tiny_task

import bert
import modeling
import tokenization
from bert import variables
from bert.data import downloads, fetching, masked_text
from bert.errors import UserError
from bert.models import checkpoints
from bert.tasks.pretraining import task as pretraining

TEXT = "the city would be unaffable"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden, goldens):
  """A release with pre-training heads."""
  path = tmp_path_factory.mktemp("model")
  rng = np.random.default_rng(3)
  weights = checkpoints.Checkpoint(golden.checkpoint)
  values = {name: weights[name] for name in weights.shapes}
  for name, shape in pretraining.variable_shapes(golden.config).items():
    values[name] = rng.normal(0, 0.5, shape).astype(np.float32)
  contents = {
    "bert_config.json": golden.config.to_json_string(),
    "vocab.txt": (goldens / "vocab.txt").read_bytes(),
  }
  checkpoints.write_release(str(path), values, contents)
  return path, values


@pytest.fixture(scope="module")
def filler(folder):
  return bert.load(folder[0], "fill_mask", top_k=4, batch_size=3)


@pytest.fixture(scope="module")
def ask(folder, golden):
  """The log-probabilities at a position [V], and of the next sentence [2]."""
  values = folder[1]

  def ask(ids, segment_ids, position):
    with variables.VariableStore(initial_values=values):
      bert = modeling.BertModel(
        golden.config,
        False,
        tf.constant([ids]),
        tf.ones([1, len(ids)], tf.int32),
        tf.constant([segment_ids]),
      )
      *_, words = pretraining.get_masked_lm_output(
        golden.config,
        bert.get_sequence_output(),
        bert.get_embedding_table(),
        [[position]],
        [[0]],
        [[1.0]],
      )
      *_, following = pretraining.get_next_sentence_output(
        golden.config, bert.get_pooled_output(), [0]
      )
    return words[0].numpy(), following[0].numpy()

  return ask


def encode(filler, text):
  """The ids of a text, in which _ stands for [MASK]."""
  pieces = ["[CLS]"]
  for word in text.split():
    if word == "_":
      pieces.append("[MASK]")
    else:
      pieces += filler.task.tokenizer.tokenize(word)
  return filler.task.tokenizer.convert_tokens_to_ids([*pieces, "[SEP]"])


def test_the_likeliest_pieces_of_a_mask(filler, ask):
  (filled,) = filler.answers(["the [MASK] would be"])
  ids = encode(filler, "the _ would be")
  words, _ = ask(ids, [0] * len(ids), 2)
  best = np.argsort(-words)[:4]
  pieces = {
    index: piece for piece, index in filler.task.tokenizer.vocab.items()
  }
  assert [piece for piece, _ in filled.masks[0]] == [pieces[i] for i in best]
  np.testing.assert_allclose(
    [p for _, p in filled.masks[0]], np.exp(words[best]), rtol=1e-4
  )
  first = pieces[best[0]]
  expected = f"the {first} would be"
  if first.startswith("##"):
    expected = f"the{first[2:]} would be"
  assert filled.text == expected
  assert filled.pseudo_perplexity is None
  assert filled.next_sentence_probability is None


def test_the_surest_of_several_masks_is_filled_first(filler, ask):
  (filled,) = filler.answers(["[MASK] city [MASK]"])
  ids = encode(filler, "_ city _")
  chosen = {}
  while len(chosen) < 2:
    open_masks = [i for i in (1, len(ids) - 2) if i not in chosen]
    words = {i: ask(ids, [0] * len(ids), i)[0] for i in open_masks}
    surest = max(open_masks, key=lambda i: words[i].max())
    chosen[surest] = ids[surest] = int(np.argmax(words[surest]))
  pieces = {
    index: piece for piece, index in filler.task.tokenizer.vocab.items()
  }
  found = [pieces[chosen[i]].removeprefix("##") for i in sorted(chosen)]
  assert filled.text.replace(" ", "") == f"{found[0]}city{found[1]}"
  assert len(filled.masks) == 2


def test_a_mask_may_be_filled_with_a_mask(goldens):
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"))
  text, pieces = "a [MASK] b [MASK].", ["[MASK]", "##s"]
  found = masked_text.replaced(text, pieces, tokenizer, {"##s"})
  assert found == "a [MASK] bs."


@pytest.fixture(scope="module")
def word_starts(tmp_path_factory):
  """A SentencePiece model, which marks pieces that begin a word."""
  path = tmp_path_factory.mktemp("pieces")
  (path / "text").write_text("low, lower. lowest new newer newest\n" * 20)
  sentencepiece.SentencePieceTrainer.train(
    input=str(path / "text"),
    model_prefix=str(path / "pieces"),
    vocab_size=26,
    hard_vocab_limit=False,
    control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    minloglevel=2,
  )
  return str(path / "pieces.model")


@pytest.mark.parametrize(
  ("text", "pieces"),
  [
    ("[MASK].", "[MASK] ."),
    ("low [MASK], new", "_low [MASK] , _new"),
    ("[MASK]er", "[MASK] er"),
    ("[MASK] er", "[MASK] _ er"),
    ("[MASK][MASK] new.", "[MASK] [MASK] _new ."),
    ("[MASK]s [MASK]", "[MASK] s [MASK]"),
    # The vocabulary has no such piece within a word.
    ("[MASK]new", "[MASK] _new"),
  ],
)
def test_no_word_begins_right_after_a_mask(word_starts, text, pieces):
  tokenizer = tokenization.FullTokenizer(None, True, word_starts)
  found = tokenizer.tokenize_masked(text)
  assert found == pieces.replace("_", tokenization.WORD_START).split()


def test_a_sentencepiece_model_fills_masks(tmp_path, folder, word_starts):
  path, values = folder
  # The likeliest piece continues a word.
  tokenizer = tokenization.FullTokenizer(None, True, word_starts)
  bias = values["cls/predictions/output_bias"] * 0
  bias[tokenizer.vocab["er"]] = 1e4
  contents = {
    "bert_config.json": (path / "bert_config.json").read_bytes(),
    "pieces.model": pathlib.Path(word_starts).read_bytes(),
  }
  values = {**values, "cls/predictions/output_bias": bias}
  checkpoints.write_release(str(tmp_path), values, contents)
  (filled,) = bert.load(tmp_path, "fill_mask").answers(["low [MASK]."])
  assert filled.num_pieces == 3
  assert filled.text == "lower."


def test_a_vocabulary_may_be_shorter_than_the_table(tmp_path, folder):
  path, values = folder
  size = 30
  pieces = (path / "vocab.txt").read_text().splitlines()[:size]
  assert "[MASK]" in pieces
  # The piece without a name is the likeliest.
  bias = values["cls/predictions/output_bias"] * 0
  bias[size] = 1e4
  contents = {
    "bert_config.json": (path / "bert_config.json").read_bytes(),
    "vocab.txt": "\n".join(pieces),
  }
  values = {**values, "cls/predictions/output_bias": bias}
  checkpoints.write_release(str(tmp_path), values, contents)
  (filled,) = bert.load(tmp_path, "fill_mask", top_k=2).answers(["[MASK]"])
  assert filled.text == "?"


def test_words_are_scored_by_masking_each_piece(filler, ask):
  (filled,) = filler.answers([TEXT])
  ids = encode(filler, TEXT)
  mask = filler.task.tokenizer.vocab["[MASK]"]
  scores = []
  for position in range(1, len(ids) - 1):
    masked = [*ids[:position], mask, *ids[position + 1 :]]
    words, _ = ask(masked, [0] * len(ids), position)
    scores.append(float(words[ids[position]]))
  assert filled.text == TEXT
  assert [word for word, _ in filled.words] == TEXT.split()
  np.testing.assert_allclose(
    [score for _, score in filled.words[:4]], scores[:4], rtol=1e-4
  )
  np.testing.assert_allclose(filled.words[4][1], sum(scores[4:]), rtol=1e-4)
  np.testing.assert_allclose(
    filled.pseudo_log_likelihood, sum(scores), rtol=1e-4
  )
  perplexity = math.exp(-sum(scores) / len(scores))
  np.testing.assert_allclose(filled.pseudo_perplexity, perplexity, rtol=1e-4)


def test_a_pair_has_the_probability_that_b_follows(filler, ask):
  (filled,) = filler.answers([("the city", "it would [MASK]")])
  first = encode(filler, "the city")
  second = encode(filler, "it would _")[1:]
  segments = [0] * len(first) + [1] * len(second)
  _, following = ask([*first, *second], segments, len(segments) - 2)
  assert filled.next_sentence_probability == pytest.approx(
    math.exp(following[0]), rel=1e-4
  )
  assert filled.text.startswith("the city ||| it would")


@pytest.mark.parametrize(
  ("texts", "problem"),
  [
    (["the", ""], r"input 2: .* '', without a word"),
    ([("a", "b", "c")], "input 1 is not an object with 'text', 'text_b'"),
    ([()], "input 1 is not an object with 'text', 'text_b'"),
    ([5], "input 1 is not an object with 'text', 'text_b'"),
    ([("a", 5)], "input 1: text_b is not a string$"),
    ([("a", math.nan)], r"not a string \(an .* pandas: use fillna\(''\)\)$"),
    (["a", math.nan], r"input 2 is not .* pandas: use fillna\(''\)\)$"),
    (["the " * 127], r"input 1: .* 129 pieces, more than the 128"),
  ],
)
def test_wrong_texts(filler, texts, problem):
  with pytest.raises(UserError, match=problem):
    filler.answers(texts)


def write_part(folder, release, skipped):
  """Writes a release without the variables whose names contain a word."""
  path, values = release
  kept = {k: v for k, v in values.items() if skipped not in k}
  contents = {
    name: (path / name).read_bytes()
    for name in ("bert_config.json", "vocab.txt")
  }
  checkpoints.write_release(str(folder), kept, contents)


def test_a_model_without_next_sentences_fills_masks(tmp_path, folder, filler):
  write_part(tmp_path, folder, "seq_relationship")
  pairs = [("the", "[MASK] city")]
  (found,) = bert.load(tmp_path, "fill_mask").answers(pairs)
  (expected,) = filler.answers(pairs)
  assert found.text == expected.text
  assert found.next_sentence_probability is None


def test_the_script_writes_json_lines(folder, filler, tmp_path):
  texts = ["the [MASK] would be", TEXT, "the city ||| it would be"]
  tiny_task.write_lines(tmp_path / "in.txt", texts)
  command = [f"--model_dir={folder[0]}", f"--input_file={tmp_path}/in.txt"]
  path = tmp_path / "out.jsonl.gz"
  scripts.fork("fill_mask.py", *command, f"--output_file={path}")
  lines = gzip.decompress(path.read_bytes()).splitlines()
  masked, scored, pair = map(json.loads, lines)
  assert masked.keys() == {"text", "masks", "num_pieces"}
  assert len(masked["masks"]) == 1
  total = sum(score for _, score in scored["words"])
  perplexity = math.exp(-total / scored["num_pieces"])
  assert scored["pseudo_log_likelihood"] == pytest.approx(total)
  assert scored["pseudo_perplexity"] == pytest.approx(perplexity)
  assert pair.keys() == scored.keys() | {"next_sentence_probability"}
  (expected,) = filler.answers([("the city", "it would be")])
  found = pair["next_sentence_probability"]
  assert found == pytest.approx(expected.next_sentence_probability, rel=1e-4)


def test_a_slow_pipe_is_answered_as_it_comes(folder, tmp_path):
  pipes = [tmp_path / "texts", tmp_path / "answers"]
  for path in pipes:
    os.mkfifo(path)
  command = [f"--model_dir={folder[0]}", "--input_file=-"]
  process = scripts.Fork("fill_mask.py", *command, pipes=pipes)
  with pipes[0].open("w") as texts, pipes[1].open() as answers:
    for _ in range(2):
      print("[MASK]", file=texts, flush=True)
      assert "[MASK] 1: " in answers.readline() + answers.readline()
  assert process.wait()[0] == 0


def test_a_late_error_comes_before_any_answer(folder, tmp_path):
  source = tmp_path / "in.txt"
  tiny_task.write_lines(source, ["[MASK]"] * 256 + ["the " * 127])
  command = [f"--model_dir={folder[0]}", f"--input_file={source}"]
  printed, error = scripts.fork("fill_mask.py", *command, status=2)
  assert printed == ""
  assert "in.txt:257 has 129 pieces" in error


MISTAKES = """
--input_file=FILES/blank.txt
  blank.txt:2
--output_file=FILES/in.txt
  --output_file=
--interactive --input_file=
  --output_file and --interactive
--input_file=missing.txt
  --input_file=missing.txt
--model_dir=FILES/no_heads
  error: FILES/no_heads/bert_model.ckpt has no cls/predictions/
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(folder, tmp_path, mistake):
  (tmp_path / "no_heads").mkdir()
  write_part(tmp_path / "no_heads", folder, "cls/")
  tiny_task.write_lines(tmp_path / "in.txt", ["the"])
  tiny_task.write_lines(tmp_path / "blank.txt", ["the", ""])
  good = {"model_dir": folder[0], "input_file": tmp_path / "in.txt"}
  good["output_file"] = tmp_path / "out.jsonl"
  mistakes.check(mistake, "fill_mask.py", tmp_path, good, FILES=tmp_path)


def test_a_release_is_downloaded_by_name(folder, filler, tmp_path, monkeypatch):
  name = "uncased_L-2_H-128_A-2"

  def fetch_archive(url, target, offline):
    assert url.endswith(f"/{name}.zip")
    return shutil.copytree(folder[0], target)

  monkeypatch.setattr(fetching, "fetch_archive", fetch_archive)
  monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
  monkeypatch.chdir(tmp_path)
  downloads.use_cache_only(False)  # It forgets what it has found.
  found = bert.load(name, "fill_mask", top_k=4)("the [MASK] would be")
  downloads.use_cache_only(False)
  assert found["text"] == filler("the [MASK] would be")["text"]


def test_an_unknown_word_of_sentencepiece_is_one_word(word_starts):
  tokenizer = tokenization.FullTokenizer(None, True, word_starts)
  pieces = ["\u2581", "[UNK]", "\u2581the", "\u2581", "[UNK]", "\u2581of"]
  scores = [1, 2, 4, 8, 16, 32]
  words = masked_text.scored_words(pieces, scores, tokenizer, {"s"})
  assert words == [("[UNK]", 3), ("the", 4), ("[UNK]", 24), ("of", 32)]
