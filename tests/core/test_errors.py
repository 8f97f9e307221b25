"""Messages to users, which hold values of any length."""

import pickle

from bert.errors import UserError


def test_a_short_message_is_whole():
  message = "--task_name=" + "x" * 1000 + " is unknown; pass MRPC"
  assert str(UserError(message)) == message


def test_a_long_message_keeps_flag_and_remedy():
  error = UserError("--task_name=" + "x" * 10**6 + " is unknown; pass MRPC")
  assert len(str(error)) < 1600
  assert str(error).startswith("--task_name=xxx")
  assert str(error).endswith("xxx is unknown; pass MRPC")
  assert str(pickle.loads(pickle.dumps(error))) == str(error)
