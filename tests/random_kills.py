"""Kills a training at random moments and compares it with one that was not.

    python tests/random_kills.py KILLS SCRIPT FLAGS...

FLAGS are a whole command without --output_dir. Both runs must leave the same
files with the same bytes, apart from event files and flags.json, which has the
name of the folder. Prints the newest checkpoint at each kill.
"""

import contextlib
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import scripts

DIFFERENT = ("events.out.tfevents.", "flags.json")


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
    path.name: path.read_bytes()
    for path in pathlib.Path(folder).iterdir()
    if not path.name.startswith(DIFFERENT)
  }


def main(kills, script, *flags):
  with tempfile.TemporaryDirectory() as folder:
    whole, killed = (f"{folder}/{name}" for name in ("whole", "killed"))
    scripts.fork(script, "--help", status=1)  # Loads TensorFlow.
    start = time.monotonic()
    scripts.fork(script, *flags, f"--output_dir={whole}")
    longest = time.monotonic() - start
    count = 0
    while count < int(kills):
      delay = random.uniform(0, longest)
      if kill_after(delay, script, *flags, f"--output_dir={killed}"):
        count += 1
        names = os.listdir(killed) if os.path.isdir(killed) else []
        steps = [n[11:-6] for n in names if n.endswith(".index") and "-" in n]
        newest = max(map(int, steps), default=0)
        print(f"kill {count} after {delay:.1f} s at step {newest}", flush=True)
    scripts.fork(script, *flags, f"--output_dir={killed}")
    expected, found = contents(whole), contents(killed)
    assert found.keys() == expected.keys(), (found.keys(), expected.keys())
    differing = [n for n, content in expected.items() if found[n] != content]
    assert not differing, differing
    print(f"{len(expected)} files are the same: {', '.join(sorted(expected))}")


if __name__ == "__main__":
  main(*sys.argv[1:])
