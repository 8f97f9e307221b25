"""Finds the configuration, tokenizer and checkpoint of a model.

    model = resolve("uncased_L-12_H-768_A-12")
    model = resolve(flags.init_checkpoint, Overrides.of(flags.given))

No other module does, and here they are checked to fit each other;
`checkpoints.load_weights` reads the weights. Modules that need NumPy are
imported late, because scripts that write data need only `load_tokenizer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from absl import logging

import tokenization
from bert.data import downloads, files, text_files
from bert.errors import UserError, check_given

if TYPE_CHECKING:
  import modeling
  from bert.contract.task import Settings, Task

_CONFIG_NAME = "bert_config.json"

# Some models round vocab_size up to a multiple of 128.
_MOST_PADDING = 127


class Overrides(NamedTuple):
  """What is given instead of a model's own files; None for those.

  The names are those of flags, which messages name.
  """

  vocab_file: str | None = None
  spm_model_file: str | None = None
  bert_config_file: str | None = None
  do_lower_case: bool | None = None
  # What a training began with, and has not written to its own folder yet.
  init_checkpoint: str | None = None

  @classmethod
  def of(cls, given: Mapping[str, object]) -> Overrides:
    """Those among the flags that were given."""
    return cls(**{name: given.get(name) for name in cls._fields})


_NOTHING = Overrides()


class Model(NamedTuple):
  """A model: its parts, and where they were found."""

  config: modeling.BertConfig
  tokenizer: tokenization.FullTokenizer  # None in a pre-training of ids
  checkpoint: str  # see `checkpoints.find_checkpoint`; "" without weights
  folder: str = ""  # of the checkpoint, in which task.json is
  config_file: str | None = None
  # One of these at most; the other is None.
  vocab_file: str | None = None
  spm_model_file: str | None = None
  do_lower_case: bool | None = None
  init_checkpoint: str | None = None  # as a run of a script names it

  def config_json(self) -> str:
    """The content of a bert_config.json that records the casing."""
    fields = self.config.to_dict()
    if self.tokenizer and self.tokenizer.has_casing:
      lower_cases = self.tokenizer.basic_tokenizer.do_lower_case
      fields["do_lower_case"] = lower_cases
    return type(self.config).from_dict(fields).to_json_string()

  def contents(self) -> dict[str, str | bytes]:
    """The files that, beside weights, make a model folder, by name."""
    contents = {_CONFIG_NAME: self.config_json()}
    if self.spm_model_file:
      # Readers of a model folder look for *.model.
      name = os.path.basename(self.spm_model_file).removesuffix(".model")
      contents[f"{name}.model"] = files.read_bytes(self.spm_model_file)
    elif path := self.vocab_file:
      if not path.endswith(".json"):
        contents["vocab.txt"] = files.read_bytes(path)
      elif self.tokenizer.splits_words:
        pieces = self.tokenizer.vocab
        contents["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
      else:
        contents["tokenizer.json"] = files.read_bytes(path)
    return contents

  def flags(self) -> dict[str, object]:
    """The values of the flags that would name the same files."""
    names = ("vocab_file", "spm_model_file", "do_lower_case")
    values = {name: getattr(self, name) for name in names}
    return {**values, "bert_config_file": self.config_file}

  def settings(self, task: type[Task], is_required: bool = True) -> Settings:
    """What the folder remembers of a task; see `task_file.load`."""
    from bert.models import task_file

    return task_file.load(task, self.folder, is_required)

  def sequence_length(self, given: int | None, default: int) -> int:
    """A length that is given; by default, less for a model of few positions."""
    if given is None:
      return min(default, self.config.max_position_embeddings)
    self.check_length(given)
    return given

  def check_length(self, length: int) -> None:
    """Raises UserError for a length that the model has no positions for."""
    check_length(length, self.config, self.config_file or "the model")


def resolve(
  source: str | None,
  overrides: Overrides = _NOTHING,
  is_start: bool = False,
  needs_tokenizer: bool = True,
) -> Model:
  """The model of a path or a name, whose parts fit each other.

  The casing is as given, or as the configuration records, or as the name of the
  release says. Otherwise text is lower-cased if the vocabulary has no capitals.

  Args:
    source: a folder, the prefix of a checkpoint, or a name that
      `downloads.local_path` knows; None for no weights.
    overrides: what is given instead of the files beside the weights.
    is_start: whether the weights are only the start of others, so that
      word pieces may be others, too.
    needs_tokenizer: whether a model without a vocabulary is an error.
  """
  from bert.models import checkpoints, huggingface_config

  checkpoint = ""
  if source:
    source = downloads.local_path(source)
    if not files.isdir(source):
      checkpoint = checkpoints.find_checkpoint(source)
  folders = _folders(source, overrides)
  config_file = _find_config(overrides, folders)
  config = huggingface_config.read_config(config_file)
  if source:
    checkpoint = checkpoints.find_checkpoint(source)
  vocabulary = _find_vocabulary(overrides, folders)
  if needs_tokenizer and not vocabulary:
    raise _missing_vocabulary(overrides, folders)
  folder = checkpoint and (os.path.dirname(checkpoint) or ".")
  is_own = os.path.dirname(config_file) == folder
  binding = [
    *_casing_of(config_file, vars(config)),
    *(() if is_own else _recorded(checkpoint)),
    *_named(checkpoint),
  ]
  lower_cases = _choose_casing(overrides, binding, vocabulary)
  model = Model(
    config,
    vocabulary and _read_tokenizer(*vocabulary, lower_cases),
    checkpoint,
    folder,
    config_file,
    do_lower_case=lower_cases,
    **dict([vocabulary] if vocabulary else []),
  )
  if not vocabulary and overrides.do_lower_case is not None:
    config.do_lower_case = lower_cases
  if vocabulary:
    _check_vocabulary(model, vocabulary[1])
    if not hasattr(config, "do_lower_case"):
      _warn_of_casing(model.tokenizer, vocabulary[1])
  if vocabulary and checkpoint and not is_start:
    _check_trained_vocabulary(model)
  return model


def load_tokenizer(overrides: Overrides) -> tokenization.FullTokenizer:
  """The tokenizer of given files, with its casing; see `resolve`."""
  vocabulary = _find_vocabulary(overrides, ())
  if not vocabulary:
    raise _missing_vocabulary(overrides, ())
  lower_cases = _choose_casing(overrides, (), vocabulary)
  tokenizer = _read_tokenizer(*vocabulary, lower_cases)
  _warn_of_casing(tokenizer, vocabulary[1])
  return tokenizer


def find_casing(
  folder: str, config: modeling.BertConfig, vocab_file: str | None
) -> bool:
  """Whether a model of another format lower-cases text; see `resolve`."""
  for casing in (*_casing_of(folder, vars(config)), *_named(folder)):
    return casing.lower_cases
  lower_cases = _casing_of_pieces(vocab_file)
  if lower_cases:
    logging.warning(
      "%s does not say whether to lower-case text; assuming so; if the model "
      "is cased, set do_lower_case to false in the bert_config.json that "
      "--to=tensorflow writes",
      folder,
    )
  return lower_cases


# The files.


def _folders(source, overrides):
  """The folders in which files of the model may be, the first one's first."""
  from bert.models import model_folder

  paths = filter(None, (source, overrides.init_checkpoint))
  found = (model_folder.folder_of(path) for path in paths)
  return list(filter(files.isdir, dict.fromkeys(found)))


def _find_config(overrides, folders):
  from bert.models import model_folder

  if path := overrides.bert_config_file:
    _check_given_file("bert_config_file", path)
    return path
  for folder in folders:
    if path := model_folder.find_config(folder):
      return path
  if not folders:
    check_given("--bert_config_file", None, "a value")
  raise model_folder.missing_config(folders[0])


def _find_vocabulary(overrides, folders):
  """The flag for a vocabulary, and its path; None if there is none."""
  if overrides.vocab_file and overrides.spm_model_file:
    logging.warning(
      "--vocab_file=%s is not used; omit it or --spm_model_file",
      overrides.vocab_file,
    )
  for flag in ("spm_model_file", "vocab_file"):
    if path := getattr(overrides, flag):
      _check_given_file(flag, path)
      return flag, path
  if overrides.bert_config_file:  # The model is described by flags alone.
    return None
  for folder in folders:
    from bert.models import model_folder

    if path := model_folder.find_vocabulary(folder):
      is_sentencepiece = path.endswith(".model")
      return "spm_model_file" if is_sentencepiece else "vocab_file", path
  return None


def _check_given_file(flag, path):
  files.check_is_file(path, f"--{flag}={path}", "pass the path of a file")
  files.refuse_pipe(path, f"--{flag}={path}")


def _missing_vocabulary(overrides, folders):
  if overrides.bert_config_file or not folders:
    check_given("--vocab_file", None, "a value")
  from bert.models import model_folder

  return model_folder.missing_vocabulary(folders[0])


def _read_tokenizer(flag, path, do_lower_case):
  is_sentencepiece = flag == "spm_model_file"
  if not is_sentencepiece:
    text_files.check_utf8(path)  # Without some bytes, two pieces may be one.
  tokenizer = tokenization.FullTokenizer(
    None if is_sentencepiece else path,
    do_lower_case,
    path if is_sentencepiece else None,
  )
  tokenization.check_special_pieces(tokenizer, path)
  return tokenizer


# The casing.


class _Casing(NamedTuple):
  """What a file or a name says about the casing."""

  source: str
  lower_cases: bool


def _casing_of(path: str, fields: Mapping) -> Iterator[_Casing]:
  """Yields what the fields of a configuration record, if they do."""
  if "do_lower_case" in fields:
    files.check_types(path, fields, {"do_lower_case": bool})
    yield _Casing(path, fields["do_lower_case"])


def _recorded(path: str | None) -> Iterator[_Casing]:
  """Yields what bert_config.json in or beside a path records, if it does."""
  if path:
    folder = path if files.isdir(path) else os.path.dirname(path)
    config = os.path.join(folder, _CONFIG_NAME)
    if files.isfile(config) and not files.is_pipe(config):
      yield from _casing_of(config, files.read_json(config, dict))


def _named(path: str | None) -> Iterator[_Casing]:
  """Yields what the name of a release says, if a path has one."""
  if path and not files.is_remote(path):
    path = os.path.abspath(path)
  if release := tokenization.find_release(path):
    yield _Casing(*release)


def _choose_casing(
  overrides: Overrides,
  binding: Iterable[_Casing],
  vocabulary: tuple[str, str] | None,
) -> bool:
  """Whether to lower-case text, which must agree with what is binding."""
  chosen, path = overrides.do_lower_case, vocabulary and vocabulary[1]
  binding = list(binding)
  if chosen is None:
    initial = overrides.init_checkpoint
    initial = initial and downloads.local_path(initial)
    others = (
      *(*_recorded(initial), *_named(initial)),
      *(*_recorded(path), *_named(path)),
    )
    hints = (*binding, *others)
    chosen = hints[0].lower_cases if hints else _casing_of_pieces(path)
  for source, lower_cases in binding:
    tokenization.check_casing(chosen, lower_cases, source)
  return chosen


def _casing_of_pieces(path):
  """Whether the model of a vocabulary lower-cases text; warns if not."""
  if not path or not tokenization.has_word_pieces(path):
    return True
  is_cased = tokenization.is_cased(tokenization.load_vocab(path))
  if is_cased:
    logging.log_first_n(
      logging.WARNING,
      "%s has capitals, so text is not lower-cased; bert_config.json says "
      'nothing else (its "do_lower_case" would)',
      1,
      path,
    )
  return not is_cased


def _warn_of_casing(tokenizer, path):
  """Warns once if a casing does not suit the word pieces of a file."""
  if not tokenizer.splits_words:
    return
  lower_cases = tokenizer.basic_tokenizer.do_lower_case
  words = [piece for piece in tokenizer.vocab if piece[:1] not in ("[", "<")]
  is_cased = tokenization.is_cased(words)
  # Many scripts have no capitals.
  has_small = any(piece.upper() != piece for piece in words)
  if is_cased == lower_cases and (is_cased or has_small):
    logging.log_first_n(
      logging.WARNING,
      "%s has %s, but --do_lower_case is %s; pass --do_lower_case=%s",
      1,
      path,
      "capitals" if is_cased else "no capitals",
      lower_cases,
      not lower_cases,
    )


# Whether the parts fit each other.


def _check_vocabulary(model: Model, path: str) -> None:
  """Raises UserError, or warns, if a vocabulary is that of another model."""
  size = max(model.tokenizer.vocab.values(), default=-1) + 1
  wanted = model.config.vocab_size
  if size > wanted:
    raise UserError(
      f"{path} has {size} entries, more than vocab_size={wanted} of "
      f"{model.config_file}; pass two files of the same model"
    )
  if size + _MOST_PADDING < wanted:
    logging.log_first_n(
      logging.WARNING,
      "The vocabulary has %d entries, far fewer than vocab_size=%d of %s; "
      "check that both belong to the same model",
      1,
      size,
      wanted,
      model.config_file,
    )


def _check_trained_vocabulary(model: Model) -> None:
  """Raises UserError for another vocabulary than a model was trained with.

  A release's own may have been edited: it does not record the casing.
  """
  from bert.models import model_folder

  path = model_folder.find_vocabulary(model.folder or ".")
  config = os.path.join(model.folder, _CONFIG_NAME)
  fields = files.read_json(config, dict)
  if not (path and fields) or path in (model.vocab_file, model.spm_model_file):
    return
  is_whole = path.endswith(".json") and not tokenization.has_word_pieces(path)
  if "do_lower_case" not in fields and not is_whole:
    return
  _, given = model.contents().values()
  if _pieces(given) != _pieces(files.read_bytes(path)):
    flag = "spm_model_file" if path.endswith(".model") else "vocab_file"
    raise UserError(
      f"the model was trained with another vocabulary; pass --{flag}={path}"
    )


def _pieces(content: str | bytes) -> bytes:
  """The content of a vocabulary, whatever ends its lines and the file."""
  content = content.encode() if isinstance(content, str) else content
  return content.replace(b"\r", b"").rstrip()


def check_length(length: int, config: modeling.BertConfig, model: str) -> None:
  """Raises UserError for a length that a model has no positions for."""
  limit = config.max_position_embeddings
  if length > limit:
    raise UserError(
      f"--max_seq_length={length} is more than the {limit} positions of "
      f"{model}; lower it"
    )
