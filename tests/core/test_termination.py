"""Runs the tests of termination_cases.py in a process of their own.

After tests of exports, the process may have a stack for signals that a library
has freed. Then the kernel ends it with SIGSEGV at the next signal.
"""

import pathlib

import scripts


def test_in_a_process_of_its_own(tmp_path):
  path = pathlib.Path(__file__).with_name("termination_cases.py")
  script = tmp_path / "run.py"
  script.write_text(
    f"import pytest, sys; sys.exit(pytest.main(['-n', '0', {str(path)!r}]))"
  )
  output, _ = scripts.fork(script)
  assert " passed" in output or "[100%]" in output
