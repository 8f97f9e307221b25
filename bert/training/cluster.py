"""The hosts of a run, which the environment variable TF_CONFIG names.

All run the same command. TF_CONFIG also says which of them this one is:

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
     "task": {"type": "worker", "index": 0}}

The first one is the chief. If there is a job `chief`, it is that one.
"""

import re
from typing import NamedTuple

from bert import strict_json
from bert.errors import UserError


class Cluster(NamedTuple):
  """The hosts of a run.

  Attributes:
    tasks: name, such as `worker 1`, and address of each host; first the chief.
    index: number of this host among them.
  """

  tasks: tuple[tuple[str, str], ...]
  index: int


def read_cluster(text: str | None) -> Cluster | None:
  """The Cluster that a TF_CONFIG describes; None without one."""
  if not text:
    return None
  try:
    config = strict_json.loads(text)
    jobs = config["cluster"]
    if not all(isinstance(hosts, list) for hosts in jobs.values()):
      raise TypeError("the hosts of a job are not a list")
    kind, index = config["task"]["type"], int(config["task"]["index"])
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise UserError(
      f"TF_CONFIG={text!r}: expected JSON with lists of addresses in a "
      f"`cluster`, and the `type` and `index` of a `task`; correct or unset it"
    ) from error
  unknown = sorted(jobs.keys() - {"chief", "worker"})
  tasks = tuple(
    (f"{job} {number}", str(address))
    for job in ("chief", "worker")
    for number, address in enumerate(jobs.get(job, ()))
  )
  names = [name for name, _ in tasks]
  addresses = [address for _, address in tasks]
  wrong = [address for address in addresses if not _is_address(address)]
  repeated = [a for a in addresses if addresses.count(a) > 1]
  problem = None
  if unknown:
    problem = f"there is a job {unknown[0]}; name chief and worker only"
  elif not tasks or len(jobs.get("chief", ())) > 1:
    problem = "the cluster must name one chief, or workers; add them"
  elif wrong:
    problem = (
      f"{wrong[0]!r} is not an address; pass host:port, a port below 65536"
    )
  elif repeated:
    problem = f"two hosts have the address {repeated[0]}; name each host once"
  elif f"{kind} {index}" not in names:
    problem = (
      f"the task {kind} {index} is not in the cluster: {', '.join(names)}; "
      f"pass one of these"
    )
  if problem:
    raise UserError(f"TF_CONFIG: {problem}")
  return Cluster(tasks, names.index(f"{kind} {index}"))


def _is_address(text):
  found = re.fullmatch(r".+:(\d{1,5})", text)
  return bool(found) and 0 < int(found[1]) < 2**16
