"""Runs the tests of termination_cases.py in a process of their own.

Native libraries that other tests load, such as OpenVINO, were seen to make
SIGTERM end the process instead of calling its handler.
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
