"""The model that the flags name: its tokenizer, configuration and files.

Imports the modules that need NumPy lazily, so that scripts that write data
start faster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from absl import flags, logging

import tokenization
from bert.errors import UserError
from bert.data import downloads, files, text_files
from bert.training import common_flags, flag_checks

if TYPE_CHECKING:
  import modeling

FLAGS = flags.FLAGS


def vocab_file() -> str | None:
  """--vocab_file; by default, that of the model's folder.

  The default applies only if --bert_config_file is omitted as well.
  """
  if (
    FLAGS.vocab_file
    or FLAGS.spm_model_file
    or common_flags.given("bert_config_file")
  ):
    return FLAGS.vocab_file
  return _file_of_model("vocab_file")


def bert_config_file() -> str | None:
  """--bert_config_file; by default, that of the model's folder."""
  return FLAGS.bert_config_file or _file_of_model("bert_config_file")


def _file_of_model(flag):
  """The default of a flag: a file in the folder of the model, or None."""
  for folder in _model_folders():
    from bert.training import model_folder

    names = {
      "vocab_file": model_folder.VOCAB_NAMES,
      "bert_config_file": model_folder.config_names(folder),
    }
    paths = (os.path.join(folder, name) for name in names[flag])
    if found := next(filter(files.isfile, paths), None):
      return found
  return None


def _model_folders():
  """Yields the folders in which the files of the model may be.

  A run that does not train uses the model in --output_dir, if there is one.
  """
  if _uses_trained() and FLAGS.output_dir:
    from bert.training import model_folder

    weights = model_folder.initial_weights(FLAGS.output_dir, None)
    if folder := model_folder.weights_folder(FLAGS.output_dir, weights):
      yield folder
  if given := common_flags.given("init_checkpoint"):
    yield downloads.local_path(given)


def _uses_trained():
  """Whether the script can train a model, but this run only uses one."""
  return common_flags.given("do_train") is False


def model_files() -> list[str]:
  """The files of the model that the flags name, with its checkpoint's."""
  from bert.training import checkpoints

  named = (vocab_file(), FLAGS.spm_model_file, bert_config_file())
  return [
    *filter(None, named),
    *checkpoints.checkpoint_files(FLAGS.init_checkpoint),
  ]


def load_tokenizer() -> tokenization.FullTokenizer:
  """The tokenizer that the flags name."""
  flag, path = "vocab_file", vocab_file()
  if FLAGS.spm_model_file:
    flag, path = "spm_model_file", FLAGS.spm_model_file
    flag_checks.warn_of_unused("omit it or --spm_model_file", "vocab_file")
  if not path:
    _check_needs_no_sentencepiece()
    if given := common_flags.given("init_checkpoint"):
      from bert.training import checkpoints

      checkpoints.find_checkpoint(given)  # Report a wrong path.
    elif _uses_trained():
      raise UserError(
        f"--vocab_file is required, because --output_dir={FLAGS.output_dir} "
        f"holds no model; pass it, or another --output_dir"
      )
    flag_checks.require(flag)
  if FLAGS[flag].value:
    flag_checks.require_file(flag)
    flag_checks.refuse_pipes(flag, [FLAGS[flag].value])
  if flag == "vocab_file":
    text_files.check_utf8(path)
  tokenization.validate_case_matches_checkpoint(
    FLAGS.do_lower_case, common_flags.given("init_checkpoint")
  )
  try:
    tokenizer = tokenization.FullTokenizer(
      vocab_file(), FLAGS.do_lower_case, FLAGS.spm_model_file
    )
  except UserError as error:
    name = f"--{flag}: " if FLAGS[flag].value else ""
    raise UserError(f"{name}{error}") from error
  check_vocabulary_file(tokenizer, flag, path)
  return tokenizer


def _check_needs_no_sentencepiece():
  """Raises UserError if the model's folder holds a SentencePiece model."""
  for folder in filter(files.isdir, _model_folders()):
    from bert.training import model_folder

    path = model_folder.find_vocabulary(folder)
    if path and path.endswith(".model"):
      raise UserError(f"--spm_model_file is required; pass {path}")


def check_vocabulary_file(
  tokenizer: tokenization.FullTokenizer, flag: str, path: str
) -> None:
  """Raises UserError unless special pieces exist; warns of repeated pieces.

  Args:
    tokenizer: has the vocabulary.
    flag, path: the flag that names its file, and the file.
  """
  for special in (*tokenizer.special[:2], tokenizer.unk_token):
    if special not in tokenizer.vocab:
      raise UserError(
        f"--{flag}={path} has no piece {special}; pass the file that came with "
        f"the model"
      )
  if not tokenizer.splits_words:
    return
  if repeated := find_repeated(tokenizer, path):
    logging.warning(
      "%s: %r is in lines %d and %d; its id is that of the last line",
      path,
      *repeated,
    )


def find_repeated(
  tokenizer: tokenization.FullTokenizer, path: str
) -> tuple[str, int, int] | None:
  """A piece that a vocabulary repeats, its first line and its last, or None.

  Args:
    tokenizer: has the vocabulary.
    path: its file.
  """
  # A piece gets the id of its last line, so the ids of repeated lines are free.
  unused = set(range(len(tokenizer.vocab))) ^ set(tokenizer.vocab.values())
  if not unused:
    return None
  first = min(unused)
  piece = files.read_bytes(path).split(b"\n")[first].decode().strip()
  return piece, first + 1, tokenizer.vocab[piece] + 1


def warn_of_casing(pieces: Iterable[str], path: str) -> None:
  """Warns once if --do_lower_case does not suit the word pieces of a file."""
  words = [piece for piece in pieces if not piece.startswith(("[", "<"))]
  is_cased = tokenization.is_cased(words)
  # Many scripts have no capitals.
  has_small = any(piece.upper() != piece for piece in words)
  if is_cased == FLAGS.do_lower_case and (is_cased or has_small):
    logging.log_first_n(
      logging.WARNING,
      "%s has %s, but --do_lower_case is %s; pass --do_lower_case=%s",
      1,
      path,
      "capitals" if is_cased else "no capitals",
      FLAGS.do_lower_case,
      not FLAGS.do_lower_case,
    )


def release_files(config: modeling.BertConfig) -> dict[str, str | bytes]:
  """The files that turn a checkpoint into a model folder, by name.

  Without a vocabulary among the flags, the configuration alone; it then records
  the casing only if --do_lower_case is given.
  """
  fields = config.to_dict()
  contents = {}
  path = FLAGS.spm_model_file or vocab_file()
  is_json = bool(path) and path.endswith(".json")
  is_whole = is_json and not tokenization.has_word_pieces(path)
  if (path or FLAGS["do_lower_case"].present) and not is_whole:
    fields["do_lower_case"] = FLAGS.do_lower_case
  if is_json and not is_whole:
    pieces = tokenization.load_vocab(path)
    contents["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
  elif path:
    name = "tokenizer.json" if is_whole else "vocab.txt"
    if FLAGS.spm_model_file:
      # Readers of a model folder look for *.model.
      name = os.path.basename(path).removesuffix(".model") + ".model"
    contents[name] = files.read_bytes(path)
  released = type(config).from_dict(fields)
  return {"bert_config.json": released.to_json_string(), **contents}


def load_config(
  tokenizer: tokenization.FullTokenizer | None,
  max_seq_length: int | None = None,
) -> modeling.BertConfig:
  """The BertConfig that the flags name, checked against tokenizer and length.

  Args:
    tokenizer: the tokenizer; None if the flags name none.
    max_seq_length: the sequence length S; None for `sequence_length`.
  """
  from bert.training import huggingface_config

  if not bert_config_file():
    flag_checks.require("bert_config_file")
  if FLAGS.bert_config_file:
    flag_checks.require_file("bert_config_file")
    flag_checks.refuse_pipes("bert_config_file", [FLAGS.bert_config_file])
  try:
    config = huggingface_config.read_config(bert_config_file())
  except UserError as error:
    flag = "--bert_config_file: " if FLAGS.bert_config_file else ""
    raise UserError(f"{flag}{error}") from error
  if tokenizer:
    _check_tokenizer_fits(config, tokenizer)
  elif FLAGS["do_lower_case"].present:  # See `release_files`.
    check_casing(config, bert_config_file())
    tokenization.validate_case_matches_checkpoint(
      FLAGS.do_lower_case, common_flags.given("init_checkpoint")
    )
  length = sequence_length(config) if max_seq_length is None else max_seq_length
  if length < 3:
    raise UserError(
      f"--max_seq_length={length} leaves no room for text beside [CLS] and two "
      f"[SEP]; pass 3 or more"
    )
  if length > config.max_position_embeddings:
    raise UserError(
      f"--max_seq_length={length} exceeds the "
      f"{config.max_position_embeddings} positions of "
      f"{bert_config_file()}; lower it"
    )
  return config


def sequence_length(config: modeling.BertConfig) -> int:
  """--max_seq_length; by default, less for a model with fewer positions."""
  length = FLAGS.max_seq_length
  if FLAGS["max_seq_length"].using_default_value:
    length = min(length, config.max_position_embeddings)
  return length


def _check_tokenizer_fits(config, tokenizer):
  """Raises UserError unless vocabulary and casing match the configuration."""
  from bert.training import model_folder

  size = max(tokenizer.vocab.values(), default=-1) + 1
  if size > config.vocab_size:
    name = "spm_model_file" if FLAGS.spm_model_file else "vocab_file"
    raise UserError(
      f"--{name}={FLAGS.spm_model_file or vocab_file()} has {size} entries, "
      f"more than vocab_size={config.vocab_size} of {bert_config_file()}; pass "
      f"two files of the same model"
    )
  model_folder.warn_of_few_entries(size, config, bert_config_file())
  check_casing(config, bert_config_file())
  if tokenizer.splits_words and not hasattr(config, "do_lower_case"):
    warn_of_casing(tokenizer.vocab, vocab_file())


def check_casing(config: modeling.BertConfig, path: str) -> None:
  """Raises UserError if --do_lower_case contradicts a model.

  Args:
    config: its configuration. Models that this project has trained, and those
      in Hugging Face's format, record their casing.
    path: where it is from.
  """
  do_lower_case = getattr(config, "do_lower_case", FLAGS.do_lower_case)
  if do_lower_case != FLAGS.do_lower_case:
    raise UserError(
      f"--do_lower_case={FLAGS.do_lower_case} contradicts {path}: the model "
      f"was trained with --do_lower_case={do_lower_case}; pass that"
    )
