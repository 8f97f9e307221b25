"""A model for an extended vocabulary, and the script that makes it."""

import re

import numpy as np
import pytest
import scripts
import tiny_task

from bert.data import vocabulary
from bert.errors import UserError
from bert.models import checkpoints, extended_model
from bert.models.resolve import resolve

WORD = "word_embeddings"


@pytest.fixture
def old(goldens):
  return (goldens / "vocab.txt").read_text("utf-8").split("\n")[:-1]


def test_a_new_embedding_is_the_mean_of_its_pieces(tmp_path, golden, old):
  replaced = {"thecity": ["the", "##city"], "ofthe": ["of", "the", "##e"]}
  old = [*old, "##city"] if "##city" not in old else old
  config = golden.config
  assert config.vocab_size >= len(old) - 1
  old = old[: config.vocab_size]
  replaced = {
    piece: [part for part in parts if part in old]
    for piece, parts in replaced.items()
  }
  (tmp_path / "in").mkdir()
  before = checkpoints.Checkpoint(golden.checkpoint)
  values = {name: before[name] for name in before.shapes}
  contents = {"bert_config.json": config.to_json_string()}
  checkpoints.write_release(str(tmp_path / "in"), values, contents)
  pieces = vocabulary.extend_vocabulary(old, list(replaced))
  out = tmp_path / "out"
  extended_model.write_extended_model(
    str(tmp_path / "in"), str(out), old, pieces, replaced
  )
  model = resolve(str(out))
  size = max(config.vocab_size, len(pieces))
  assert model.config.vocab_size == size
  assert list(model.tokenizer.vocab) == pieces
  after = checkpoints.Checkpoint(checkpoints.find_checkpoint(str(out)))
  index = {piece: number for number, piece in enumerate(old)}
  for name in before.shapes:
    if name.endswith((WORD, "predictions/output_bias")):
      assert after[name].shape == (size, *before[name].shape[1:])
      for number, piece in enumerate(pieces):
        rows = [index[part] for part in replaced.get(piece, [piece])]
        expected = before[name][rows].mean(axis=0)
        np.testing.assert_allclose(after[name][number], expected, rtol=1e-6)
    else:
      np.testing.assert_array_equal(after[name], before[name])


@pytest.fixture
def cased(tmp_path, golden):
  """A model that reads text as it is."""
  checkpoint = checkpoints.Checkpoint(golden.checkpoint)
  values = {name: checkpoint[name] for name in checkpoint.shapes}
  contents = {"bert_config.json": golden.config.to_json_string()}
  folder = tmp_path / "cased_L-12_H-768_A-12"
  folder.mkdir()
  checkpoints.write_release(str(folder), values, contents)
  return str(folder)


def test_the_casing_is_kept(tmp_path, cased, old):
  out = str(tmp_path / "out")
  extended_model.write_extended_model(cased, out, old, old, {}, False)
  assert resolve(out).tokenizer.tokenize("The")[0] != "the"
  again = str(tmp_path / "again")
  with pytest.raises(UserError, match="--do_lower_case=True contradicts"):
    extended_model.write_extended_model(out, again, old, old, {}, True)


def test_the_script_shortens_the_words_of_a_domain(tmp_path, goldens):
  files = tiny_task.make_files(tmp_path, goldens)
  line = "immunotherapy helps patients with lymphoma"
  tiny_task.write_lines(tmp_path / "text.txt", [line] * 60)
  vocab = files / "model" / "vocab.txt"
  command = (
    "build_vocab.py",
    f"--extend={vocab}",
    "--num_new=5",
    f"--input_file={tmp_path}/text.txt",
    f"--init_checkpoint={files}/model/bert_model.ckpt",
    f"--output_dir={tmp_path}/out",
  )
  printed, _ = scripts.fork(*command)
  before, after = map(float, re.findall(r"([\d.]+) pieces per word", printed))
  assert after < before
  tokenizer = resolve(str(tmp_path / "out")).tokenizer
  found = tokenizer.tokenize(line)
  assert "immunotherapy" in found
  assert len(found) == pytest.approx(after * 5)
  assert "vocab.txt: 5 new pieces, " in printed
  # A line that no piece uses may be another one.
  lines = vocab.read_text("utf-8").splitlines()
  free = next(n for n, line in enumerate(lines) if line.startswith("[unused"))
  lines[free] = "inserted"
  other = tmp_path / "other.txt"
  tiny_task.write_lines(other, lines)
  flags = f"--extend={other}", *command[2:-1], f"--output_dir={tmp_path}/new"
  scripts.fork(command[0], *flags)
  assert (tmp_path / "new" / "bert_model.ckpt.index").exists()
  output = f"--output_file={tmp_path}/vocab.txt"
  few, _ = scripts.fork(*command[:2], "--num_new=500", command[3], output)
  assert re.search(r": \d+ new pieces \(no other word of several", few)
