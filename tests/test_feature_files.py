"""Files of features: as the original's, and read back as the docs say."""

import gzip
import io
import itertools
import json
import os
import re
import threading

import h5py
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import feature_files
import features
import inputs
import releases
import text_files

BINARY = [name for name in feature_files.FORMATS if name != "jsonl"]
DTYPES = ["float32", "float16"]
TOKENS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@pytest.fixture(scope="module")
def model(goldens):
  config = str(goldens / "bert_config.json")
  return releases.Model(
    features.modeling.BertConfig.from_json_file(config),
    features.tokenization.FullTokenizer(str(goldens / "vocab.txt")),
    str(goldens / "model" / "bert_model.ckpt"),
  )


@pytest.fixture(scope="module")
def golden_lines(goldens):
  """What the original writes, parsed."""
  lines = (goldens / "extract_output.jsonl").read_text("utf-8").splitlines()
  return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def extractor(model):
  """One that does as the original did for these."""
  return features.FeatureExtractor(
    model, [-1, -2], max_seq_length=32, batch_size=3
  )


@pytest.fixture(scope="module")
def found(goldens, extractor):
  """The features of the original's input."""
  texts = feature_files.read_texts(str(goldens / "extract_input.txt"))
  return [row for window in extractor.windows(texts) for row in window]


@pytest.fixture(scope="module")
def pooling(model):
  return features.FeatureExtractor(model, pooling="mean", max_seq_length=32)


def write(path, rows, extractor, dtype="float32", sizes=(3, 1)):
  """Writes rows in parts of these sizes, in the format of the file's name."""
  rows = list(rows)
  layout = feature_files.layout_of(extractor, dtype)
  kind = feature_files.format_of(str(path))
  with feature_files.open_features(str(path), kind, layout) as append:
    for size in sizes:
      append(rows[:size])
      del rows[:size]
  assert not rows


def documented(kind, path, n=None, dtype="float32"):
  """Runs the lines that the documentation has for a format.

  Returns:
    The names they define.
  """
  blocks = re.findall("(?:^    .*\n)+", feature_files.__doc__, re.MULTILINE)
  (block,) = [b for b in blocks if f'"out.{kind}"' in b]
  code = "\n".join(line[4:] for line in block.splitlines())
  code = code.replace(f'"out.{kind}"', "path").replace("LAYERS", "2")
  code = code.replace("tf.float32", f"tf.{dtype}")
  names = {
    "path": str(path),
    "n": n,
    "np": np,
    "tf": tf,
    "h5py": h5py,
    "pyarrow": pyarrow,
    "json": json,
  }
  exec(code, names)
  return names


class TestJsonLines:
  def test_is_the_originals(self, tmp_path, found, extractor, golden_lines):
    path = tmp_path / "out.jsonl"
    write(path, found, extractor)
    lines = path.read_text("utf-8").splitlines()
    for line, expected in zip(lines, golden_lines, strict=True):
      line = json.loads(line)
      assert line.keys() == expected.keys()
      assert line["linex_index"] == expected["linex_index"]
      pairs = zip(line["features"], expected["features"], strict=True)
      for feature, other in pairs:
        assert feature.keys() == other.keys()
        assert feature["token"] == other["token"]
        layers = zip(feature["layers"], other["layers"], strict=True)
        for layer, golden in layers:
          assert layer.keys() == golden.keys()
          assert layer["index"] == golden["index"]
          np.testing.assert_allclose(
            layer["values"], golden["values"], rtol=0, atol=1e-5
          )

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
    line = feature_files._json_line(7, row, (-1,))
    expected = [round(float(x), 6) for x in vector]
    assert json.loads(line) == {"linex_index": 7, "vector": expected}
    assert line.endswith(b"\n")

  @given(token=TOKENS)
  def test_tokens_of_any_characters(self, token):
    values = np.ones([1, 1, 1], np.float32)
    row = features.Features([token], [], values, None, False)
    (feature,) = json.loads(feature_files._json_line(0, row, (-1,)))["features"]
    assert feature["token"] == token

  def test_gzip(self, tmp_path, found, extractor):
    write(tmp_path / "out.jsonl", found, extractor)
    write(tmp_path / "out.jsonl.gz", found, extractor)
    content = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes())
    assert content == (tmp_path / "out.jsonl").read_bytes()

  def test_vectors(self, goldens, tmp_path, pooling, golden_lines):
    path = tmp_path / "out.jsonl"
    (texts,) = feature_files.read_texts(str(goldens / "extract_input.txt"))
    write(path, pooling(texts), pooling)
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    for line, golden in zip(lines, golden_lines, strict=True):
      assert line.keys() == {"linex_index", "vector"}
      assert line["linex_index"] == golden["linex_index"]
      highest = [f["layers"][0]["values"] for f in golden["features"]]
      np.testing.assert_allclose(
        line["vector"], np.mean(highest, axis=0), rtol=0, atol=1e-5
      )


class TestBinary:
  @pytest.mark.parametrize("dtype", DTYPES)
  @pytest.mark.parametrize("kind", BINARY)
  def test_reads_back_as_the_documentation_says(
    self, tmp_path, found, extractor, golden_lines, kind, dtype
  ):
    path = tmp_path / f"out.{kind}"
    write(path, found, extractor, dtype)
    # Numbers to 4 have 10 bits after the leading one.
    tolerance = {"float32": 1e-5, "float16": 2**-9}[dtype]
    for n, line in enumerate(golden_lines):
      if kind == "tfrecord" and n + 1 < len(golden_lines):
        continue  # The documentation's loop leaves the last line's values.
      names = documented(kind, path, n, dtype)
      expected = [
        [layer["values"] for layer in feature["layers"]]
        for feature in line["features"]
      ]
      values = np.asarray(names["values"])
      assert values.dtype == dtype
      np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
      if kind != "tfrecord":
        tokens = [feature["token"] for feature in line["features"]]
        assert list(names["tokens"]) == tokens

  @pytest.mark.parametrize("kind", ["npz", "hdf5"])
  def test_columns(self, tmp_path, found, extractor, kind):
    path = tmp_path / f"out.{kind}"
    write(path, found, extractor)
    h = np.load(path) if kind == "npz" else h5py.File(path)
    with h:
      layers = h["layers"] if kind == "npz" else h.attrs["layers"]
      assert list(layers) == [-1, -2]
      offsets, words = h["offsets"][:], h["word_offsets"][:]
      places = h["orig_to_tok_map"][:]
      assert len(h["tokens"]) == len(h["values"]) == offsets[-1]
      for n, row in enumerate(found):
        assert offsets[n + 1] - offsets[n] == len(row.tokens)
        assert list(places[words[n] : words[n + 1]]) == row.orig_to_tok_map
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

  @pytest.mark.parametrize("name", ["out.tfrecord", "out.tfrecord.gz"])
  def test_tfrecord(self, tmp_path, found, extractor, name):
    write(tmp_path / name, found, extractor)
    kind = "GZIP" if name.endswith(".gz") else None
    records = list(tf.data.TFRecordDataset(str(tmp_path / name), kind))
    for n, (record, row) in enumerate(zip(records, found, strict=True)):
      feature = tf.train.Example.FromString(record.numpy()).features.feature
      assert list(feature["linex_index"].int64_list.value) == [n]
      assert list(feature["layers"].int64_list.value) == [-1, -2]
      tokens = [t.decode() for t in feature["tokens"].bytes_list.value]
      assert tokens == row.tokens
      places = list(feature["orig_to_tok_map"].int64_list.value)
      assert places == row.orig_to_tok_map
      (values,) = feature["values"].bytes_list.value
      values = tf.io.parse_tensor(values, tf.float32)
      np.testing.assert_array_equal(values, row.values)

  @pytest.mark.parametrize("dtype", DTYPES)
  def test_vectors(self, tmp_path, pooling, dtype):
    rows = pooling(["the", "the game", "", "was"])
    expected = np.stack([row.vector for row in rows]).astype(dtype)
    for kind in BINARY:
      write(tmp_path / f"out.{kind}", rows, pooling, dtype)
    with np.load(tmp_path / "out.npz") as z:
      assert set(z.files) == {"vectors", "layers"}
      arrays = [z["vectors"]]
    with h5py.File(tmp_path / "out.hdf5") as h:
      arrays.append(h["vectors"][:])
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    rows = [row.values.to_numpy() for row in table["vectors"]]
    arrays.append(np.stack(rows))
    spec = {"vectors": tf.io.FixedLenFeature([], tf.string)}
    vectors = []
    for record in tf.data.TFRecordDataset(str(tmp_path / "out.tfrecord")):
      serialized = tf.io.parse_single_example(record, spec)["vectors"]
      vectors.append(tf.io.parse_tensor(serialized, dtype).numpy())
    for array in [*arrays, np.stack(vectors)]:
      assert array.dtype == dtype
      np.testing.assert_array_equal(array, expected)

  @pytest.mark.parametrize("kind", ["npz", "parquet", "tfrecord"])
  def test_equal_runs_write_equal_files(self, tmp_path, found, extractor, kind):
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in paths:
      write(path, found, extractor)
    assert paths[0].read_bytes() == paths[1].read_bytes()

  @pytest.mark.parametrize("kind", feature_files.FORMATS)
  def test_what_fails_leaves_nothing(self, tmp_path, found, extractor, kind):
    path = tmp_path / f"out.{kind}"
    layout = feature_files.layout_of(extractor)

    def write_a_part():
      with feature_files.open_features(str(path), kind, layout) as append:
        append(found)
        assert not path.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
      write_a_part()
    assert os.listdir(tmp_path) == []


class TestLines:
  def read(self, content, path):
    path.write_bytes(content)
    return list(itertools.chain(*feature_files.read_texts(str(path))))

  @pytest.mark.parametrize(
    ("line", "text"),
    [
      ("a b", "a b"),
      ("  a \t", "a"),
      ("a ||| b", ("a", "b")),
      ("a ||| b ||| c", ("a ||| b", "c")),
      ("a  |||  b", ("a ", " b")),
      ("a |||", "a |||"),
      ("||| b", "||| b"),
      ("a |||b", "a |||b"),
      ("a||| b", "a||| b"),
      ("||| ||| ", "||| |||"),
      ("", ""),
    ],
  )
  def test_a_line(self, line, text):
    assert feature_files.parse_line(line) == text

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
  @pytest.mark.parametrize("size", [1, 3, 2**20])
  def test_files(self, monkeypatch, tmp_path, content, texts, size):
    monkeypatch.setattr(text_files, "_CHUNK_BYTES", size)
    content = content.encode()
    assert self.read(content, tmp_path / "in.txt") == texts
    assert self.read(gzip.compress(content), tmp_path / "in.txt.gz") == texts

  def test_parts_are_bounded(self, monkeypatch, tmp_path):
    monkeypatch.setattr(inputs, "SORTED_ROWS", 3)
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{n}\n" for n in range(8)))
    parts = list(feature_files.read_texts(str(path)))
    assert parts == [["0", "1", "2"], ["3", "4", "5"], ["6", "7"]]

  def test_a_pipe_is_read_as_it_comes(self, monkeypatch):
    reading, writing = os.pipe()
    with (
      open(reading, "rb") as reader,
      open(writing, "wb", buffering=0) as writer,
    ):
      monkeypatch.setattr("sys.stdin", io.TextIOWrapper(reader))
      # What waits for more than there is would wait for ever.
      watch = threading.Timer(20, writer.close)
      watch.start()
      texts = feature_files.read_texts("-")
      writer.write(b"a\nb ||| c\nd")
      assert next(texts) == ["a", ("b", "c")]
      writer.write(b"e\n")
      assert next(texts) == ["de"]
      assert not writer.closed
      writer.close()
      assert list(texts) == []
      watch.cancel()

  @pytest.mark.parametrize(
    ("name", "content", "message"),
    [
      ("in.txt", b"", "in.txt holds no line; pass texts"),
      ("in.txt", b"a\nb\xe9\n", "in.txt:2: byte 1 of the line is not UTF-8"),
      (
        "in.gz",
        gzip.compress(b"a\n" * 99, mtime=0)[:-9],
        "in.gz is not a whole gzip",
      ),
      ("in.gz", b"a\nb\n", "in.gz is not a whole gzip file"),
    ],
  )
  def test_damaged_files(self, tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
      self.read(content, tmp_path / name)

  def test_closed_standard_input(self, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="standard input is closed"):
      list(feature_files.read_texts("-"))


class TestOutput:
  @pytest.mark.parametrize(
    ("path", "kind"),
    [
      ("a.jsonl", "jsonl"),
      ("a.JSONL.gz", "jsonl"),
      ("a.npz", "npz"),
      ("a.h5", "hdf5"),
      ("a.hdf5", "hdf5"),
      ("a.parquet", "parquet"),
      ("a.tfrecord", "tfrecord"),
      ("a.tfrecord.gz", "tfrecord"),
      ("a.tf_record", "tfrecord"),
      ("npz/a", "jsonl"),
      ("-", "jsonl"),
    ],
  )
  def test_format(self, path, kind):
    assert feature_files.format_of(path) == kind
    feature_files.check_output(path, kind, "float32")

  @pytest.mark.parametrize(
    ("arguments", "message"),
    [
      (("-", "npz", "float32"), "standard output takes jsonl"),
      (("a.npz.gz", "npz", "float32"), "cannot be .gz"),
      (("a", "jsonl", "float16"), "--dtype=float16 means nothing"),
      (("gs://a/b.h5", "hdf5", "float32"), "needs a local file"),
    ],
  )
  def test_what_cannot_be_written(self, arguments, message):
    with pytest.raises(ValueError, match=message):
      feature_files.check_output(*arguments)

  @pytest.mark.parametrize(
    ("kind", "package"), [("hdf5", "h5py"), ("parquet", "pyarrow")]
  )
  def test_a_missing_package(self, monkeypatch, kind, package):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"needs the package {package}; inst"):
      feature_files.check_output("a", kind, "float32")
