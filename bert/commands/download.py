"""Downloads data and models, once.

    python download.py glue MRPC RTE --output_dir=glue
    python download.py squad --output_dir=squad
    python download.py model uncased_L-12_H-768_A-12

The folder is printed. After an interrupted download, run the same command
again.
"""

import itertools
import sys

from bert.data import datasets, downloads
from bert.errors import check_given
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, check_output_folder, table
from bert.scripts import startup

COMMANDS = ("glue", "squad", "model")


# fmt: off
FLAGS = table(
  (
    Flag("command", None, "What to download; the first argument.",
         choices=COMMANDS),
    Flag("names", [],
         "The tasks of GLUE, or the models: releases of the original, such as "
         "uncased_L-2_H-128_A-2, or hf://organization/name. The next "
         "arguments."),
    Flag("output_dir", None,
         "Folder for data; default: glue or squad, in the current folder. "
         "Models are in the cache.", kind=PATH),
    flag_table.OFFLINE,
  )
)
# fmt: on


def name_command(arguments: list[str]) -> list[str]:
  """Makes the first arguments --command and --names.

  Flags may precede them as --name=value.
  """
  takewhile = itertools.takewhile
  start = len(list(takewhile(lambda a: a[:1] == "-" and "=" in a, arguments)))
  words = list(takewhile(lambda a: a[:1] != "-", arguments[start:]))
  if not words:
    return arguments
  command, *names = words
  changed = [f"--command={command}"]
  changed += [f"--names={','.join(names)}"] if names else []
  return [*arguments[:start], *changed, *arguments[start + len(words) :]]


def check_flags(flags: Flags) -> None:
  """Raises UserError if a flag is missing or wrong."""
  is_complete = bool(flags.names) == (flags.command != "squad")
  check_given(
    "a complete command",
    flags.command and is_complete,
    "squad, or glue TASK..., or model NAME..., after download.py",
  )
  if flags.command == "model":
    flags.warn_if_given("set BERT_CACHE to move models", "output_dir")
    for name in flags.names:
      downloads.check_name(name)
    return
  folder = flags.output_dir or flags.command
  check_output_folder(folder, may_be_remote=False)


def main(flags: Flags) -> dict[str, list[str]]:
  check_flags(flags)
  folder = flags.output_dir or flags.command
  paths = []
  if flags.command == "squad":
    print(f"SQuAD: {datasets.SQUAD_TERMS}", file=sys.stderr)
    paths.append(datasets.fetch_squad(folder, flags.offline))
    print(paths[-1])
  elif flags.command == "model":
    for name in flags.names:
      paths.append(downloads.local_path(name))
      print(paths[-1])
  else:
    for name in list(map(datasets.find_glue, flags.names)):
      print(f"{name}: {datasets.GLUE[name].terms}", file=sys.stderr)
      paths.append(datasets.fetch_glue(name, folder, flags.offline))
      print(paths[-1])
  return {"paths": paths}


run, command = startup.script(main, FLAGS, name_command)
