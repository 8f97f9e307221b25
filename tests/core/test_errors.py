"""Messages to users, which hold values of any length."""

import pathlib
import pickle
import re

import pytest

from bert import errors
from bert.errors import UserError, did_you_mean, listing, shortened


def test_a_short_message_is_whole():
  message = "--task_name=" + "x" * 1000 + " is unknown; pass MRPC"
  assert str(UserError(message)) == message


def test_a_long_message_keeps_flag_and_remedy():
  error = UserError("--task_name=" + "x" * 10**6 + " is unknown; pass MRPC")
  assert len(str(error)) < 1600
  assert str(error).startswith("--task_name=xxx")
  assert str(error).endswith("xxx is unknown; pass MRPC")
  assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_missing_package_of_a_clone():
  with pytest.raises(UserError, match=r"run pip install -r requirements-serv"):
    errors.require_package("no_such_package", "--x", "requirements-serve.txt")


def test_a_missing_package_after_pip_install(monkeypatch, tmp_path):
  """The package stands in site-packages, without the files of the clone."""
  root = pathlib.Path(__file__).parent.parent.parent
  project = (root / "pyproject.toml").read_text(encoding="utf-8")
  (name,) = re.findall(r'^name = "(.*)"', project, re.M)
  monkeypatch.setattr(errors, "__file__", str(tmp_path / "bert" / "errors.py"))
  with pytest.raises(UserError) as error:
    errors.require_package("no_such_package", "--x", "requirements-serve.txt")
  wanted = f"; run pip install '{name}[serve]'"
  assert str(error.value).endswith(wanted)


def test_listing():
  assert listing([]) == ""
  assert listing(["a", "b, c"]) == "'a', 'b, c'"
  numbers = [str(n) for n in range(23)]
  assert listing(numbers[:20]).endswith("'18', '19'")
  assert listing(numbers).endswith("'18', '19' and 3 more")
  assert listing(["x" * 61]) == f"'{'x' * 57}...'"
  assert shortened("x" * 60) == "x" * 60


@pytest.mark.parametrize(
  ("word", "hint"),
  [
    ("lable", "; did you mean 'Label'?"),
    ("TEXT", "; did you mean 'text'?"),
    ("other", ""),
    ("", ""),
  ],
)
def test_did_you_mean(word, hint):
  assert did_you_mean(word, ["text", "Label"]) == hint
  unquoted = did_you_mean(word, ["text", "Label"], shown=str)
  assert unquoted == hint.replace("'", "")
