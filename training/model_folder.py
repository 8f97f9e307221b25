"""Folders that hold a model: an unzipped release, or what training leaves.

    model = find_model("uncased_L-12_H-768_A-12")
    model.tokenizer.tokenize("a text")

A release is `bert_config.json`, `bert_model.ckpt` and `vocab.txt`, or one
SentencePiece model in place of the last.
"""

import json
import os
from typing import NamedTuple

import tensorflow as tf

import modeling
import tokenization
from errors import UserError
from pipeline import files
from training import checkpoints


class Model(NamedTuple):
  """A trained encoder, as files.

  Attributes:
    config: its BertConfig.
    tokenizer: the FullTokenizer it was trained with.
    checkpoint: as `checkpoints.find_checkpoint` takes it.
  """

  config: modeling.BertConfig
  tokenizer: tokenization.FullTokenizer
  checkpoint: str


def find_model(model_dir: str, do_lower_case: bool | None = None) -> Model:
  """The model in a folder.

  Args:
    model_dir: holds a release.
    do_lower_case: whether the text was lower-cased; when None, what
      bert_config.json says of it, or else the folder's name, or else True.

  Raises:
    ValueError: a file is missing, or `do_lower_case` contradicts the folder.
  """
  config = load_config(model_dir)
  checkpoint = os.path.join(model_dir, checkpoints.RELEASE_NAME)
  if not tf.io.gfile.exists(checkpoint + ".index"):
    checkpoint = checkpoints.find_checkpoint(model_dir)
  # Of "." and the like, too, the name tells.
  named = checkpoint if "://" in checkpoint else os.path.abspath(checkpoint)
  if do_lower_case is None:
    do_lower_case = getattr(config, "do_lower_case", _lower_cases(named))
  tokenization.validate_case_matches_checkpoint(do_lower_case, named)
  return Model(config, load_tokenizer(model_dir, do_lower_case), checkpoint)


def is_finished(model_dir: str) -> bool:
  """Whether a folder holds a configuration and a finished model."""
  needed = ("bert_config.json", checkpoints.RELEASE_NAME + ".index")
  return all(files.exists(os.path.join(model_dir, name)) for name in needed)


def _lower_cases(checkpoint):
  """Whether a model reads lower-cased text, as far as its name tells."""
  try:
    tokenization.validate_case_matches_checkpoint(True, checkpoint)
  except ValueError:
    return False
  return True


def load_config(model_dir: str) -> modeling.BertConfig:
  """The BertConfig in a folder.

  Raises:
    ValueError: there is none, or it is damaged.
  """
  path = os.path.join(model_dir, "bert_config.json")
  if not tf.io.gfile.exists(path):
    raise UserError(
      f"{model_dir} holds no bert_config.json; pass the folder of an unzipped "
      f"release, or the --output_dir of a training that has ended"
    )
  return modeling.BertConfig.from_json_file(path)


def load_tokenizer(
  model_dir: str, do_lower_case: bool
) -> tokenization.FullTokenizer:
  """The tokenizer in a folder: by vocab.txt, or by its SentencePiece model.

  Raises:
    ValueError: there is neither, or the choice of two models.
  """
  files = tf.io.gfile.listdir(model_dir)
  if "vocab.txt" in files:
    return tokenization.FullTokenizer(
      os.path.join(model_dir, "vocab.txt"), do_lower_case
    )
  names = [name for name in files if name.endswith(".model")]
  if len(names) != 1:
    raise UserError(
      f"{model_dir} has neither vocab.txt nor one SentencePiece model; copy "
      f"the one that came with the model there"
    )
  return tokenization.FullTokenizer(
    None, do_lower_case, os.path.join(model_dir, names[0])
  )


def weights_folder(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The folder that trained weights lie in, or would come from.

  Args:
    output_dir: of the training.
    init_checkpoint: where its weights start from: a prefix, a folder or None.
  """
  if output_dir and checkpoints.training_checkpoints(output_dir):
    return output_dir
  if not init_checkpoint or tf.io.gfile.isdir(init_checkpoint):
    return init_checkpoint
  return os.path.dirname(init_checkpoint) or "."


def initial_weights(output_dir: str, init_checkpoint: str | None) -> str | None:
  """Where the weights of a run that does not train start from.

  Args:
    output_dir: its folder; what a training has left there counts where there
      is no other.
    init_checkpoint: --init_checkpoint, or None.
  """
  release = os.path.join(output_dir, checkpoints.RELEASE_NAME)
  if init_checkpoint is None and tf.io.gfile.exists(release + ".index"):
    return release
  return init_checkpoint


def read_json(path: str, kind: type) -> dict | list | None:
  """What a JSON file of a release holds; None if there is no such file.

  Args:
    path: the file.
    kind: dict or list.

  Raises:
    ValueError: it holds something else.
  """
  if not tf.io.gfile.exists(path):
    return None
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  try:
    found = json.loads(content)
  except ValueError as error:
    raise UserError(damaged(path, f"not JSON, {error}")) from error
  if not isinstance(found, kind):
    raise UserError(damaged(path, f"no JSON {kind.__name__}"))
  return found


def damaged(path: str, reason: str) -> str:
  """The message on a file of a release that is not as it was written."""
  return f"{path} is damaged ({reason}); train again, or copy it again"
