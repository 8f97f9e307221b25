"""Two whole commands by turns, such as a training here and one elsewhere.

    python benchmarks/commands.py OURS THEIRS [ROUNDS]

OURS and THEIRS are commands of the shell, each in quotation marks. In both,
{round} stands for the number of the round, for example as a seed, and {folder}
for a new folder, which is deleted after the round. Prints the seconds of each,
the last line that it prints, TensorFlow's speed in multiplying matrices before
and after it, and at the end the medians of ROUNDS (5) rounds.
"""

import statistics
import subprocess
import sys
import tempfile
import time

import machine


def run(command, number):
  """Seconds of a command, and its last line of output."""
  with tempfile.TemporaryDirectory() as folder:
    # Not str.format, as a shell has other uses of braces.
    command = command.replace("{round}", f"{number}")
    command = command.replace("{folder}", folder)
    start = time.perf_counter()
    finished = subprocess.run(
      command,
      shell=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    seconds = time.perf_counter() - start
  lines = finished.stdout.splitlines() or [""]
  if finished.returncode:
    sys.exit("\n".join([f"failed: {command}", *lines[-20:]]))
  return seconds, lines[-1]


def peaks():
  """GFLOP/s of products of matrices in float32 and in bfloat16."""
  found = [machine.matmul_peak(dtype=x) for x in ("float32", "bfloat16")]
  return " and ".join(f"{peak / 1e9:.0f}" for peak in found)


def main(ours, theirs, rounds=5):
  print(machine.describe(), flush=True)
  times = {"ours": [], "theirs": []}
  for number in range(1, rounds + 1):
    for side, command in zip(times, (ours, theirs), strict=True):
      print(f"peaks of products: {peaks()} GFLOP/s", flush=True)
      seconds, last_line = run(command, number)
      times[side].append(seconds)
      print(f"{side}: {seconds:.1f} s  {last_line}", flush=True)
  print(f"peaks of products: {peaks()} GFLOP/s")
  for side, found in times.items():
    print(f"{side}: median {statistics.median(found):.1f} s")
  ratios = [b / a for a, b in zip(*times.values(), strict=True)]
  print(
    f"ratio: median {statistics.median(ratios):.2f} (min {min(ratios):.2f}, "
    f"max {max(ratios):.2f})"
  )


if __name__ == "__main__":
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
