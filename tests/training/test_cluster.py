"""TF_CONFIG is checked."""

import json

import pytest

from bert.engine import devices
from bert.errors import UserError

HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222", "[::1]:2222"]


def _config(jobs, kind="worker", index=0):
  return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


def test_the_hosts_of_a_run():
  assert devices.read_cluster(None) is devices.read_cluster("") is None
  found = devices.read_cluster(_config({"worker": HOSTS}, index=2))
  names = ["worker 0", "worker 1", "worker 2"]
  assert found.tasks == tuple(zip(names, HOSTS, strict=True))
  assert found.index == 2
  jobs = {"worker": HOSTS[1:], "chief": HOSTS[:1]}
  assert devices.read_cluster(_config(jobs, "chief")).index == 0
  found = devices.read_cluster(_config(jobs))
  assert found.tasks[0] == ("chief 0", HOSTS[0])
  assert found.index == 1


@pytest.mark.parametrize(
  "text",
  [
    "{",
    "[]",
    '{"cluster": {"worker": ["a:1"]}}',
    _config(["a:1"]),
    _config({"worker": "a:1"}),
    _config({"worker": HOSTS}, index="first"),
    _config({}),
    _config({"worker": HOSTS}, index=3),
    _config({"worker": HOSTS}, "chief"),
  ],
)
def test_what_is_wrong_with_it(text):
  with pytest.raises(UserError, match=r"^TF_CONFIG='.*': expected JSON with"):
    devices.read_cluster(text)
