"""Files of features: as the original's, and read back as the docs say."""

import gc
import gzip
import io
import itertools
import json
import os
import pathlib
import re
import resource
import signal
import sys
import tempfile
import tracemalloc
import types

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.engine import batches, loaded_model
from bert.models.resolve import Model
from bert.tasks.embeddings import feature_files, vectors as features

FORMATS = ["jsonl", "npz", "parquet"]
BINARY = FORMATS[1:]
TOKENS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@pytest.fixture(scope="module")
def model(golden, tokenizer):
  return Model(golden.config, tokenizer, golden.checkpoint)


@pytest.fixture(scope="module")
def golden_lines(goldens):
  """What the original writes, parsed."""
  lines = (goldens / "extract_output.jsonl").read_text("utf-8").splitlines()
  return [json.loads(line) for line in lines]


def load(model, **options):
  options = {"layers": [-1, -2], "pooling": "none"} | options
  return loaded_model.load_task(model, "vectors", **options)


@pytest.fixture(scope="module", params=["float32", "float16"])
def any_extractor(request, model):
  """One that does as the original did for these, in each dtype."""
  return load(model, max_seq_length=32, batch_size=3, dtype=request.param)


@pytest.fixture(scope="module")
def extractor(model):
  return load(model, max_seq_length=32, batch_size=3)


@pytest.fixture(scope="module")
def found(goldens, extractor):
  """The features of the original's input."""
  return extract(goldens, extractor)


def extract(goldens, extractor):
  texts = feature_files.read_texts(str(goldens / "extract_input.txt"))
  windows = feature_files.windows(extractor, texts)
  return list(itertools.chain(*windows))


@pytest.fixture(scope="module")
def pooling(model):
  return load(model, pooling="mean", max_seq_length=32)


def write(path, rows, extractor, sizes=(3, 1)):
  """Writes rows in parts of these sizes, in the format of the file's name."""
  rows = list(rows)
  with feature_files.open_features(str(path), extractor) as append:
    for size in sizes:
      append(rows[:size])
      del rows[:size]
  assert not rows


def json_line(row):
  """The line of JSON that a row of one layer becomes."""
  settings = types.SimpleNamespace(layers=(-1,))
  model = types.SimpleNamespace(task=types.SimpleNamespace(settings=settings))
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "out.jsonl")
    write(path, [row], model, [1])
    return path.read_bytes()


def documented(kind, path, n):
  """Runs the lines that the documentation has for a format.

  Returns:
    The names they define.
  """
  text = pathlib.Path(__file__).parents[2] / "docs" / "features.md"
  blocks = re.findall("```py\n(.*?)```", text.read_text("utf-8"), re.DOTALL)
  (code,) = [b for b in blocks if f'"out.{kind}"' in b]
  code = code.replace(f'"out.{kind}"', "path").replace("LAYERS", "2")
  names = {
    "path": str(path),
    "n": n,
    "np": np,
    "pyarrow": pyarrow,
    "json": json,
  }
  exec(code, names)
  return names


class TestJsonLines:
  @given(
    values=st.lists(
      st.floats(width=32, allow_nan=False, allow_infinity=False)
      | st.floats(-4, 4, width=32)
      # Halfway between two numbers of 6 decimals.
      | st.integers(-1000, 1000).map(lambda k: (2 * k + 1) / 128),
      min_size=1,
    )
  )
  def test_numbers_are_rounded_as_python_rounds(self, values):
    vector = np.array(values, np.float32)
    row = features.Features([], [], None, vector, False)
    line = json_line(row)
    expected = [round(float(x), 6) for x in vector]
    assert json.loads(line) == {"linex_index": 0, "vector": expected}
    assert line.endswith(b"\n")

  @given(token=TOKENS)
  def test_tokens_of_any_characters(self, token):
    values = np.ones([1, 1, 1], np.float32)
    row = features.Features([token], [], values, None, False)
    (feature,) = json.loads(json_line(row))["features"]
    assert feature["token"] == token

  def test_vectors(self, goldens, tmp_path, pooling, golden_lines):
    path = tmp_path / "out.jsonl"
    (texts,) = feature_files.read_texts(str(goldens / "extract_input.txt"))
    write(path, pooling.answers(texts), pooling)
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    for line, golden in zip(lines, golden_lines, strict=True):
      assert line.keys() == {"linex_index", "vector"}
      assert line["linex_index"] == golden["linex_index"]
      highest = [f["layers"][0]["values"] for f in golden["features"]]
      np.testing.assert_allclose(
        line["vector"], np.mean(highest, axis=0), rtol=0, atol=1e-5
      )


class TestBinary:
  @pytest.mark.parametrize("kind", BINARY)
  def test_reads_back_as_the_documentation_says(
    self, tmp_path, goldens, any_extractor, golden_lines, kind
  ):
    path = tmp_path / f"out.{kind}"
    dtype = any_extractor.task.settings.dtype
    write(path, extract(goldens, any_extractor), any_extractor)
    # Numbers to 4 have 10 bits after the leading one.
    tolerance = {"float32": 1e-5, "float16": 2**-9}[dtype]
    for n, line in enumerate(golden_lines):
      names = documented(kind, path, n)
      expected = [
        [layer["values"] for layer in feature["layers"]]
        for feature in line["features"]
      ]
      values = np.asarray(names["values"])
      assert values.dtype == dtype
      np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
      tokens = [feature["token"] for feature in line["features"]]
      assert list(names["tokens"]) == tokens

  def test_npz(self, tmp_path, found, extractor):
    path = tmp_path / "out.npz"
    write(path, found, extractor)
    with np.load(path) as z:
      assert list(z["layers"]) == [-1, -2]
      offsets, words = z["offsets"], z["word_offsets"]
      assert len(z["tokens"]) == len(z["values"]) == offsets[-1]
      for n, row in enumerate(found):
        assert offsets[n + 1] - offsets[n] == len(row.tokens)
        places = z["orig_to_tok_map"][words[n] : words[n + 1]]
        assert list(places) == row.orig_to_tok_map
      assert len(offsets) == len(words) == len(found) + 1

  def test_parquet(self, tmp_path, found, extractor):
    path = tmp_path / "out.parquet"
    write(path, found, extractor)
    file = pyarrow.parquet.ParquetFile(path)
    assert file.num_row_groups == 2
    assert file.schema_arrow.metadata[b"layers"] == b"-1,-2"
    table = file.read().to_pydict()
    assert table["linex_index"] == [0, 1, 2, 3]
    assert table["tokens"] == [row.tokens for row in found]
    assert table["orig_to_tok_map"] == [row.orig_to_tok_map for row in found]

  @pytest.mark.parametrize("dtype", ["float32", "float16"])
  def test_vectors(self, tmp_path, model, dtype):
    pooling = load(model, pooling="mean", dtype=dtype)
    rows = pooling.answers(["the", "the game", "", "was"])
    expected = np.stack([row.vector for row in rows])
    for kind in BINARY:
      write(tmp_path / f"out.{kind}", rows, pooling)
    with np.load(tmp_path / "out.npz") as z:
      assert set(z.files) == {"vectors", "layers"}
      arrays = [z["vectors"]]
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    rows = [row.values.to_numpy() for row in table["vectors"]]
    arrays.append(np.stack(rows))
    for array in arrays:
      assert array.dtype == dtype
      np.testing.assert_array_equal(array, expected)

  @pytest.mark.parametrize("kind", BINARY)
  def test_equal_runs_write_equal_files(self, tmp_path, found, extractor, kind):
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in paths:
      write(path, found, extractor)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_memory_is_bounded(monkeypatch, tmp_path, model):
  """That of a window of lines, here a tenth of them."""
  monkeypatch.setattr(batches, "SORTED_ROWS", 40)
  source = tmp_path / "in.txt"
  source.write_text(("the game was played " * 16 + "\n") * 400)
  extractor = load(model, max_seq_length=64)
  texts = feature_files.read_texts(str(source))
  tracemalloc.start()
  with feature_files.open_features(
    str(tmp_path / "out.parquet"), extractor
  ) as append:
    for window in feature_files.windows(extractor, texts):
      append(window)
      del window
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  # Values of all lines are 400 * 64 * 2 * 32 * 4 bytes, 6.6 MB.
  assert peak < 2.5e6


class TestFailures:
  """Of the disk."""

  @pytest.fixture
  def small(self, tmp_path):
    """Lets no file grow beyond 200 KB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # What is left to do at the limit: to fail, and not to die of a signal.
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, old)

  def rows(self):
    values = np.random.default_rng(1).random([100, 2, 32], np.float32)
    row = features.Features(["a"] * 100, [0] * 100, values, None, False)
    return [row] * 100  # 2.5 MB.

  # NumPy 1 leaves an unfinished .npz file to the garbage collector.
  @pytest.mark.filterwarnings(
    "ignore:.*ZipFile:pytest.PytestUnraisableExceptionWarning"
  )
  @pytest.mark.parametrize("kind", FORMATS)
  def test_a_full_disk_leaves_nothing(self, small, extractor, kind):
    path = small / f"out.{kind}"
    with pytest.raises(OSError, match="File too large"):
      write(path, self.rows(), extractor, sizes=(50, 50))
    gc.collect()
    assert os.listdir(small) == []

  def test_standard_output(self, monkeypatch, extractor):
    with open("/dev/full", "wb", buffering=0) as full:
      monkeypatch.setattr("sys.stdout", io.TextIOWrapper(full))
      with (
        pytest.raises(OSError, match="No space left"),
        feature_files.open_features("-", extractor) as append,
      ):
        append(self.rows())


class TestLines:
  def read(self, content, path):
    path.write_bytes(content)
    return list(itertools.chain(*feature_files.read_texts(str(path))))

  @pytest.mark.parametrize(
    ("content", "texts"),
    [
      ("a\n\nb\n", ["a", "", "b"]),
      ("a\nb", ["a", "b"]),
      ("a\r\nb ||| c\r\n", ["a", ("b", "c")]),
      ("\ufeffa\n", ["a"]),
      ("\n", [""]),
      # None of these ends a line.
      ("a\rb\x0bc\u2028d\n", ["a\rb\x0bc\u2028d"]),
    ],
  )
  def test_files(self, tmp_path, content, texts):
    content = content.encode()
    assert self.read(content, tmp_path / "in.txt") == texts
    assert self.read(gzip.compress(content), tmp_path / "in.txt.gz") == texts

  def test_a_file_is_checked_before_its_first_text_is_yielded(self, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"a ||| b\nc\nd\xe9\n")
    with pytest.raises(ValueError, match=":3: byte 11 is not UTF-8"):
      next(feature_files.read_texts(str(path)))
    path.write_bytes(b"a ||| b\nc\n")
    checked = []
    texts = feature_files.read_texts(
      str(path), lambda text, number: checked.append((text, number))
    )
    assert checked == []
    block = next(texts)
    assert checked == [(("a", "b"), 1), ("c", 2)]
    assert list(block) == [("a", "b"), "c"]


class TestOutput:
  @pytest.mark.parametrize(
    ("path", "kind"),
    [
      ("a.jsonl", "jsonl"),
      ("a.JSONL.gz", "jsonl"),
      ("a.npz", "npz"),
      ("a.parquet", "parquet"),
      (".npz", "npz"),
      ("a/.parquet", "parquet"),
      ("npz/a", "jsonl"),
      ("a.npz/npz", "jsonl"),
      ("-", "jsonl"),
    ],
  )
  def test_format(self, path, kind):
    assert feature_files.format_of(path) == kind
    feature_files.check_output(path)

  @pytest.mark.parametrize("path", ["a.npz.gz", "a.parquet.GZ"])
  def test_what_cannot_be_written(self, path):
    with pytest.raises(ValueError, match="only JSON Lines can be"):
      feature_files.check_output(path)

  def test_a_missing_package(self, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(ValueError, match=r"needs the package pyarrow .*; run"):
      feature_files.check_output("a.parquet")
