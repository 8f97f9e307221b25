"""Models by name: downloaded once, into a cache.

    folder = local_path("uncased_L-12_H-768_A-12")
    folder = local_path("hf://google-bert/bert-base-uncased")

Releases are cached in the folder BERT_CACHE, or else in `~/.cache/bert`; models
of `hf://` in Hugging Face's own cache.
"""

import functools
import os
import sys
from collections.abc import Mapping

from bert.data import files
from bert.errors import UserError, did_you_mean, first_line, unsupported

HUB_SCHEME = "hf://"

_RELEASES_URL = "https://storage.googleapis.com/bert_models"

# Name of a release -> folder of its archive. The largest of the 24 small models
# has the name of BERT-Base, which takes precedence.
_RELEASES = {
  "uncased_L-12_H-768_A-12": "2018_10_18",
  "uncased_L-24_H-1024_A-16": "2018_10_18",
  "cased_L-12_H-768_A-12": "2018_10_18",
  "cased_L-24_H-1024_A-16": "2018_10_18",
  "multilingual_L-12_H-768_A-12": "2018_11_03",
  "chinese_L-12_H-768_A-12": "2018_11_03",
  "multi_cased_L-12_H-768_A-12": "2018_11_23",
  "wwm_uncased_L-24_H-1024_A-16": "2019_05_30",
  "wwm_cased_L-24_H-1024_A-16": "2019_05_30",
}
RELEASES = {
  f"uncased_L-{layers}_H-{width}_A-{width // 64}": "2020_02_20"
  for layers in (2, 4, 6, 8, 10, 12)
  for width in (128, 256, 512, 768)
} | _RELEASES

# The files of a model that are downloaded from Hugging Face. Subfolders contain
# other formats, except those of sentence-transformers, such as 1_Pooling.
_HUB_FILES = (
  *("*.json", "vocab.txt", "model*.safetensors", "bert_model.ckpt.*"),
  *("*.model", "merges.txt"),  # SentencePiece, and byte-level BPE.
  "*_Dense/model.safetensors",  # A layer of sentence-transformers.
)
_HUB_FOLDERS = "[!0-9]*/*"

ENCODER_FOLDER = "0_Transformer"

# The values of `model_type` in a config.json of Hugging Face that are read.
MODEL_TYPES = (
  *("bert", "distilbert", "roberta", "xlm-roberta", "camembert"),
  *("electra", "albert"),
)

_offline = False


def use_cache_only(is_offline: bool) -> None:
  """Makes this process use earlier downloads only, without the network."""
  global _offline
  _offline = is_offline
  local_path.cache_clear()


def cache_folder(*names: str) -> str:
  """The path of a file or folder in the cache."""
  home = os.environ.get("BERT_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or "~/.cache", "bert"
  )
  return os.path.join(os.path.abspath(os.path.expanduser(home)), *names)


def check_name(name: str) -> None:
  """Raises UserError unless there is a model of this name to download."""
  if not name.startswith(HUB_SCHEME) and name not in RELEASES:
    raise UserError(
      f"{name!r} is neither hf://organization/name nor a release of the "
      f"original{did_you_mean(name, RELEASES)}"
    )


def similar_release(path: str | os.PathLike) -> str:
  """Text to append to an error: a release with a similar name, or ""."""
  path = os.fspath(path)
  if "/" in path or files.exists(path):
    return ""
  return did_you_mean(path, RELEASES)


@functools.cache
def local_path(path: str | os.PathLike) -> str:
  """The folder of a model, downloaded if needed; returns other paths as is.

  A model's name is "hf://organization/name", which may end in "@revision", or
  that of a release of the original, unless there is a file of that name. Old
  folders of sentence-transformers have the encoder in ENCODER_FOLDER.
  """
  path = os.fspath(path)
  if path.startswith(HUB_SCHEME):
    return _fetch_from_hub(path)
  if path not in RELEASES or files.exists(path):
    encoder = os.path.join(path, ENCODER_FOLDER)
    return encoder if files.isdir(encoder) else path
  url = f"{_RELEASES_URL}/{RELEASES[path]}/{path}.zip"
  from bert.data import fetching  # Loads the network's modules.

  folder = cache_folder("models", path)
  return fetching.fetch_archive(url, folder, _offline)


def check_model_type(path: str, fields: Mapping[str, object]) -> str:
  """The model_type in the content of a config.json; UserError for others."""
  files.check_types(path, fields, {"model_type": str | None})
  model_type = fields.get("model_type") or "bert"
  if model_type not in MODEL_TYPES:
    raise unsupported(path, "model_type", model_type, *MODEL_TYPES)
  return model_type


def check_config(folder: str, source: str | None = None) -> None:
  """Raises UserError for a folder whose config.json is that of other models.

  Called before weights are fetched or asked for. `source` is named instead of
  the file.
  """
  path = os.path.join(folder, "config.json")
  check_model_type(source or path, files.read_json(path, dict) or {})


def _fetch_from_hub(path):
  check_config(_fetch_files(path, "config.json"), path)
  folder = _fetch_files(path, *_HUB_FILES)
  names = os.listdir(folder) if os.path.isdir(folder) else []
  if not any(n.endswith((".safetensors", ".ckpt.index")) for n in names):
    raise UserError(
      f"{path} has no model.safetensors; pass another model, or convert it "
      f"with transformers (save_pretrained) and pass its folder"
    )
  return folder


def _fetch_files(path, *patterns):
  """The folder of a model of Hugging Face, with its files of some names."""
  import huggingface_hub
  from huggingface_hub import utils

  name, _, revision = path.removeprefix(HUB_SCHEME).partition("@")
  if not sys.stderr.isatty():
    utils.disable_progress_bars()
  try:
    return huggingface_hub.snapshot_download(
      name,
      revision=revision or None,
      allow_patterns=list(patterns),
      ignore_patterns=_HUB_FOLDERS,
      local_files_only=_offline,
    )
  except Exception as error:  # Libraries and versions differ.
    raise UserError(f"{path} {_hub_problem(error)}") from error


def _hub_problem(error):
  """What a failed download from Hugging Face means, and what to do."""
  from huggingface_hub import constants, errors

  unknown = errors.RepositoryNotFoundError, errors.RevisionNotFoundError
  if isinstance(error, (*unknown, errors.HFValidationError)):
    return (
      "is no public model or revision; check the name at huggingface.co, or "
      "log in with `hf auth login`"
    )
  if isinstance(error, errors.LocalEntryNotFoundError):
    remedy = "check the network"
    if _offline or constants.HF_HUB_OFFLINE:
      remedy = "omit --offline" if _offline else "unset HF_HUB_OFFLINE"
    return (
      f"is not in the cache and cannot be downloaded; {remedy}, or pass a "
      f"folder"
    )
  return (
    f"cannot be downloaded: {first_line(error)}; run the same command again to "
    f"continue"
  )
