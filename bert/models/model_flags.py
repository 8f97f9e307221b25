"""The model that the flags name: its tokenizer, configuration and files.

Imports the modules that need NumPy lazily, so that scripts that write data
start faster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from absl import logging

import tokenization
from bert.data import downloads, files, text_files, vocabulary
from bert.flags.values import Flags

if TYPE_CHECKING:
  import modeling


def vocab_file(flags: Flags) -> str | None:
  """--vocab_file; without --bert_config_file, by default the folder's."""
  if flags.vocab_file or flags.spm_model_file or flags.get("bert_config_file"):
    return flags.vocab_file
  return _file_of_model(flags, "vocab_file")


def bert_config_file(flags: Flags) -> str | None:
  """--bert_config_file; by default, that of the model's folder."""
  return flags.bert_config_file or _file_of_model(flags, "bert_config_file")


def _file_of_model(flags, flag):
  """The default of a flag: a file in the folder of the model, or None."""
  for folder in _model_folders(flags):
    from bert.models import model_folder

    is_config = flag == "bert_config_file"
    found = model_folder.config_names(folder) if is_config else ()
    for name in found or model_folder.VOCAB_NAMES:
      if files.isfile(path := os.path.join(folder, name)):
        return path
  return None


def _model_folders(flags):
  """Yields the folders in which the files of the model may be.

  A run that does not train uses the model in --output_dir, if there is one.
  """
  if flags.get("do_train") is False and flags.output_dir:
    from bert.models import model_folder

    weights = model_folder.initial_weights(flags.output_dir, None)
    if folder := model_folder.weights_folder(flags.output_dir, weights):
      yield folder
  if given := flags.get("init_checkpoint"):
    yield downloads.local_path(given)


def model_files(flags: Flags) -> list[str]:
  """The files of the model that the flags name, with its checkpoint's."""
  from bert.models import checkpoints

  named = (vocab_file(flags), flags.spm_model_file, bert_config_file(flags))
  return [
    *filter(None, named),
    *checkpoints.checkpoint_files(flags.init_checkpoint),
  ]


def lower_cases(flags: Flags) -> bool:
  """--do_lower_case; by default, as the model or its vocabulary records it.

  That is in bert_config.json, or in the folder's name if it is a release.
  """
  if "do_lower_case" in flags.given:
    return flags.do_lower_case
  given = flags.get("bert_config_file")
  config_file = given or _file_of_model(flags, "bert_config_file")
  if config_file and _is_stored(config_file):
    from bert.models import huggingface_config

    config = huggingface_config.read_config(config_file)
    if hasattr(config, "do_lower_case"):
      return config.do_lower_case
  named = (flags.get(n) for n in ("spm_model_file", "vocab_file", "extend"))
  for path in filter(None, (*_model_folders(flags), *named)):
    folder = path if files.isdir(path) else os.path.dirname(path)
    recorded = os.path.join(folder, "bert_config.json")
    if _is_stored(recorded):
      fields = files.read_json(recorded, dict)
      if "do_lower_case" in fields:
        return bool(fields["do_lower_case"])
    if release := tokenization.find_release(os.path.abspath(path)):
      return release.lower_cases
  return flags.do_lower_case


def _is_stored(path):
  """Whether there is a file, which unlike a pipe can be read again."""
  return files.isfile(path) and not files.is_pipe(path)


def load_tokenizer(flags: Flags) -> tokenization.FullTokenizer:
  """The tokenizer that the flags name."""
  flag, path = "vocab_file", vocab_file(flags)
  if flags.spm_model_file:
    flag, path = "spm_model_file", flags.spm_model_file
    flags.warn_if_given("omit it or --spm_model_file", "vocab_file")
  if not path:
    _require_vocabulary(flags)
  if flags[flag]:
    flags.require_file(flag)
    flags.refuse_pipes(flag, [flags[flag]])
  if flag == "vocab_file":
    text_files.check_utf8(path)
  do_lower_case = lower_cases(flags)
  tokenization.validate_case_matches_checkpoint(
    do_lower_case, flags.get("init_checkpoint")
  )
  tokenizer = tokenization.FullTokenizer(
    vocab_file(flags), do_lower_case, flags.spm_model_file
  )
  vocabulary.check_special_pieces(tokenizer, path)
  return tokenizer


def _require_vocabulary(flags):
  """Raises UserError: neither the flags nor the model's folder have one."""
  for folder in filter(files.isdir, _model_folders(flags)):
    from bert.models import model_folder

    model_folder.check_vocabulary_is_read(folder)
    path = model_folder.find_vocabulary(folder)
    if path and path.endswith(".model"):
      flags.require("spm_model_file", value=path)
  value = None
  if given := flags.get("init_checkpoint"):
    from bert.models import checkpoints

    checkpoints.find_checkpoint(given)  # Report a wrong path.
  elif flags.get("do_train") is False:
    folder = f"--output_dir={flags.output_dir}"
    value = f"it, or another --output_dir, because {folder} holds no model"
  flags.require("vocab_file", value=value)


def warn_of_casing(flags: Flags, pieces: Iterable[str], path: str) -> None:
  """Warns once if --do_lower_case does not suit the word pieces of a file."""
  words = [piece for piece in pieces if not piece.startswith(("[", "<"))]
  is_cased, do_lower_case = tokenization.is_cased(words), lower_cases(flags)
  # Many scripts have no capitals.
  has_small = any(piece.upper() != piece for piece in words)
  if is_cased == do_lower_case and (is_cased or has_small):
    logging.log_first_n(
      logging.WARNING,
      "%s has %s, but --do_lower_case is %s; pass --do_lower_case=%s",
      1,
      path,
      "capitals" if is_cased else "no capitals",
      do_lower_case,
      not do_lower_case,
    )


def release_files(
  flags: Flags, config: modeling.BertConfig
) -> dict[str, str | bytes]:
  """The files that turn a checkpoint into a model folder, by name.

  Without a vocabulary, the casing is recorded only if --do_lower_case is given.
  """
  fields = config.to_dict()
  contents = {}
  path = flags.spm_model_file or vocab_file(flags)
  is_json = bool(path) and path.endswith(".json")
  is_whole = is_json and not tokenization.has_word_pieces(path)
  if (path or "do_lower_case" in flags.given) and not is_whole:
    fields["do_lower_case"] = lower_cases(flags)
  if is_json and not is_whole:
    pieces = tokenization.load_vocab(path)
    contents["vocab.txt"] = vocabulary.vocab_text(pieces)
  elif path:
    name = "tokenizer.json" if is_whole else "vocab.txt"
    if flags.spm_model_file:
      # Readers of a model folder look for *.model.
      name = os.path.basename(path).removesuffix(".model") + ".model"
    contents[name] = files.read_bytes(path)
  released = type(config).from_dict(fields)
  return {"bert_config.json": released.to_json_string(), **contents}


def load_config(
  flags: Flags,
  tokenizer: tokenization.FullTokenizer | None,
  max_seq_length: int | None = None,
) -> modeling.BertConfig:
  """The BertConfig that the flags name, which fits tokenizer and length."""
  from bert.models import huggingface_config, model_folder

  path = bert_config_file(flags)
  if not path:
    flags.require("bert_config_file")
  if flags.bert_config_file:
    flags.require_file("bert_config_file")
    flags.refuse_pipes("bert_config_file", [path])
  config = huggingface_config.read_config(path)
  if tokenizer:
    vocabulary_file = flags.spm_model_file or vocab_file(flags)
    model_folder.check_size(tokenizer, config, vocabulary_file, path)
    model_folder.check_casing(lower_cases(flags), config, path)
    if tokenizer.splits_words and not hasattr(config, "do_lower_case"):
      warn_of_casing(flags, tokenizer.vocab, vocabulary_file)
  elif "do_lower_case" in flags.given:  # See `release_files`.
    model_folder.check_casing(flags.do_lower_case, config, path)
    tokenization.validate_case_matches_checkpoint(
      flags.do_lower_case, flags.get("init_checkpoint")
    )
  length = max_seq_length or sequence_length(flags, config)
  model_folder.check_length(length, config, path)
  return config


def sequence_length(flags: Flags, config: modeling.BertConfig) -> int:
  """--max_seq_length; by default, less for a model with fewer positions."""
  length = flags.max_seq_length
  if "max_seq_length" not in flags.given:
    length = min(length, config.max_position_embeddings)
  return length
