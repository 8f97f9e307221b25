"""Folders that hold a model: an unzipped release, or a finished training.

Such a folder contains `bert_config.json`, `bert_model.ckpt`, and either
`vocab.txt` or a SentencePiece model (`*.model`). A folder in Hugging Face's
format contains `config.json`, `model.safetensors`, and `vocab.txt` or
`tokenizer.json`. An ONNX folder contains `bert_config.json`, `model.onnx`, and
one of these vocabularies.
"""

import glob
import os

import modeling
from bert.data import downloads, files
from bert.errors import UserError
from bert.models import checkpoints, huggingface_config, huggingface_weights

# Of the configuration and the vocabulary; the first is used.
CONFIG_NAMES = (
  "bert_config.json",
  huggingface_config.ALBERT_NAME,
  huggingface_config.CONFIG_NAME,
)
VOCAB_NAMES = ("vocab.txt", "tokenizer.json")

# Tokenizers of RoBERTa, XLM-R and CamemBERT that need transformers.
_UNREAD = {"vocab.json", "sentencepiece.bpe.model"}


def is_finished(model_dir: str) -> bool:
  """Whether a folder holds a configuration and a finished model."""
  needed = ("bert_config.json", checkpoints.RELEASE_NAME + ".index")
  if all(files.exists(os.path.join(model_dir, name)) for name in needed):
    return True
  config = os.path.join(model_dir, huggingface_config.CONFIG_NAME)
  weights = huggingface_weights.find_weights(model_dir)
  if weights is None and files.exists(os.path.join(model_dir, needed[0])):
    return checkpoints.find_graph(model_dir) is not None
  return files.exists(config) and weights is not None


def load_config(model_dir: str) -> modeling.BertConfig:
  """The BertConfig in a folder."""
  path = find_config(model_dir)
  if not path:
    raise missing_config(model_dir)
  return huggingface_config.read_config(path)


def find_config(model_dir: str) -> str | None:
  """The file of the configuration in a folder; None without one."""
  paths = (os.path.join(model_dir, name) for name in _config_names(model_dir))
  return next(filter(files.isfile, paths), None)


def missing_config(model_dir: str) -> UserError:
  """The error of a folder without a configuration."""
  problem = f"there is no folder {model_dir}"
  if files.exists(model_dir):
    problem = f"{model_dir} contains no bert_config.json"
  return UserError(
    f"{problem}; pass the folder of an unzipped release, or the --output_dir "
    f"of a finished training{checkpoints.similar_model(model_dir)}"
  )


def _config_names(model_dir):
  """CONFIG_NAMES, the name in the format of the folder's weights first."""
  ours = checkpoints.RELEASE_NAME + ".index"
  theirs = huggingface_weights.WEIGHTS_NAME, huggingface_weights.INDEX_NAME
  for name in (ours, *theirs):
    if files.exists(os.path.join(model_dir, name)):
      return CONFIG_NAMES if name == ours else CONFIG_NAMES[::-1]
  return CONFIG_NAMES


def input_files(path: str) -> list[str]:
  """The files that a model is read from, of which some may not exist."""
  folder = folder_of(path)
  names = (*CONFIG_NAMES, *VOCAB_NAMES, huggingface_config.TOKENIZER_NAME)
  paths = (os.path.join(folder, name) for name in names)
  pieces = files.find(os.path.join(glob.escape(folder), "*.model"))
  return [*paths, *pieces, *checkpoints.checkpoint_files(path)]


def find_vocabulary(model_dir: str) -> str | None:
  """The first of VOCAB_NAMES in a folder, else its only *.model, else None."""
  listed = set(files.listdir(model_dir)) - _UNREAD
  models = [name for name in listed if name.endswith(".model")]
  known = [name for name in VOCAB_NAMES if name in listed]
  if not known and len(models) != 1:
    return None
  return os.path.join(model_dir, [*known, *models][0])


def missing_vocabulary(model_dir: str) -> UserError:
  """The error of a folder without a vocabulary that is read."""
  unread = sorted(_UNREAD.intersection(files.listdir(model_dir)))
  if unread:
    return UserError(
      f"{model_dir} has {unread[0]}, but no tokenizer.json; add it in Python "
      f"with transformers, by AutoTokenizer.from_pretrained(folder)"
      f".save_pretrained(folder)"
    )
  return UserError(
    f"{model_dir} contains neither vocab.txt nor tokenizer.json nor one "
    f"SentencePiece model; copy the file that came with the model there"
  )


def folder_of(path: str | None) -> str | None:
  """The folder of a checkpoint, or a folder itself; None without a path."""
  path = path and downloads.local_path(path)
  if not path or files.isdir(path):
    return path
  return os.path.dirname(path) or "."
