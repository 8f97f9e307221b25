"""Folders that hold a model: an unzipped release, or a finished training.

Such a folder contains `bert_config.json`, `bert_model.ckpt`, and either
`vocab.txt` or a SentencePiece model (`*.model`). A folder in Hugging Face's
format contains `config.json`, `model.safetensors`, and `vocab.txt` or
`tokenizer.json`.
"""

import glob
import os
from collections.abc import Sequence
from typing import NamedTuple

from absl import logging

import modeling
import tokenization
from bert.data import downloads, files, text_files, vocabulary
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

# Some models round vocab_size up to a multiple of 128.
_MOST_PADDING = 127


class Model(NamedTuple):
  """The parts of a trained model."""

  config: modeling.BertConfig
  tokenizer: tokenization.FullTokenizer
  checkpoint: str  # see `checkpoints.find_checkpoint`

  def config_json(self) -> str:
    """The content of a bert_config.json that records the casing."""
    fields = self.config.to_dict()
    if self.tokenizer.has_casing:
      lower_cases = self.tokenizer.basic_tokenizer.do_lower_case
      fields["do_lower_case"] = lower_cases
    return modeling.BertConfig.from_dict(fields).to_json_string()


def find_model(model_dir: str, do_lower_case: bool | None = None) -> Model:
  """The model in a folder, or of a name that `downloads.local_path` knows.

  `do_lower_case` is by default what bert_config.json says; without an entry
  there, what the folder's name says, or else unless the vocabulary has
  capitals.
  """
  model_dir = downloads.local_path(model_dir)
  config = load_config(model_dir)
  checkpoint = checkpoints.find_checkpoint(model_dir)
  named = _full_path(checkpoint)
  if do_lower_case is None:
    do_lower_case = lower_cases(config, named)
  check_casing(do_lower_case, config, model_dir)
  tokenization.validate_case_matches_checkpoint(do_lower_case, named)
  return Model(config, load_tokenizer(model_dir, do_lower_case), checkpoint)


def check_casing(
  do_lower_case: bool, config: modeling.BertConfig, path: str
) -> None:
  """Raises UserError if --do_lower_case contradicts what a model records."""
  recorded = getattr(config, "do_lower_case", do_lower_case)
  tokenization.check_casing(do_lower_case, recorded, path)


def is_finished(model_dir: str) -> bool:
  """Whether a folder holds a configuration and a finished model."""
  needed = ("bert_config.json", checkpoints.RELEASE_NAME + ".index")
  if all(files.exists(os.path.join(model_dir, name)) for name in needed):
    return True
  config = os.path.join(model_dir, huggingface_config.CONFIG_NAME)
  weights = huggingface_weights.find_weights(model_dir)
  return files.exists(config) and weights is not None


def lower_cases(config: modeling.BertConfig, path: str) -> bool:
  """Whether a model, of a file `path`, lower-cases text; see `find_model`."""
  if hasattr(config, "do_lower_case"):
    return config.do_lower_case
  by_name = named_casing(path)
  if by_name is not None:
    return by_name
  vocabulary = find_vocabulary(os.path.dirname(path) or ".")
  if not vocabulary or not tokenization.has_word_pieces(vocabulary):
    return True
  is_cased = tokenization.is_cased(tokenization.load_vocab(vocabulary))
  if is_cased:
    logging.log_first_n(
      logging.WARNING,
      "%s has capitals, so text is not lower-cased; bert_config.json says "
      'nothing else (its "do_lower_case" would)',
      1,
      vocabulary,
    )
  return not is_cased


def named_casing(path: str) -> bool | None:
  """Whether a release lower-cases text, by its name; None if unknown."""
  release = tokenization.find_release(_full_path(path))
  return release and release.lower_cases


def _full_path(path):
  """The path with the folder's name, even if it is "." or similar."""
  return path if files.is_remote(path) else os.path.abspath(path)


def load_config(model_dir: str) -> modeling.BertConfig:
  """The BertConfig in a folder."""
  for name in config_names(model_dir):
    path = os.path.join(model_dir, name)
    if files.exists(path):
      return huggingface_config.read_config(path)
  problem = f"there is no folder {model_dir}"
  if files.exists(model_dir):
    problem = f"{model_dir} contains no bert_config.json"
  raise UserError(
    f"{problem}; pass the folder of an unzipped release, or the --output_dir "
    f"of a finished training{checkpoints.similar_model(model_dir)}"
  )


def config_names(model_dir: str) -> Sequence[str]:
  """CONFIG_NAMES, the name in the format of the folder's weights first."""
  ours = checkpoints.RELEASE_NAME + ".index"
  theirs = huggingface_weights.WEIGHTS_NAME, huggingface_weights.INDEX_NAME
  for name in (ours, *theirs):
    if files.exists(os.path.join(model_dir, name)):
      return CONFIG_NAMES if name == ours else CONFIG_NAMES[::-1]
  return CONFIG_NAMES


def has_config(model_dir: str) -> bool:
  """Whether a folder has a configuration."""
  paths = (os.path.join(model_dir, name) for name in CONFIG_NAMES)
  return any(map(files.exists, paths))


def load_tokenizer(
  model_dir: str, do_lower_case: bool
) -> tokenization.FullTokenizer:
  """The tokenizer of the vocabulary, or SentencePiece model, in a folder."""
  path = find_vocabulary(model_dir)
  if path is None:
    check_vocabulary_is_read(model_dir)
    raise UserError(
      f"{model_dir} contains neither vocab.txt nor tokenizer.json nor one "
      f"SentencePiece model; copy the file that came with the model there"
    )
  if path.endswith(".model"):
    return tokenization.FullTokenizer(None, do_lower_case, path)
  text_files.check_utf8(path)
  return tokenization.FullTokenizer(path, do_lower_case)


def input_files(model_dir: str) -> list[str]:
  """The files that a model is read from, of which some may not exist."""
  folder = downloads.local_path(model_dir)
  names = (*CONFIG_NAMES, *VOCAB_NAMES, huggingface_config.TOKENIZER_NAME)
  paths = (os.path.join(folder, name) for name in names)
  pieces = files.find(os.path.join(glob.escape(folder), "*.model"))
  return [*paths, *pieces, *checkpoints.checkpoint_files(model_dir)]


def find_vocabulary(model_dir: str) -> str | None:
  """The first of VOCAB_NAMES in a folder, else its only *.model, else None."""
  found = set(files.listdir(model_dir)) - _UNREAD
  models = [name for name in found if name.endswith(".model")]
  known = [name for name in VOCAB_NAMES if name in found]
  if not known and len(models) != 1:
    return None
  return os.path.join(model_dir, [*known, *models][0])


def check_vocabulary_is_read(model_dir: str) -> None:
  """Raises UserError for a folder without another vocabulary than `_UNREAD`."""
  unread = sorted(_UNREAD.intersection(files.listdir(model_dir)))
  if unread and find_vocabulary(model_dir) is None:
    raise UserError(
      f"{model_dir} has {unread[0]}, but no tokenizer.json; add it in Python "
      f"with transformers, by AutoTokenizer.from_pretrained(folder)"
      f".save_pretrained(folder)"
    )


def check_vocabulary(model: Model) -> None:
  """Raises UserError unless a tokenizer's ids are those of the model."""
  vocabulary.check_special_pieces(model.tokenizer)
  paths = "the vocabulary", "bert_config.json"
  check_size(model.tokenizer, model.config, *paths)


def check_size(
  tokenizer: tokenization.FullTokenizer,
  config: modeling.BertConfig,
  vocab_file: str,
  config_file: str,
) -> None:
  """Raises UserError, or warns, if a vocabulary is that of another model."""
  size = max(tokenizer.vocab.values(), default=-1) + 1
  if size > config.vocab_size:
    raise UserError(
      f"{vocab_file} has {size} entries, more than vocab_size="
      f"{config.vocab_size} of {config_file}; pass two files of the same model"
    )
  if size + _MOST_PADDING < config.vocab_size:
    logging.log_first_n(
      logging.WARNING,
      "The vocabulary has %d entries, far fewer than vocab_size=%d of %s; "
      "check that both belong to the same model",
      1,
      size,
      config.vocab_size,
      config_file,
    )


def check_length(length: int, config: modeling.BertConfig, model: str) -> None:
  """Raises UserError for sequences that are longer than a model's positions."""
  limit = config.max_position_embeddings
  if length > limit:
    raise UserError(
      f"--max_seq_length={length} is more than the {limit} positions of "
      f"{model}; lower it"
    )


def weights_folder(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The folder of the weights of a run: `output_dir` if it has checkpoints."""
  if output_dir and checkpoints.training_checkpoints(output_dir):
    return output_dir
  init_checkpoint = init_checkpoint and downloads.local_path(init_checkpoint)
  if not init_checkpoint or files.isdir(init_checkpoint):
    return init_checkpoint
  return os.path.dirname(init_checkpoint) or "."


def own_checkpoint(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The prefix of a checkpoint that lies in `output_dir`, or None."""
  folders = (output_dir, weights_folder("", init_checkpoint))
  if all(folders) and len(set(map(os.path.realpath, folders))) == 1:
    return checkpoints.find_checkpoint(init_checkpoint)
  return None


def initial_weights(output_dir: str, init_checkpoint: str | None) -> str | None:
  """The initial checkpoint without training: `output_dir` comes first.

  In it, one that is named does, and then its finished model.
  """
  if own := own_checkpoint(output_dir, init_checkpoint):
    return own
  release = os.path.join(output_dir or "", checkpoints.RELEASE_NAME)
  is_finished = output_dir and checkpoints.exists(release)
  return release if is_finished else init_checkpoint
