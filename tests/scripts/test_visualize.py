"""visualize.py, and maps of vectors, against arithmetic."""

import base64
import json
import re
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest
import scripts
import tensorflow as tf
from matplotlib import figure

import modeling
import tokenization
import variables
import visualize
from reports import embedding_map
from training import checkpoints, model_folder

SENTENCES = ["the cat sat", "a dog ran", "it was late", "the end", "no more"]


@pytest.fixture(scope="module")
def flags(goldens):
  model = goldens / "model"
  return [
    f"--vocab_file={goldens / 'vocab.txt'}",
    f"--bert_config_file={model / 'bert_config.json'}",
    f"--init_checkpoint={model / 'bert_model.ckpt'}",
  ]


@pytest.fixture
def sentences(tmp_path):
  path = tmp_path / "sentences.txt"
  path.write_text("\n\n".join(SENTENCES) + "\n", "utf-8")
  return path


def _bert(goldens, ids, segment_ids):
  """The golden model's reading of a row of ids."""
  model = goldens / "model"
  config = modeling.BertConfig.from_json_file(str(model / "bert_config.json"))
  weights = checkpoints.Checkpoint(str(model / "bert_model.ckpt"))
  with variables.VariableStore(initial_values=weights):
    return modeling.BertModel(
      config, False, tf.constant([ids]), None, tf.constant([segment_ids])
    )


def _ids(goldens, tokens):
  vocab = (goldens / "vocab.txt").read_text("utf-8").split("\n")
  return [vocab.index(token) for token in tokens]


def test_attention_of_a_pair(tmp_path, goldens, flags):
  path = tmp_path / "attention.html"
  out, _ = scripts.fork(
    "visualize.py",
    "attention",
    "--text=The cat <sat>",
    "--text_b=It was late",
    f"--output_file={path}",
    *flags,
  )
  content = path.read_text("utf-8")
  assert '<p class="said" dir="auto">The cat &lt;sat&gt;</p>' in content
  shown = json.loads(re.search(r'id="attention">(.*?)</script>', content)[1])
  first = shown["tokens"].index("[SEP]") + 1
  tokens = shown["tokens"]
  assert (
    "".join(tokens).replace("##", "") == "[CLS]thecat<sat>[SEP]itwaslate[SEP]"
  )
  assert shown["segments"] == [0] * first + [1] * (len(tokens) - first)
  model = _bert(goldens, _ids(goldens, tokens), shown["segments"])
  expected = np.concatenate(model.get_all_attention_probs())
  packed = zlib.decompress(base64.b64decode(shown["weights"]))
  weights = np.frombuffer(packed, "<f4").reshape(expected.shape)
  np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-6)
  np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=0, atol=1e-5)
  layers, heads = expected.shape[:2]
  assert f"{len(tokens)} tokens, {layers} layers of {heads} heads" in out


def test_attention_is_computed_once(goldens, monkeypatch):
  calls = []
  softmax = tf.nn.softmax
  monkeypatch.setattr(
    tf.nn, "softmax", lambda x: calls.append(x.shape) or softmax(x)
  )
  folder = goldens / "model"
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  tokenizer = tokenization.FullTokenizer(str(goldens / "vocab.txt"), True)
  model = model_folder.Model(config, tokenizer, str(folder / "bert_model.ckpt"))
  tokens = ["[CLS]", "the", "end", "[SEP]"]
  found = visualize.attention_probs(model, tokens, [0, 0, 0, 1])
  # The position of [CLS] stands apart in the last layer.
  assert len(calls) == config.num_hidden_layers + 1
  bert = _bert(goldens, _ids(goldens, tokens), [0, 0, 0, 1])
  expected = np.concatenate(bert.get_all_attention_probs())
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_help_lists_the_flags_of_the_model():
  # Flags are listed by the module that runs, which a fork's is not.
  known = subprocess.run(
    [sys.executable, str(scripts.ROOT / "visualize.py"), "--help"],
    capture_output=True,
    text=True,
  ).stdout
  listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", known, re.MULTILINE))
  assert listed >= {
    "text",
    "input_file",
    "vocab_file",
    "bert_config_file",
    "init_checkpoint",
    "do_lower_case",
    "max_seq_length",
    "precision",
  }


def test_embeddings_with_labels(tmp_path, goldens, flags):
  labels = ["pets", "pets", "rest", "rest", "rest"]
  lines = map("\t".join, zip(labels, SENTENCES, strict=True))
  source, out = tmp_path / "in.txt", tmp_path / "new" / "map"
  source.write_text("\r\n".join(lines), "utf-8")
  scripts.fork(
    "visualize.py",
    "embeddings",
    f"--input_file={source}",
    f"--output_dir={out}",
    "--labels",
    *flags,
  )
  assert {path.name for path in out.iterdir()} == {*embedding_map.FILES}
  head, *rows = (out / "metadata.tsv").read_text("utf-8").splitlines()
  assert head == "label\ttext"
  assert rows == source.read_text("utf-8").splitlines()
  vectors = np.loadtxt(out / "tensors.tsv", delimiter="\t")
  # Words of the vocabulary, each a piece of its own.
  tokens = ["[CLS]", "the", "end", "[SEP]"]
  model = _bert(goldens, _ids(goldens, tokens), [0] * 4)
  expected = np.mean(model.get_sequence_output()[0], axis=0)
  np.testing.assert_allclose(vectors[3], expected, rtol=0, atol=1e-5)


def test_embeddings_by_tsne(tmp_path, flags, sentences):
  out, _ = scripts.fork(
    "visualize.py",
    "embeddings",
    f"--input_file={sentences}",
    f"--output_dir={tmp_path / 'map'}",
    "--method=tsne",
    *flags,
  )
  assert "5 sentences" in out
  assert f"tensorboard --logdir={tmp_path / 'map'}" in out
  metadata = (tmp_path / "map" / "metadata.tsv").read_text("utf-8")
  assert metadata.splitlines() == SENTENCES


ATTENTION = {"text": "the cat", "output_file": "out.html"}
EMBEDDINGS = {"input_file": "sentences.txt", "output_dir": "map"}


def _refused(*arguments):
  """The one line that a command ends with."""
  (line,) = scripts.fork("visualize.py", *arguments, status=2)[1].splitlines()
  return line


@pytest.mark.parametrize("name", embedding_map.FILES)
def test_a_map_does_not_replace_what_it_is_of(tmp_path, flags, name):
  source = tmp_path / name
  source.write_text("\n".join(SENTENCES), "utf-8")
  changes = [f"--input_file={source}", f"--output_dir={tmp_path}"]
  line = _refused("embeddings", *flags, *changes)
  assert line.startswith(f"error: --output_dir={tmp_path}: {source} is read")
  assert source.read_text("utf-8") == "\n".join(SENTENCES)


def test_a_page_does_not_replace_the_model(tmp_path, goldens, flags):
  for path in (goldens / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, tmp_path)
  index = tmp_path / "bert_model.ckpt.index"
  before = scripts.tree(tmp_path)
  changes = [f"--output_file={index}", f"--init_checkpoint={tmp_path}"]
  line = _refused("attention", "--text=the", *flags, *changes)
  assert line.startswith(f"error: --output_file={index}: {index} is read from")
  assert scripts.tree(tmp_path) == before


@pytest.mark.parametrize(
  ("command", "changes", "message"),
  [
    (None, {}, "visualize.py attention or embeddings"),
    ("attend", {}, "attention|embeddings"),
    ("attention", {"text": ""}, "--text is missing or empty"),
    ("attention", {"text": " \u200b"}, "holds nothing to read"),
    ("attention", {"text_b": ""}, "--text_b='' holds nothing to read"),
    ("attention", {"text": "cat " * 99}, "more than --max_seq_length=128"),
    ("attention", {"max_seq_length": 129}, "128 positions"),
    ("attention", {"output_file": "no/out.html"}, "there is no folder no"),
    ("attention", {"output_file": "."}, "'.' is no file"),
    ("attention", {"output_file": None}, "--output_file is missing"),
    ("attention", {"method": "pca"}, "--method is a flag of embeddings"),
    ("attention", {"vocab_file": "none"}, "--vocab_file=none is no file"),
    ("attention", {"init_checkpoint": "none"}, "no checkpoint none"),
    ("embeddings", {"text": "a"}, "--text is a flag of attention"),
    ("embeddings", {"input_file": "none"}, "--input_file=none is no file"),
    ("embeddings", {"input_file": "two.txt"}, "two.txt holds 2 sentences"),
    ("embeddings", {"input_file": "same.txt"}, "all vectors are equal"),
    ("embeddings", {"input_file": "latin.txt"}, "latin.txt:2: byte 7"),
    ("embeddings", {"labels": "true"}, "sentences.txt:1: 'the cat sat' is not"),
    ("embeddings", {"output_dir": "two.txt"}, "two.txt is not a folder"),
    ("embeddings", {"method": "umap"}, "pca|tsne"),
  ],
)
def test_bad_input_is_one_line(
  tmp_path, flags, sentences, command, changes, message
):
  (tmp_path / "two.txt").write_text("one\n \ntwo\n")
  (tmp_path / "same.txt").write_text("the same\n" * 4)
  (tmp_path / "latin.txt").write_bytes(b"cat\ncaf\xe9\n")
  before = scripts.tree(tmp_path)
  values = ATTENTION if command == "attention" else EMBEDDINGS
  values = dict(flag[2:].split("=", 1) for flag in flags) | values | changes
  given = [f"--{k}={v}" for k, v in values.items() if v is not None]
  _, error = scripts.fork(
    "visualize.py",
    *([command] if command else []),
    *given,
    status=2,
    cwd=tmp_path,
  )
  lines = [line for line in error.splitlines() if " visualize.py:" not in line]
  assert len(lines) == 1, error
  assert lines[0].startswith("error: ")
  assert message in lines[0]
  assert scripts.tree(tmp_path) == before


class TestProject:
  def test_pca_keeps_a_plane(self):
    # Points of a plane keep their distances; 4 and 1 are its variances.
    plane = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]]) * np.sqrt(2)
    turned, _ = np.linalg.qr(np.random.default_rng(0).normal(size=[7, 2]))
    points, axes = embedding_map.project(plane @ turned.T + 3.0)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    expected = np.linalg.norm(plane[:, None] - plane, axis=-1)
    np.testing.assert_allclose(distances, expected, atol=1e-12)
    assert axes == (
      "component 1 (80% of the variance)",
      "component 2 (20% of the variance)",
    )

  @pytest.mark.parametrize(("rows", "perplexity"), [(3, "0.667"), (120, "30")])
  def test_tsne_suits_its_perplexity(self, rows, perplexity):
    vectors = np.random.default_rng(0).normal(size=[rows, 8])
    points, axes = embedding_map.project(vectors, "tsne", seed=3)
    again, _ = embedding_map.project(vectors, "tsne", seed=3)
    assert points.shape == (rows, 2)
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points, again)
    assert axes[0] == f"t-SNE, perplexity {perplexity}"

  def test_tsne_keeps_what_is_near(self):
    rng = np.random.default_rng(0)
    centres = np.repeat(100 * np.eye(3, 20), 10, axis=0)
    points, _ = embedding_map.project(
      centres + rng.normal(size=centres.shape), "tsne"
    )
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    assert (nearest // 10 == np.arange(30) // 10).all()

  @pytest.mark.parametrize(
    ("vectors", "method", "message"),
    [
      (np.ones([2, 4]), "pca", "2 sentences cannot be mapped"),
      (np.ones([4, 4]), "tsne", "all vectors are equal"),
      (np.full([4, 4], np.nan), "pca", "not finite"),
      (np.eye(4), "umap", "pca, tsne"),
    ],
  )
  def test_what_has_no_map(self, vectors, method, message):
    with pytest.raises(ValueError, match=message):
      embedding_map.project(vectors, method)


def _chart(texts, labels=None, path=""):
  """The points of a chart that is written, to `path` if `drawn` does not."""
  points = np.random.default_rng(0).normal(size=[len(texts), 2])
  embedding_map.write_chart(str(path), points, ("x", "y"), texts, labels)
  return points


@pytest.fixture
def drawn(monkeypatch):
  """The figures that are drawn, in place of files."""
  figures = []
  monkeypatch.setattr(
    figure.Figure, "savefig", lambda self, *args, **kwargs: figures.append(self)
  )
  monkeypatch.setattr(checkpoints, "write_file", lambda path, content: None)
  return figures


def _names(chart):
  """The annotations of a figure by what they say."""
  return {name.get_text(): name for name in chart.axes[0].texts}


# Chemistry, a formula, from the right, without glyphs, and much too long.
TEXTS = ["H2O", "$x_1", "שלום", "東京", "👍", "a\tb\n", "long " * 50, ""]


class TestChart:
  def test_any_text(self, tmp_path):
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path, labels in zip(paths, (TEXTS, TEXTS, None), strict=True):
      _chart(TEXTS, labels, path)
    png, again, plain = (path.read_bytes() for path in paths)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert png == again
    assert png != plain

  def test_the_legend_names_every_label(self, drawn):
    labels = ["_neg", "pos", "", "_neg"]
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    embedding_map.write_chart("", points, ("x", "y"), "abcd", labels)
    legend = drawn[0].axes[0].get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["_neg", "pos", "(none)"]
    colors = [line.get_color() for line in legend.get_lines()]
    drawn_in = [line.get_color() for line in drawn[0].axes[0].get_lines()]
    assert colors == drawn_in

  def test_it_has_a_title_where_the_font_has_it(self, drawn):
    points = np.eye(3, 2)
    for title in ("my $x_1.txt", "東京.txt"):
      embedding_map.write_chart("", points, ("x", "y"), "abc", title=title)
    assert [f.axes[0].get_title(loc="left") for f in drawn] == [
      "my $x_1.txt",
      "",
    ]

  def test_each_of_few_points_is_named(self, drawn):
    texts = [f"text {n}" for n in range(40)]
    _chart(texts)
    assert sorted(_names(drawn[0])) == sorted(texts)

  @pytest.mark.parametrize("labels", [None, [f"label {n}" for n in range(500)]])
  def test_some_of_many_points_are_named(self, drawn, labels):
    texts = [f"text {n}, which goes on and on" for n in range(500)]
    points = _chart(texts, labels)
    names = _names(drawn[0])
    assert len(names) == 20
    boxes = []
    for name, annotation in names.items():
      place = int(re.match(r"text (\d+), ", name)[1])
      assert name == texts[place][:27] + "…"
      np.testing.assert_array_equal(annotation.xy, points[place])
      boxes.append(annotation.get_window_extent())
    frame = drawn[0].axes[0].get_window_extent()
    for n, box in enumerate(boxes):
      assert frame.count_contains(box.corners()) == 4
      assert box.count_overlaps(boxes[n + 1 :]) == 0
    # They are spread out: none is far from all, and they are far apart.
    named = np.array([annotation.xy for annotation in names.values()])
    away = np.linalg.norm(points[:, None] - named, axis=-1).min(axis=1)
    assert away.max() < np.ptp(points, axis=0).max() / 4

  def test_equal_points_are_named_once(self, drawn):
    points = np.repeat(np.eye(3, 2), 30, axis=0)
    texts = [f"text {n}" for n in range(90)]
    embedding_map.write_chart("", points, ("x", "y"), texts)
    places = {int(name.split()[1]) // 30 for name in _names(drawn[0])}
    assert places == {0, 1, 2}
    assert len(_names(drawn[0])) == 3


class TestProjector:
  def test_files_as_tensorboard_reads_them(self, tmp_path):
    vectors = np.random.default_rng(0).normal(size=[8, 5]).astype(np.float32)
    embedding_map.write_projector(str(tmp_path), vectors, TEXTS)
    tensors = (tmp_path / "tensors.tsv").read_text().split("\n")[:-1]
    read = np.array([row.split("\t") for row in tensors]).astype(np.float32)
    np.testing.assert_allclose(read, vectors, rtol=1e-7)
    # One column has no heading; a row each, whatever a text holds.
    metadata = (tmp_path / "metadata.tsv").read_text("utf-8").split("\n")
    assert metadata[:6] == ["H2O", "$x_1", "שלום", "東京", "👍", "a b"]
    assert len(metadata) == len(TEXTS) + 1
    config = (tmp_path / "projector_config.pbtxt").read_text()
    for key in ("tensor_path", "metadata_path"):
      name = re.search(rf'^  {key}: "(.+)"$', config, re.MULTILINE)[1]
      assert (tmp_path / name).exists()

  def test_a_killed_run_names_no_mixture(self, tmp_path, monkeypatch):
    embedding_map.write_projector(str(tmp_path), np.eye(3), "abc")
    config = tmp_path / "projector_config.pbtxt"
    assert config.exists()

    def killed(path, content):
      raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "write_file", killed)
    with pytest.raises(KeyboardInterrupt):
      embedding_map.write_projector(str(tmp_path), np.eye(4), "abcd")
    assert not config.exists()

  def test_labels_have_a_column_with_a_heading(self, tmp_path):
    embedding_map.write_projector(
      str(tmp_path), np.eye(3), ["a", "b\tc", ""], ["x", "", "x\ty"]
    )
    metadata = (tmp_path / "metadata.tsv").read_text()
    assert metadata == "label\ttext\nx\ta\n \tb c\nx y\t \n"
