"""The hosts of a run, which the environment variable TF_CONFIG names.

All run the same command. TF_CONFIG also says which of them this one is:

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
     "task": {"type": "worker", "index": 0}}

The first one is the chief. If there is a job `chief`, it is that one.
"""

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
  tasks = tuple(
    (f"{job} {number}", str(address))
    for job in ("chief", "worker")
    for number, address in enumerate(jobs.get(job, ()))
  )
  names = [name for name, _ in tasks]
  if len(jobs.get("chief", ())) > 1 or f"{kind} {index}" not in names:
    raise UserError(
      f"TF_CONFIG: {kind} {index} is not one of {', '.join(names)}, or there "
      f"are two chiefs; correct or unset it"
    )
  return Cluster(tasks, names.index(f"{kind} {index}"))
