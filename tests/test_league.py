"""benchmarks/league.py compares results before it times, and says what failed.

The other libraries are not installed here: tokenizers is in our environment,
and further sides are small programs.
"""

import subprocess
import sys

import pytest
import scripts

BENCHMARKS = scripts.ROOT / "benchmarks"


def run_league(cache, *flags):
  """The finished process of a small league, whose peers run in this Python."""
  python = cache / "torch/bin/python"
  python.parent.mkdir(parents=True)
  python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
  python.chmod(0o755)
  (cache / "torch/complete").touch()
  command = [sys.executable, BENCHMARKS / "league.py", "--small", *flags]
  return subprocess.run(
    [*command, f"--cache={cache}"], capture_output=True, text=True
  )


def cells(output):
  """The cells of each line of a Markdown table, without its header."""
  lines = [line for line in output.splitlines() if line.startswith("|")]
  return [[x.strip() for x in line.split("|")[1:-1]] for line in lines[2:]]


def test_small_rows(tmp_path):
  finished = run_league(tmp_path, "--rows=tokenizer,pretraining-data")
  assert finished.returncode == 0, finished.stderr
  ours, peer, one, two, original = cells(finished.stdout)
  assert ours[1:2] + ours[5:] == ["here", ""]
  assert peer[1:2] + peer[5:] == ["tokenizers", "equal"]
  assert float(peer[3]) == pytest.approx(
    float(peer[2]) / float(ours[2]), rel=0.02
  )
  assert one[1] == "here, workers: 1"
  assert two[5] == "equal files"
  assert original[2:5] == ["", "", ""]
  assert original[5].startswith("not measured: ")


def test_an_unknown_row_is_an_error_of_one_line(tmp_path):
  finished = run_league(tmp_path, "--rows=tokenizers")
  assert finished.returncode == 1
  assert finished.stderr.startswith("error: --rows=tokenizers: no such row")
  assert len(finished.stderr.splitlines()) == 1


PROGRAM = """
import sys, numpy
print(f"seconds = {sys.argv[2]}")
numpy.save(f"{sys.argv[1]}/result.npy", [float(sys.argv[3])])
"""


def test_a_side_that_differs_or_fails_is_listed_with_the_reason(
  tmp_path, monkeypatch
):
  monkeypatch.syspath_prepend(BENCHMARKS)
  import league
  from league_rows import Row, Side, close_arrays

  program = tmp_path / "program.py"
  program.write_text(PROGRAM)

  def side(name, *values):
    return Side(name, [str(program), "{output}", *values], check=close_arrays)

  row = Row(
    "a job",
    [
      side("here", "{round}", "1"),  # Takes 1, 2 and 3 seconds.
      side("equal", "4", "1.00001"),
      side("different", "1", "1.5"),
      side("failing", "1", "no number"),
      Side("absent", absent="not for this machine"),
    ],
  )
  runs, remarks = league.League("", str(tmp_path), 3).measure("job", row)
  lines = cells("|\n|\n" + "\n".join(league.lines_of(row, runs, remarks)))
  assert [line[:4] for line in lines] == [
    ["a job", "here", "2 (1 to 3)", ""],
    ["", "equal", "4 (4 to 4)", "2.00"],
    *(["", name, "", ""] for name in ("different", "failing", "absent")),
  ]
  assert [line[5] for line in lines] == [
    "",
    "equal to 1e-05",
    "not measured: results differ by 5.0e-01",
    "not measured: ValueError: could not convert string to float: 'no number'",
    "not measured: not for this machine",
  ]
