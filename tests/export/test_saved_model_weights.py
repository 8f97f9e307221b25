"""Encoders of SavedModels, under the names that TF-Hub and Keras give them."""

import numpy as np
import pytest
import tensorflow as tf

import modeling
from bert.errors import UserError
from bert.export import saved_model_weights
from bert.models import checkpoints, model_folder
from bert.models.resolve import resolve

CONFIG = modeling.BertConfig(9, 8, 1, 2, 6, "gelu", 0.1, 0.1, 5, 2)

# TF-Hub's names since version 3 of its BERT encoders, in shapes of H = 8 with
# two heads; the last column is ours.
_TABLE = """
word_embeddings/embeddings 9,8 embeddings/word_embeddings
position_embedding/embeddings 5,8 embeddings/position_embeddings
type_embeddings/embeddings 2,8 embeddings/token_type_embeddings
embeddings/layer_norm/gamma 8 embeddings/LayerNorm/gamma
embeddings/layer_norm/beta 8 embeddings/LayerNorm/beta
T/self_attention/query/kernel 8,2,4 E/attention/self/query/kernel
T/self_attention/query/bias 2,4 E/attention/self/query/bias
T/self_attention/key/kernel 8,2,4 E/attention/self/key/kernel
T/self_attention/key/bias 2,4 E/attention/self/key/bias
T/self_attention/value/kernel 8,2,4 E/attention/self/value/kernel
T/self_attention/value/bias 2,4 E/attention/self/value/bias
T/self_attention/attention_output/kernel 2,4,8 E/attention/output/dense/kernel
T/self_attention/attention_output/bias 8 E/attention/output/dense/bias
T/self_attention_layer_norm/gamma 8 E/attention/output/LayerNorm/gamma
T/self_attention_layer_norm/beta 8 E/attention/output/LayerNorm/beta
T/intermediate/kernel 8,6 E/intermediate/dense/kernel
T/intermediate/bias 6 E/intermediate/dense/bias
T/output/kernel 6,8 E/output/dense/kernel
T/output/bias 8 E/output/dense/bias
T/output_layer_norm/gamma 8 E/output/LayerNorm/gamma
T/output_layer_norm/beta 8 E/output/LayerNorm/beta
pooler_transform/kernel 8,8 pooler/dense/kernel
pooler_transform/bias 8 pooler/dense/bias
""".replace("T/", "transformer/layer_0/").replace("E/", "encoder/layer_0/")
NEW = {
  f"{name}:0": ([int(size) for size in shape.split(",")], ours)
  for name, shape, ours in map(str.split, _TABLE.strip().splitlines())
}


def _old(name):
  """The name in versions 1 and 2."""
  for new, old in {
    "position_embedding/embeddings": (
      "embedding_postprocessor/position_embeddings"
    ),
    "type_embeddings/embeddings": "embedding_postprocessor/type_embeddings",
    "embeddings/layer_norm": "embedding_postprocessor/layer_norm",
    "transformer/": "encoder/",
    "self_attention/attention_output": "self_attention_output",
  }.items():
    name = name.replace(new, old)
  return f"bert_model/{name}"


def _save(folder, names, skipped=(), has_casing=True, more=()):
  """Writes a SavedModel; returns the variables' values by our names.

  Args:
    folder: where to write it.
    names: dict from the name of a variable to its shape and our name.
    skipped: names to leave out.
    has_casing: whether it has `do_lower_case`.
    more: like names, for variables after these.
  """
  rng = np.random.default_rng(4)
  module, values = tf.Module(), {}
  module.variables_ = []
  for name, (shape, ours) in [*names.items(), *dict(more).items()]:
    if name not in skipped:
      value = rng.normal(size=shape).astype(np.float32)
      values[f"bert/{ours}"] = value
      variable = tf.Variable(value, name=name.removesuffix(":0"))
      module.variables_.append(variable)
  module.other = tf.Variable(1.0, name="something/else")
  vocab = folder.parent / "vocab.txt"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcd"]
  vocab.write_text("".join(f"{piece}\n" for piece in pieces))
  module.vocab_file = tf.saved_model.Asset(str(vocab))
  if has_casing:
    module.do_lower_case = tf.Variable(False, trainable=False)
  tf.saved_model.save(module, str(folder))
  return values


@pytest.mark.parametrize("spell", [str, _old])
def test_variables_are_found_by_their_names(tmp_path, spell):
  names = {spell(name): entry for name, entry in NEW.items()}
  values = _save(tmp_path / "saved", names)
  assert saved_model_weights.is_saved_model(str(tmp_path / "saved"))
  with pytest.raises(UserError, match="; convert the SavedModel by"):
    checkpoints.find_checkpoint(str(tmp_path / "saved"))
  out = tmp_path / "out"
  saved_model_weights.write_release(str(tmp_path / "saved"), str(out))
  model = resolve(str(out))
  wanted = CONFIG.to_dict() | {"do_lower_case": False}
  assert model.config.to_dict() == wanted
  assert list(model.tokenizer.vocab)[-1] == "d"
  found = checkpoints.Checkpoint(model.checkpoint)
  assert found.shapes == modeling.variable_shapes(CONFIG)
  for name, value in values.items():
    np.testing.assert_array_equal(
      found[name], value.reshape(found.shapes[name])
    )


@pytest.mark.parametrize("scope", ["", "m/"])
def test_moments_of_an_optimizer_are_no_weights(tmp_path, scope):
  """A scope of the model may have the name of a moment."""
  names = {scope + name: entry for name, entry in NEW.items()}
  slots = {
    f"Adam/{slot}/{name}": (shape, f"{slot}/{ours}")
    for name, (shape, ours) in names.items()
    for slot in ("m", "v")
  }
  values = _save(tmp_path / "saved", {**names, **slots})
  out = tmp_path / "out"
  saved_model_weights.write_release(str(tmp_path / "saved"), str(out))
  found = checkpoints.Checkpoint(str(out / "bert_model.ckpt"))
  assert found.shapes == modeling.variable_shapes(CONFIG)
  for name, shape in found.shapes.items():
    np.testing.assert_array_equal(found[name], values[name].reshape(shape))


@pytest.mark.parametrize("scope", ["teacher/", ""])
def test_two_encoders_are_an_error(tmp_path, scope):
  names = {name: entry for name, entry in NEW.items() if "bias" in name}
  others = {scope + name: entry for name, entry in names.items()}
  folder = tmp_path / "saved"
  _save(folder, names, more=others)
  message = rf"^{folder} has not all .* \(two for bert/.*: .*\); pass"
  with pytest.raises(UserError, match=message):
    saved_model_weights.write_release(str(folder), str(tmp_path / "out"))
  assert not (tmp_path / "out").exists()


def test_the_originals_names_are_kept(tmp_path, caplog):
  names = {
    f"bert/{ours}": (shape, ours)
    for ours, shape in (
      (name.removeprefix("bert/"), shape)
      for name, shape in modeling.variable_shapes(CONFIG).items()
    )
  }
  _save(tmp_path / "saved", names)
  guessed = tmp_path / "guessed"
  saved_model_weights.write_release(str(tmp_path / "saved"), str(guessed))
  assert "if it is not 1, correct bert_config.json" in caplog.text
  assert "activation; assuming hidden_act=gelu; if it is" in caplog.text
  caplog.clear()
  config = tmp_path / "saved" / "bert_config.json"
  config.write_text(CONFIG.to_json_string())
  out = tmp_path / "out"
  saved_model_weights.write_release(str(tmp_path / "saved"), str(out))
  found = checkpoints.Checkpoint(str(out / "bert_model.ckpt"))
  assert found.shapes == modeling.variable_shapes(CONFIG)
  assert model_folder.load_config(str(out)).num_attention_heads == 2
  assert "assuming hidden_act" not in caplog.text


@pytest.mark.parametrize(
  ("name", "wanted", "warns"),
  [
    ("bert_en_cased_L-12_H-768_A-12/4", False, False),
    ("bert_en_uncased_L-12_H-768_A-12_4", True, False),
    ("mine", True, True),
  ],
)
def test_the_folders_name_may_tell_the_casing(
  tmp_path, caplog, monkeypatch, name, wanted, warns
):
  folder = tmp_path / name
  folder.parent.mkdir(exist_ok=True)
  _save(folder, NEW, has_casing=False)
  monkeypatch.chdir(folder)
  out = tmp_path / "out"
  saved_model_weights.write_release(".", str(out))
  assert model_folder.load_config(str(out)).do_lower_case is wanted
  warning = "does not say whether to lower-case text"
  assert (warning in caplog.text) == warns
  config = modeling.BertConfig.from_dict(
    {**CONFIG.to_dict(), "do_lower_case": not wanted}
  )
  (folder / "bert_config.json").write_text(config.to_json_string())
  saved_model_weights.write_release(".", str(tmp_path / "other"))
  found = model_folder.load_config(str(tmp_path / "other"))
  assert found.do_lower_case is not wanted


def test_other_saved_models_are_an_error(tmp_path):
  _save(tmp_path / "none", {})
  with pytest.raises(UserError, match="not all variables of one BERT"):
    saved_model_weights.write_release(str(tmp_path / "none"), str(tmp_path))
  _save(tmp_path / "part", NEW, ["pooler_transform/bias:0"])
  with pytest.raises(UserError, match=r"\(no .*/bias \[8\]\); pass"):
    saved_model_weights.write_release(str(tmp_path / "part"), str(tmp_path))
  narrow = {
    name: ([size // 2 if size == 8 else size for size in shape], ours)
    if name.startswith(("word", "position", "type"))
    else (shape, ours)
    for name, (shape, ours) in NEW.items()
  }
  _save(tmp_path / "narrow", narrow)
  message = r"\(no bert/\S+ \[.*\]\); pass"
  with pytest.raises(UserError, match=message):
    saved_model_weights.write_release(str(tmp_path / "narrow"), str(tmp_path))
  assert not (tmp_path / "bert_config.json").exists()
