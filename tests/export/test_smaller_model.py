"""Students that keep some layers, or some word pieces, of a model."""

import json
import shutil

import families
import numpy as np
import pytest
import scripts
import task_folders
import tokenizers

import bert
import modeling
from bert import variables
from bert.commands import convert_checkpoint
from bert.errors import UserError
from bert.export import huggingface, smaller_model
from bert.models import checkpoints, model_folder
from bert.models.resolve import resolve
from bert.tasks.pretraining import task as pretraining


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, golden, goldens):
  """A release with two layers, 1,001 pieces and the pre-training heads."""
  folder = tmp_path_factory.mktemp("teacher")
  return task_folders.write(folder, "", golden, goldens)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  path = tmp_path_factory.mktemp("corpus") / "text.txt"
  lines = ["Jim Henson was a puppeteer.", "", "the north \u2603 of the city"]
  path.write_text("\n".join(lines), encoding="utf-8")
  return path


def _weights(folder):
  return checkpoints.Checkpoint(checkpoints.find_checkpoint(str(folder)))


def test_layers_are_kept_in_order(teacher, tmp_path):
  smaller_model.write_smaller(teacher, str(tmp_path / "new"), ["1"])
  before, after = map(_weights, (teacher, tmp_path / "new"))
  assert model_folder.load_config(str(tmp_path / "new")).num_hidden_layers == 1
  assert all("layer_1" not in name for name in after.shapes)
  for name in after.shapes:
    source = name.replace("layer_0", "layer_1")
    np.testing.assert_array_equal(after[name], before[source])


def test_the_lowest_layers_compute_as_they_did(teacher, tmp_path):
  text = ["the north of the city", "Jim"]
  smaller_model.write_smaller(teacher, str(tmp_path / "new"), ["0"])
  whole = bert.load(teacher, pooling="mean", layers=(0,))
  lowest = bert.load(str(tmp_path / "new"), pooling="mean")
  for a, b in zip(whole(text), lowest(text), strict=True):
    np.testing.assert_allclose(a["vector"], b["vector"], atol=1e-6)


def test_a_text_of_the_corpus_gives_the_same_numbers(teacher, corpus, tmp_path):
  smaller_model.write_smaller(
    teacher, str(tmp_path / "new"), corpus=[str(corpus)]
  )
  old, new = bert.load(teacher), bert.load(str(tmp_path / "new"))
  size = new.config.vocab_size
  assert size == len(new.task.tokenizer.vocab) < old.config.vocab_size / 2
  lines = corpus.read_text("utf-8").split("\n")
  for line in lines:
    tokens = old.task.tokenizer.tokenize(line)
    assert new.task.tokenizer.tokenize(line) == tokens
  for a, b in zip(old(lines), new(lines), strict=True):
    np.testing.assert_array_equal(a["vector"], b["vector"])
  # Of the masked-word head, the rows of the pieces that are left.
  before, after = map(_weights, (teacher, tmp_path / "new"))
  ids = [old.task.tokenizer.vocab[piece] for piece in new.task.tokenizer.vocab]
  name = "cls/predictions/output_bias"
  np.testing.assert_array_equal(after[name], before[name][ids])
  masked = [bert.load(m.folder, task="fill_mask", top_k=3) for m in (old, new)]
  assert all(model("the [MASK] of the city") for model in masked)


def test_other_words_of_its_characters_are_known(teacher, corpus, tmp_path):
  smaller_model.write_smaller(
    teacher, str(tmp_path / "new"), corpus=[str(corpus)]
  )
  tokenizer = bert.load(str(tmp_path / "new")).task.tokenizer
  assert "[UNK]" not in tokenizer.tokenize("hint")
  assert tokenizer.tokenize("hint") != ["hint"]


def test_layers_that_share_weights_stay(goldens, tmp_path):
  albert = str(goldens / "variants" / "albert" / "Model")
  huggingface.to_tensorflow(albert, str(tmp_path / "albert"))
  with pytest.raises(UserError, match="has 0 layers with weights of its own"):
    smaller_model.write_smaller(
      str(tmp_path / "albert"), str(tmp_path / "new"), ["0"]
    )


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_other_families_with_word_pieces(goldens, corpus, tmp_path, family):
  folder = str(goldens / "variants" / family / "Model")
  huggingface.to_tensorflow(folder, str(tmp_path / "whole"))
  smaller_model.write_smaller(
    str(tmp_path / "whole"), str(tmp_path / "new"), corpus=[str(corpus)]
  )
  old, new = bert.load(folder), bert.load(tmp_path / "new")
  lines = corpus.read_text("utf-8").split("\n")
  for a, b in zip(old(lines), new(lines), strict=True):
    np.testing.assert_allclose(a["vector"], b["vector"], atol=1e-6)


# Families whose tokenizer.json has no word pieces.
WHOLE = ("roberta", "xlm-roberta", "albert")

# With an unknown character, and words that begin behind a mask.
LINES = [
  *("The old bridge over the river", "Who wrote it? \u2603x", "the city"),
  *("the <mask>time", "the [MASK]time", "The [MASK]north."),
]


def _change_nothing(tokenizer, config):
  """The files as they are."""


def _write_as_before(tokenizer, config):
  """As earlier versions of the library, and RoBERTa's own file, write it."""
  tokenizer["model"]["merges"] = [
    " ".join(pair) for pair in tokenizer["model"]["merges"]
  ]
  ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
  options = {"trim_offsets": True, "add_prefix_space": False}
  tokenizer["post_processor"] = {"type": "RobertaProcessing", **ends, **options}


def _move_padding(tokenizer, config):
  """Padding behind a piece that no text needs. Positions count from there."""
  vocab = tokenizer["model"]["vocab"]
  vocab["<pad>"], vocab["<unk>"] = vocab["<unk>"], vocab["<pad>"]
  tokenizer["added_tokens"] = [
    {**token, "id": vocab[token["content"]]}
    for token in tokenizer["added_tokens"]
    if token["content"] != "<unk>"
  ]
  for settings, name in (
    (tokenizer["padding"], "pad_id"),
    (config, "pad_token_id"),
  ):
    settings[name] = vocab["<pad>"]


def _shrink(folder, family, change, lines):
  """The folders of a golden model, changed, and of a smaller one."""
  old, new = str(folder / "old"), str(folder / "new")
  shutil.copytree(families.path(family, "ForMaskedLM"), old)
  paths = [folder / "old" / name for name in ("tokenizer.json", "config.json")]
  contents = [json.loads(path.read_text("utf-8")) for path in paths]
  change(*contents)
  for path, content in zip(paths, contents, strict=True):
    path.write_text(json.dumps(content), "utf-8")
  corpus = folder / "corpus.txt"
  corpus.write_text("\n".join(lines), encoding="utf-8")
  convert_checkpoint.run(
    to="huggingface", model_dir=old, output_dir=new, keep_vocabulary=str(corpus)
  )
  return old, new


def _compute(folder, ids):
  """The vectors of a row of ids, [S, H], and its masked-word scores, [S, V]."""
  config = model_folder.load_config(folder)
  weights = _weights(folder)
  values = {name: weights[name] for name in weights.shapes}
  with variables.VariableStore(initial_values=values):
    model = modeling.BertModel(config, False, [ids])
    vectors = model.get_sequence_output()[0]
    table = model.get_embedding_table()
    return vectors, pretraining.masked_lm_logits(config, vectors, table)


@pytest.mark.parametrize(
  ("family", "change"),
  [
    *((family, _change_nothing) for family in WHOLE),
    ("roberta", _write_as_before),
    ("roberta", _move_padding),
  ],
)
def test_a_tokenizer_json_keeps_its_splits_and_scores(tmp_path, family, change):
  folders = _shrink(tmp_path, family, change, LINES)
  before, after = (
    tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    for folder in folders
  )
  size = after.get_vocab_size()
  assert size < before.get_vocab_size() * 0.8
  assert model_folder.load_config(folders[1]).vocab_size == size
  former = [before.token_to_id(after.id_to_token(i)) for i in range(size)]
  assert former == sorted(former)
  # As fill_mask.py replaces it.
  mask = "[MASK]" if family == "albert" else "<mask>"
  masked = LINES[-1].replace("[MASK]", mask)
  for texts in (*((line,) for line in LINES), LINES[:2], (masked,)):
    old, new = (tokenizer.encode(*texts) for tokenizer in (before, after))
    assert old.tokens == new.tokens
    assert old.ids == [former[index] for index in new.ids]
    (states, wanted), (vectors, found) = (
      _compute(folder, encoded.ids)
      for folder, encoded in zip(folders, (old, new), strict=True)
    )
    np.testing.assert_allclose(vectors, states, atol=1e-6)
    np.testing.assert_allclose(found, np.array(wanted)[:, former], atol=1e-6)
  before, after = (
    json.loads((tmp_path / name / "config.json").read_text())
    for name in ("old", "new")
  )
  pad = bert.load(folders[1]).task.tokenizer
  assert after["pad_token_id"] == pad.vocab[pad.special.pad]
  assert after["max_position_embeddings"] == before["max_position_embeddings"]
  assert bert.load(folders[1], task="fill_mask")("The old [MASK]")["masks"]


@pytest.mark.parametrize("family", WHOLE)
def test_other_texts_of_a_tokenizer_json(tmp_path, family):
  _, new = _shrink(tmp_path, family, _change_nothing, LINES)
  tokenizer = resolve(new).tokenizer
  assert tokenizer.unk_token not in tokenizer.tokenize("over her")
  if family == "roberta":  # Each text consists of bytes.
    assert tokenizer.tokenize("\u00df") == ["\u00c3", "\u0141"]


def test_a_classifier_in_the_other_format(
  golden, goldens, corpus, tmp_path_factory
):
  folder = tmp_path_factory.mktemp("classifier")
  (folder / "a").mkdir()
  teacher = task_folders.write(folder / "a", "classification", golden, goldens)
  huggingface.to_huggingface(teacher, str(folder / "b"))
  scripts.fork(
    "convert_checkpoint.py",
    "--to=huggingface",
    "--keep_layers=1",
    f"--keep_vocabulary={corpus}",
    f"--model_dir={folder / 'b'}",
    f"--output_dir={folder / 'c'}",
  )
  fields = json.loads((folder / "c" / "config.json").read_text())
  assert fields["num_hidden_layers"] == 1
  model = bert.load(str(folder / "c"))
  assert model.labels == bert.load(teacher).labels
  assert len(model("Jim Henson")["probabilities"]) == len(model.labels)
