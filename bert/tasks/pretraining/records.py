"""The files of records that a pre-training reads, by its flags."""

from collections.abc import Mapping, Sequence

from bert.engine import record_files
from bert.errors import UserError
from bert.flags.values import Flags


def record_flags(flags: Flags) -> dict[str, str]:
  """The flag for the records of each split, "train" and "dev", in use."""
  flag_of = {"train": "input_file"} if flags.do_train else {}
  if flags.do_eval or flags.eval_steps:
    is_given = bool(flags.eval_input_file)
    flag_of["dev"] = "eval_input_file" if is_given else "input_file"
  return flag_of


def find_records(flags: Flags) -> dict[str, list[str]]:
  """The files of records by the flag that names them; empty ones left out."""
  found = {}
  for name in record_flags(flags).values():
    paths = flags.find_files(name)
    flags.refuse_pipes(name, paths)
    found[name] = record_files.without_empty(paths)
  return found


def check_layout(
  flags: Flags, files: Mapping[str, Sequence[str]]
) -> record_files.Layout:
  """The layout of all files, which the other flags must match."""
  layouts = {
    path: record_files.describe(path)
    for paths in files.values()
    for path in paths
  }
  first, layout = next(iter(layouts.items()))
  for path, found in layouts.items():
    if found != layout:
      raise UserError(
        f"{first} has {_in_words(layout)}, but {path} has {_in_words(found)}; "
        f"pass files that were made with the same settings"
      )
  sizes = {"max_seq_length": layout.max_seq_length}
  if layout.max_predictions_per_seq:  # Words are masked.
    sizes["max_predictions_per_seq"] = layout.max_predictions_per_seq
  wanted = {"dynamic_masking": len(sizes) == 1, **sizes}
  for name, value in wanted.items():
    if flags[name] != value:
      found = f"{first} was made for --{name}={value}; pass that"
      if name == "dynamic_masking":
        state = "not masked" if value else "masked already"
        found = f"the words of {first} are {state}; pass --{name}={value}"
      raise UserError(f"--{name}={flags[name]}, but {found}")
  return layout


def _in_words(layout):
  has_next = layout.next_sentence_prediction
  return (
    f"{layout.max_seq_length} positions, {layout.max_predictions_per_seq} of "
    f"them masked, {'with' if has_next else 'without'} next sentences"
  )
