"""Corpora in shards: what these hold, and how work on them is shared."""

import bz2
import gzip
import itertools
import lzma
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import types
from unittest import mock

import apache_beam
import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from bert.data import corpus, corpus_beam, corpus_workers

# Lines of all kinds: with text, and blank in the one way or the other.
TEXTS = ("a", "b c", "caf\u00e9 \u4e2d", " d\r", "\ufeff")
BLANKS = ("", " ", "\t\r", "\u3000", "\x1c\u00a0")


def _write(folder, contents, zipped=()):
  """Files of these bytes; those of these numbers are zipped."""
  paths = []
  for number, content in enumerate(contents):
    is_zipped = number in zipped
    path = pathlib.Path(folder, f"{number}.txt{'.gz' * is_zipped}")
    path.write_bytes(gzip.compress(content) if is_zipped else content)
    paths.append(str(path))
  return paths


def _documents(lines):
  """Runs of lines that are not blank."""
  groups = itertools.groupby(lines, key=lambda line: bool(line.strip()))
  return [list(group) for has_text, group in groups if has_text]


@st.composite
def _files(draw):
  """Contents of some files, and the lines that these are read as."""
  contents, lines = [], []
  for _ in range(draw(st.integers(1, 4))):
    drawn = draw(st.lists(st.sampled_from(TEXTS + BLANKS), max_size=12))
    text = "".join(f"{line}\n" for line in drawn)
    if drawn and drawn[-1] and draw(st.booleans()):
      text = text.removesuffix("\n")
    # A first line that is but a byte order mark is blank.
    if drawn and drawn[0].startswith("\ufeff"):
      drawn[0] = drawn[0].removeprefix("\ufeff")
    contents.append(text.encode())
    lines += drawn
  return contents, lines


@hypothesis.given(
  _files(),
  st.sampled_from([0, 1, 5, 20, 1000]),
  st.integers(1, 3),
  st.sets(st.integers(0, 3)),
)
def test_shards_are_whole_documents(files, shard_bytes, min_documents, zipped):
  contents, lines = files
  documents = _documents(lines)
  hypothesis.assume(documents)
  with tempfile.TemporaryDirectory() as folder:
    found = corpus.scan(
      _write(folder, contents, zipped), shard_bytes, min_documents
    )
    read = [list(corpus.shard_lines(shard)) for shard in found.shards]
  assert found.num_documents == len(documents)
  assert found.size == sum(map(len, contents))
  assert [line for shard in read for line in shard] == lines
  of_shards = [_documents(shard) for shard in read]
  assert [d for shard in of_shards for d in shard] == documents
  assert [shard.index for shard in found.shards] == list(range(len(read)))
  counts = [len(shard) for shard in of_shards]
  assert [shard.num_documents for shard in found.shards] == counts
  assert len(counts) == 1 or min(counts) >= min_documents
  assert len(counts) == 1 or shard_bytes
  for shard, own in zip(found.shards[:-1], of_shards, strict=False):
    # Full, and not full, or with too few documents, before its last one.
    size = sum(text.stop - text.start for text in shard.ranges)
    last = len("\n".join([*own[-1], ""]).encode())
    assert size >= shard_bytes
    assert size - last < shard_bytes + 8 or len(own) == min_documents


def test_a_shard_ends_with_the_document_that_fills_it(tmp_path):
  # Documents of 4 bytes, and 1 for the empty line behind each.
  paths = _write(tmp_path, [b"aaa\n\nbbb\n\nccc\n\nddd\n\neee\n"])

  def counts(*settings):
    return [
      shard.num_documents for shard in corpus.scan(paths, *settings).shards
    ]

  assert counts(0, 1) == [5]
  assert counts(1, 1) == [1, 1, 1, 1, 1]
  assert counts(5, 1) == [1, 1, 1, 1, 1]
  assert counts(6, 1) == [2, 2, 1]
  # The last one alone goes to those before.
  assert counts(6, 2) == [2, 3]
  assert counts(1, 3) == [5]
  assert counts(11, 2) == [3, 2]


@pytest.mark.parametrize(
  ("content", "name", "words"),
  [
    (b"a\n\nb\ncaf\xe9\n", "x.txt", [":4: byte 8 is not UTF-8", "convert"]),
    (bz2.compress(b"a"), "x.txt", ["x.txt:1: the file is compressed; decom"]),
    (lzma.compress(b"a"), "x.txt", ["x.txt:1: the file is compressed; decom"]),
    (b"\n \n", "x.txt", ["x.txt has no text that", "other text"]),
    (b"", "x.txt", ["x.txt has no text that"]),
    (b"text", "x.txt.gz", ["x.txt.gz is not a complete gzip file", "again"]),
    (
      gzip.compress(random.Random(1).randbytes(50).hex().encode(), mtime=0)[
        :-20
      ],
      "x.txt.gz",
      ["x.txt.gz is not a complete gzip file", "again"],
    ),
  ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, name, words):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=r"x\.txt") as caught:
    corpus.scan([str(path)], 0, 1)
  assert all(word in str(caught.value) for word in words)
  assert "\n" not in str(caught.value)


def test_random_streams():
  def draws(stream):
    return [stream.random() for _ in range(5)]

  assert draws(corpus.random_stream(7, 0)) == draws(random.Random(7))
  streams = [corpus.random_stream(s, i) for s in (7, 8) for i in (0, 1, 2)]
  assert len({tuple(draws(stream)) for stream in streams}) == 6
  again = corpus.random_stream(7, 1)
  assert draws(again) == draws(corpus.random_stream(7, 1))


@pytest.fixture(scope="module")
def config(goldens):
  return corpus.CorpusConfig(
    vocab_file=str(goldens / "vocab.txt"),
    spm_model_file=None,
    do_lower_case=True,
    max_seq_length=32,
    dupe_factor=2,
    short_seq_prob=0.1,
    masked_lm_prob=0.15,
    max_predictions_per_seq=5,
    random_seed=1,
  )


@pytest.fixture(scope="module")
def text(tmp_path_factory, goldens):
  """A corpus whose first document takes longer than all others together."""
  path = tmp_path_factory.mktemp("text") / "text.txt"
  documents = (goldens / "corpus.txt").read_text("utf-8").split("\n\n")
  first = "\n".join(d.strip() for d in documents * 5)
  path.write_text("\n\n".join([first, *documents]) + "\n", encoding="utf-8")
  return str(path)


def _records(path):
  return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def _write_records(found, config, outputs, num_workers, *callback):
  with corpus_workers.workspace(outputs) as (paths, prefix):
    return corpus_workers.write_records(
      found, config, paths, prefix, num_workers, *callback
    )


def test_counts_and_order_of_a_shard(tmp_path, config):
  (path,) = _write(tmp_path, [b"the of and\nthe\n\n\x01\n\nto \xe4\xb8\xad\n"])
  (shard,) = corpus.scan([path], 0, 2).shards
  assert shard.num_documents == 3  # One of them has no text.
  done = []
  records, counts = corpus.records_of_shard(
    shard, config, lambda: done.append(1)
  )
  assert counts["pieces"] == 6
  assert counts["unknown"] == 1
  assert counts["instances"] == len(records)
  masks = [
    tf.train.Example.FromString(r).features.feature["input_mask"].int64_list
    for r in records
  ]
  assert counts["tokens"] == sum(sum(mask.value) for mask in masks)
  assert sum(done) == 2 * config.dupe_factor


def test_files_do_not_depend_on_the_workers(tmp_path, config, text):
  num_outputs = 2
  found = corpus.scan([text], 1000, 2)
  assert len(found.shards) > 5
  wanted = [[] for _ in range(num_outputs)]
  for shard in found.shards:
    records, _ = corpus.records_of_shard(shard, config)
    for place, record in enumerate(records, shard.index):
      wanted[place % num_outputs].append(record)
  contents = []
  for num_workers in (1, 3):
    folder = tmp_path / str(num_workers)
    folder.mkdir()
    outputs = [str(folder / f"{n}.tfrecord") for n in range(num_outputs)]
    done = []
    counts = _write_records(found, config, outputs, num_workers, done.append)
    assert [_records(path) for path in outputs] == wanted
    assert counts["instances"] == sum(map(len, wanted))
    assert sum(done) == found.num_documents * config.dupe_factor
    assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, outputs))
    contents.append([pathlib.Path(path).read_bytes() for path in outputs])
  assert contents[0] == contents[1]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_in_a_shard_leaves_nothing(tmp_path, config, num_workers):
  text = "the of\n\nand to\n\n" * 3 + "\x01\n\n\x02\n\n" + "the of\n\n" * 4
  (path,) = _write(tmp_path, [text.encode()])
  found = corpus.scan([path], 1, 2)
  out = tmp_path / "out"
  out.mkdir()
  (out / "0").write_text("what was there")
  (out / "0.partial.tmp-shard-00099-0").write_text("of a run that was killed")
  outputs = [str(out / "0"), str(out / "1")]
  with pytest.raises(ValueError, match=r"0\.txt has no text .*--shard_mb"):
    _write_records(found, config, outputs, num_workers)
  assert os.listdir(out) == ["0"]
  assert (out / "0").read_text() == "what was there"


def test_a_killed_worker_is_said(tmp_path, config, text):
  found = corpus.scan([text], 1000, 2)

  def kill():
    deadline = time.monotonic() + 60
    while not (workers := multiprocessing.active_children()):
      assert time.monotonic() < deadline
      time.sleep(0.01)
    os.kill(workers[0].pid, signal.SIGKILL)

  killer = threading.Thread(target=kill)
  killer.start()
  with pytest.raises(OSError, match=r"killed.*--num_workers.*--shard_mb"):
    _write_records(found, config, [str(tmp_path / "out")], 2)
  killer.join()
  assert os.listdir(tmp_path) == []


def test_beam_is_asked_for_when_it_is_not_there(monkeypatch):
  monkeypatch.setitem(sys.modules, "apache_beam", None)
  with pytest.raises(ValueError, match=r"pip install -r requirements-beam.txt"):
    corpus_beam.beam_pipeline("FnApiRunner", ["--temp_location=x"])


def test_an_error_of_a_runner_is_not_ours():
  class JobFailed(Exception):
    __module__ = "apache_beam.runners.any"

  def write(error):
    pipeline = apache_beam.Pipeline()
    pipeline.run = mock.Mock(side_effect=error)
    corpus = types.SimpleNamespace(shards=[0])
    corpus_beam.write_records_by_beam(corpus, None, ["a"], "b", pipeline)

  with pytest.raises(OSError, match=r"^no quota$"):
    write(JobFailed("State: FAILED, Error:\nno quota\n"))
  with pytest.raises(KeyError, match="ours"):
    write(KeyError("ours"))
