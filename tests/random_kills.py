"""Kills a training at random moments and compares it with one that was not.

    python tests/random_kills.py [--seed=SEED] KILLS SCRIPT FLAGS...

FLAGS are a whole command without --output_dir. Both runs must leave the same
files with the same bytes, apart from event files, flags.json, which has the
name of the folder, and report.html, which has the speed. Prints the newest
checkpoint at each kill. A training that ends before its kill is compared, and
another one begins.

The seed, which is printed, determines the moments of the kills as parts of the
time that an uninterrupted training takes.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import tempfile
import time

import scripts

DIFFERENT = ("events.out.tfevents.", "flags.json", "report.html")


def kill_after(seconds, script, *flags):
  """Starts a script and kills it; returns whether it was still running."""
  process = scripts.Fork(script, *flags)
  time.sleep(seconds)
  with contextlib.suppress(ProcessLookupError):
    os.kill(process.pid, signal.SIGKILL)
  status, _, log = process.wait()
  assert status in (0, -signal.SIGKILL), log
  return status != 0


def contents(folder):
  """The bytes of each file by name, but for those that must differ."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in pathlib.Path(folder).rglob("*")
    if path.is_file() and not path.name.startswith(DIFFERENT)
  }


def compare(whole, killed):
  """Returns the names of the files, which must be the same in both folders."""
  expected, found = contents(whole), contents(killed)
  assert found.keys() == expected.keys(), (found.keys(), expected.keys())
  differing = [n for n, content in expected.items() if found[n] != content]
  assert not differing, differing
  return ", ".join(sorted(expected))


def newest_step(folder):
  """The step of the newest training checkpoint; 0 if there is none."""
  paths = pathlib.Path(folder).glob("model.ckpt-*.index")
  return max((int(path.stem.rsplit("-")[-1]) for path in paths), default=0)


def parse_arguments():
  parser = argparse.ArgumentParser()
  parser.add_argument("--seed", type=int, default=random.randrange(2**32))
  parser.add_argument("kills", type=int)
  parser.add_argument("script")
  parser.add_argument("flags", nargs=argparse.REMAINDER)
  return parser.parse_args()


def main(seed, kills, script, flags):
  print(f"--seed={seed}", flush=True)
  draw = random.Random(seed)
  with tempfile.TemporaryDirectory() as folder:
    whole, killed = (f"{folder}/{name}" for name in ("whole", "killed"))
    scripts.fork(script, "--help", status=1)  # Loads TensorFlow.
    start = time.monotonic()
    scripts.fork(script, *flags, f"--output_dir={whole}")
    longest = time.monotonic() - start
    count = 0
    while count < kills:
      delay = draw.uniform(0, longest)
      if kill_after(delay, script, *flags, f"--output_dir={killed}"):
        count += 1
        step = newest_step(killed)
        print(f"kill {count} after {delay:.1f} s at step {step}", flush=True)
      else:
        print("ended before; the same files:", compare(whole, killed))
        shutil.rmtree(killed)
    scripts.fork(script, *flags, f"--output_dir={killed}")
    print("ended; the same files:", compare(whole, killed))


if __name__ == "__main__":
  main(**vars(parse_arguments()))
