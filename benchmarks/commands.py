"""Two whole commands in turns, such as a training here and one elsewhere.

    python benchmarks/commands.py OURS THEIRS [ROUNDS]

OURS and THEIRS are shell commands, each in quotation marks. In both, {round}
stands for the number of the round, for example as a seed, and {folder} for a
new folder, which is deleted after the round. Prints the last line of output of
each, the peak of matrix multiplication before it, and the seconds of ROUNDS (5)
rounds. torch_mrpc.py shows an example.
"""

import subprocess
import sys
import tempfile

import machine


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
      lines = []

      def execute():
        finished = subprocess.run(
          line,
          shell=True,
          stdout=subprocess.PIPE,
          stderr=subprocess.STDOUT,
          text=True,
        )
        lines.extend(finished.stdout.splitlines() or [""])
        if finished.returncode:
          sys.exit("\n".join([f"failed: {line}", *lines[-20:]]))

      seconds = machine.timed(execute)
    print(
      f"{name}: {seconds:.1f} s; peak {peaks[0]:.0f} and {peaks[1]:.0f} "
      f"GFLOP/s; {lines[-1]}",
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
