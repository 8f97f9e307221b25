"""The record files of a pre-training, from its flags."""

from collections.abc import Mapping, Sequence

from bert.engine import record_files
from bert.errors import UserError
from bert.flags.values import Flags


def record_flags(flags: Flags) -> dict[str, str]:
  """The flag for the records of each split in use, "train" and "dev"."""
  flag_of = {"train": "input_file"} if flags.do_train else {}
  if flags.do_eval or flags.eval_steps:
    is_given = bool(flags.eval_input_file)
    flag_of["dev"] = "eval_input_file" if is_given else "input_file"
  return flag_of


def find_records(flags: Flags) -> dict[str, list[str]]:
  """The record files by flag, without empty files."""
  paths_by_flag = {}
  for name in record_flags(flags).values():
    paths = flags.find_files(name)
    flags.refuse_pipes(name, paths)
    paths_by_flag[name] = record_files.without_empty(paths)
  return paths_by_flag


def check_layout(
  flags: Flags, files: Mapping[str, Sequence[str]]
) -> record_files.Layout:
  """The layout of all files; UserError unless the other flags match it."""
  layouts = {
    path: record_files.describe(path)
    for paths in files.values()
    for path in paths
  }
  first, layout = next(iter(layouts.items()))
  for path, other in layouts.items():
    if other != layout:
      raise UserError(
        f"{first} has {_in_words(layout)}, but {path} has {_in_words(other)}; "
        f"pass files that were made with the same settings"
      )
  sizes = {"max_seq_length": layout.max_seq_length}
  if layout.max_predictions_per_seq:  # Words are masked.
    sizes["max_predictions_per_seq"] = layout.max_predictions_per_seq
  expected = {"dynamic_masking": len(sizes) == 1, **sizes}
  for name, value in expected.items():
    if flags[name] != value:
      problem = f"{first} was made for --{name}={value}; pass that value"
      if name == "dynamic_masking":
        state = "not masked" if value else "masked already"
        problem = f"the words of {first} are {state}; pass --{name}={value}"
      raise UserError(f"--{name}={flags[name]}, but {problem}")
  return layout


def _in_words(layout):
  has_next = layout.next_sentence_prediction
  return (
    f"{layout.max_seq_length} positions, {layout.max_predictions_per_seq} of "
    f"them masked, {'with' if has_next else 'without'} next sentences"
  )
