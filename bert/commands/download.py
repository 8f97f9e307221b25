"""Downloads data and models, once.

    python download.py glue MRPC RTE --output_dir=glue
    python download.py squad --output_dir=squad
    python download.py model uncased_L-12_H-768_A-12

An interrupted download continues with the same command. The folder is printed.
"""

import itertools
import sys

from absl import flags

from bert.errors import UserError
from bert.data import datasets, downloads, files
from bert.training import common_flags, flag_checks, startup

FLAGS = flags.FLAGS

COMMANDS = ("glue", "squad", "model")


def define_flags() -> None:
  """Defines the flags; the first arguments are --command and --names.

  Flags may precede them as --name=value.
  """
  takewhile = itertools.takewhile
  before = takewhile(lambda a: a[:1] == "-" and "=" in a, sys.argv[1:])
  start = 1 + len(list(before))
  found = list(takewhile(lambda a: a[:1] != "-", sys.argv[start:]))
  if found:
    command, *names = found
    changed = [f"--command={command}"]
    changed += [f"--names={','.join(names)}"] if names else []
    sys.argv[start : start + len(found)] = changed
  flags.DEFINE_enum(
    "command", None, COMMANDS, "What to download; the first argument."
  )
  flags.DEFINE_list(
    "names",
    [],
    "The tasks of GLUE, or the models: releases of the original, such as "
    "uncased_L-2_H-128_A-2, or hf://organization/name. The next arguments.",
  )
  flags.DEFINE_string(
    "output_dir",
    None,
    "Folder for data; default: glue or squad, in the current folder. Models "
    "are in the cache.",
  )
  common_flags.define_download_flag()


def check_flags() -> None:
  """Raises UserError if a flag is missing or wrong."""
  if not FLAGS.command:
    raise UserError(
      f"no command; run python download.py {' or '.join(COMMANDS)} ..."
    )
  if FLAGS.command == "squad" and FLAGS.names:
    raise UserError(f"squad has no parts; omit {FLAGS.names[0]!r}")
  if FLAGS.command != "squad" and not FLAGS.names:
    raise UserError(
      f"{FLAGS.command} needs names; run python download.py "
      f"{'glue MRPC' if FLAGS.command == 'glue' else 'model NAME'}"
    )
  if FLAGS.command == "model" and FLAGS.output_dir:
    raise UserError("--output_dir is for data; omit it, or set BERT_CACHE")
  if FLAGS.command == "model":
    for name in FLAGS.names:
      downloads.check_name(name)
      if name in downloads.RELEASES and files.exists(name):
        raise UserError(
          f"{name} is also a file or folder here; move it, or run the command "
          f"in another folder"
        )
    return
  folder = FLAGS.output_dir or FLAGS.command
  if files.is_remote(folder):
    raise UserError(
      f"--output_dir={folder} is remote; pass a local folder, and copy it"
    )
  flag_checks.check_output_folder(folder)


def main() -> None:
  check_flags()
  folder = FLAGS.output_dir or FLAGS.command
  if FLAGS.command == "squad":
    print(f"SQuAD: {datasets.SQUAD_TERMS}", file=sys.stderr)
    print(datasets.fetch_squad(folder, FLAGS.offline))
  elif FLAGS.command == "model":
    for name in FLAGS.names:
      print(downloads.local_path(name))
  else:
    for name in list(map(datasets.find_glue, FLAGS.names)):
      print(f"{name}: {datasets.GLUE[name].terms}", file=sys.stderr)
      print(datasets.fetch_glue(name, folder, FLAGS.offline))


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
