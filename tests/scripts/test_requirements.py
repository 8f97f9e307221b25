"""requirements*.txt: what each package is for, and its tested versions."""

import re

import pytest
import scripts
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


def _lines(name):
  return (scripts.ROOT / name).read_text("utf-8").splitlines()


FILES = sorted(path.name for path in scripts.ROOT.glob("requirements*.txt"))
PINS = [line for line in _lines("constraints.txt") if line[0] != "#"]
TESTED = {
  canonicalize_name(name): Version(version)
  for name, version in (pin.split("==") for pin in PINS)
}


@pytest.mark.parametrize("file", FILES)
def test_bounds_are_the_next_major_versions(file):
  is_explained = False
  for line in filter(None, _lines(file)):
    if not line.startswith("-r "):
      is_explained |= line.startswith("#")
      assert is_explained, line
    if line.startswith(("#", "-r ")):
      continue
    # What the job with the newest packages removes.
    lower, upper = re.fullmatch(r"(.*),<(\d+)", line).groups()
    requirement = Requirement(lower)
    tested = TESTED[canonicalize_name(requirement.name)]
    assert tested in requirement.specifier
    assert int(upper) == tested.major + 1
