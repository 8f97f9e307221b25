"""The script that learns a vocabulary."""

import gzip
import json
import os
import re
import signal
import threading
from unittest import mock

import mistakes
import pytest
import scripts

import tokenization
from bert import termination
from bert.commands import build_vocab

SAMPLE = scripts.ROOT / "sample_text.txt"

SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def build(*flags, **kwargs):
  return scripts.fork("build_vocab.py", *flags, **kwargs)


@pytest.mark.parametrize("model_type", ["wordpiece", "unigram"])
def test_a_signal_ends_the_learning_at_once(monkeypatch, model_type):
  numbers, found = (signal.SIGTERM, signal.SIGINT), []

  def learn(*arguments):
    found.extend(map(signal.getsignal, numbers))
    raise InterruptedError

  for name in ("learn_wordpiece", "learn_sentencepiece"):
    monkeypatch.setattr(build_vocab.vocabulary, name, learn)
  before = list(map(signal.getsignal, numbers))
  try:
    termination.raise_on_signals()
    with pytest.raises(InterruptedError):
      build_vocab.write_vocabulary(mock.Mock(model_type=model_type), {})
  finally:
    for number, handler in zip(numbers, before, strict=True):
      signal.signal(number, handler)
  assert found == [signal.SIG_DFL] * 2


class TestScript:
  def test_vocab_and_config(self, tmp_path):
    text = SAMPLE.read_bytes()
    half = text.index(b"\n\n", len(text) // 2) + 2
    (tmp_path / "a.txt").write_bytes(text[:half])
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text[half:]))
    config = {"vocab_size": 7, "hidden_size": 8, "num_attention_heads": 2}
    config_file = tmp_path / "bert_config.json"
    config_file.write_text(json.dumps({**config, "a_key": [1, "two"]}))
    whole = tmp_path / "whole.vocab"
    halves = tmp_path / "halves.vocab"
    flags = ("--vocab_size=800", "--num_unused=5")
    out, _ = build(f"--input_file={SAMPLE}", f"--output_file={whole}", *flags)
    build(
      f"--input_file={tmp_path}/a.*,{tmp_path}/*.gz",
      f"--output_file={halves}",
      f"--update_config={config_file}",
      *flags,
    )
    assert whole.read_bytes() == halves.read_bytes()
    pieces = whole.read_text("utf-8").splitlines()
    assert len(pieces) == len(set(pieces)) == 800
    unused = [f"[unused{n}]" for n in range(5)]
    assert pieces[:10] == ["[PAD]", *unused, *SPECIALS]
    updated = json.loads(config_file.read_text())
    assert updated["vocab_size"] == 800
    assert updated["a_key"] == [1, "two"]
    assert updated["hidden_size"] == 8
    assert list(updated) == sorted(updated)
    assert config_file.read_text().startswith("{\n  ")
    lines = len(re.findall(rb"[^\n]+", text))
    assert out.startswith(f"{lines} lines; ")
    assert "800 pieces, 790 learned" in out
    assert re.search(r"\d+ held-out words: 100.00% fully known", out)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
      *("a.txt", "b.txt.gz", "bert_config.json"),
      *("halves.vocab", "whole.vocab"),
    }

  @pytest.mark.parametrize("model_type", ["unigram", "bpe"])
  def test_sentencepiece(self, model_type, tmp_path):
    models = [tmp_path / name for name in ("first.model", "second.model")]
    for model in models:
      out, err = build(
        f"--input_file={SAMPLE}",
        f"--output_file={model}",
        f"--model_type={model_type}",
        "--vocab_size=600",
      )
      # SentencePiece says nothing of its own.
      assert len(err.splitlines()) == 2, err
    assert models[0].read_bytes() == models[1].read_bytes()
    assert "600 pieces, 496 learned" in out
    tokenizer = tokenization.FullTokenizer(None, spm_model_file=str(models[0]))
    assert len(tokenizer.vocab) == 600
    assert tokenizer.tokenize("The door")[0] == "▁the"

  @pytest.mark.parametrize("model_type", ["wordpiece", "unigram", "bpe"])
  def test_a_small_text_gives_what_it_has(self, model_type, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "output"
    text.write_text("The dog sees the dog.\n")
    config = tmp_path / "bert_config.json"
    config.write_text('{"vocab_size": 1}')
    out, err = build(
      f"--input_file={text}",
      f"--output_file={output}",
      f"--model_type={model_type}",
      f"--update_config={config}",
    )
    size = json.loads(config.read_text())["vocab_size"]
    assert f"{size} pieces, {size - 104} learned" in out
    assert f"yields only {size} pieces" in err
    if model_type == "wordpiece":
      assert len(output.read_text().splitlines()) == size

  def test_text_from_a_pipe(self, tmp_path):
    pipe, output = tmp_path / "pipe", tmp_path / "vocab.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a b\na\n",))
    writer.start()
    flags = (f"--input_file={pipe}", f"--output_file={output}")
    build(*flags, "--num_unused=0")
    writer.join()
    assert output.read_text("utf-8").split()[5:] == ["a"]

  def test_cased(self, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "vocab.txt"
    text.write_text("Été Été\nété\n", "utf-8")
    flags = (f"--input_file={text}", f"--output_file={output}")
    build(*flags, "--do_lower_case=false", "--num_unused=0")
    assert output.read_text("utf-8").split()[5:] == [
      *("t", "É", "é", "##t", "##é"),
      *("##té", "Été"),
    ]
    build(*flags, "--num_unused=0")
    assert "ete" in output.read_text("utf-8").split()

  def test_an_older_vocabulary_survives_an_error(self, tmp_path):
    output = tmp_path / "vocab.txt"
    output.write_text("old\n")
    build(
      f"--input_file={SAMPLE}",
      f"--output_file={output}",
      "--vocab_size=10",
      status=2,
    )
    assert output.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["vocab.txt"]


MISTAKES = """
--input_file=none*.txt
  --input_file=none ... no file matches none
--input_file=
  --input_file is required
--output_file=text.txt
  --output_file=text.txt:  ... is an input
--output_file=config --update_config=config
  --output_file=config: config is an input; pass another path
--update_config=text.txt
  --update_config=text.txt:  ... an input
--input_file=blank.txt
  blank.txt has no words
--input_file=latin1.txt
  latin1.txt:2:  ... UTF-8
--vocab_size=107
  --vocab_size=107  ... pass 11 ... or more
--vocab_size=107 --model_type=unigram
  --vocab_size=107  ... pass 1 ... or more
--vocab_size=10000001
  --vocab_size=10000001  ... 10000000
--update_config=none.json
  --update_config=none.json: no such file
--update_config=empty.json
  empty.json is not  ... vocab_size
--extend=good.txt --output_file= --output_dir=old --init_checkpoint=x
  old is not an empty folder
--extend=good.txt --output_file= --output_dir=x
  --init_checkpoint is required
--extend=good.txt --output_file= --output_dir=x --init_checkpoint=none
  no checkpoint none
--extend=sorted.txt --output_file= --output_dir=x --init_checkpoint=RELEASE
  --extend=sorted.txt has pieces in other lines ... pass --extend=RELEASE/vocab
--extend=longer.txt --output_file= --output_dir=x --init_checkpoint=RELEASE
  longer.txt has 1003 entries, more than vocab_size=1001
--extend=repeats.txt
  lines 2 and 1002; replace line 2
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(tmp_path, goldens, release, mistake):
  pieces = (goldens / "vocab.txt").read_bytes()
  (tmp_path / "old").mkdir()
  for name, content in {
    "text.txt": b"a small text\nof small words\n",
    "blank.txt": "\n \u200b\n".encode(),
    "latin1.txt": b"one\nsm\xf8r\n",
    "empty.json": b"{}",
    "config": b'{"vocab_size": 9}',
    "good.txt": pieces,
    "repeats.txt": pieces + pieces.splitlines()[1] + b"\n",
    "old/vocab.txt": pieces,
    "sorted.txt": b"\n".join(sorted(pieces.splitlines())),
    "longer.txt": pieces + b"longer\nlarger\n",
  }.items():
    (tmp_path / name).write_bytes(content)
  good = {"input_file": "text.txt", "output_file": "vocab.txt"}
  names = {"cwd": tmp_path, "RELEASE": release}
  mistakes.check(mistake, "build_vocab.py", tmp_path, good, **names)
