"""Runs the tests of termination_cases.py in a process of their own.

After tests of exports, the process may have a stack for signals that a library
has freed. Then the kernel ends it with SIGSEGV at the next signal.
"""

import pathlib
import subprocess
import sys

import scripts


def test_in_a_process_of_its_own():
  path = pathlib.Path(__file__).with_name("termination_cases.py")
  result = subprocess.run(
    [sys.executable, "-m", "pytest", "-n", "0", str(path)],
    cwd=scripts.ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stdout + result.stderr
