"""Two whole commands in turns, such as a training here and one elsewhere.

    python benchmarks/commands.py OURS THEIRS [ROUNDS]

OURS and THEIRS are shell commands, each in quotation marks. In both, {round}
stands for the number of the round, for example as a seed, and {folder} for a
new folder, which is deleted after the round. Prints the last line of output of
each, its peak memory, the peak of matrix multiplication before it, and the
seconds of ROUNDS (5) rounds. torch_mrpc.py and torch_pairs.py show examples.
"""

import os
import subprocess
import sys
import tempfile

import machine


def execute(line):
  """The last line of output of a shell command, and its peak memory in MiB."""
  process = subprocess.Popen(
    line,
    shell=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  lines = process.stdout.read().splitlines() or [""]
  _, status, usage = os.wait4(process.pid, 0)
  if status:
    sys.exit("\n".join([f"failed: {line}", *lines[-20:]]))
  # Linux reports units of 1,024 bytes, and at least the size of this process.
  return lines[-1], usage.ru_maxrss / 1024


def make_side(name, command):
  """A function that runs the next round and returns its seconds."""
  number = 0

  def run():
    nonlocal number
    number += 1
    peaks = [machine.matmul_peak(x) / 1e9 for x in ("float32", "bfloat16")]
    with tempfile.TemporaryDirectory() as folder:
      # Not str.format, since shells use braces, too.
      line = command.replace("{round}", f"{number}").replace("\n", " ")
      line = line.replace("{folder}", folder)
      found = []
      seconds = machine.timed(lambda: found.extend(execute(line)))
    last, mebibytes = found
    print(
      f"{name}: {seconds:.1f} s; {mebibytes:.0f} MiB; peak {peaks[0]:.0f} and "
      f"{peaks[1]:.0f} GFLOP/s; {last}",
      flush=True,
    )
    return seconds

  return run


def main(ours, theirs, rounds=5):
  print(machine.describe(), flush=True)
  sides = {"ours": ours, "theirs": theirs}
  machine.in_turns(
    {name: make_side(name, command) for name, command in sides.items()},
    int(rounds),
  )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(*sys.argv[1:])
