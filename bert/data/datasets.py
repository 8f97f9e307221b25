"""Data sets that may be downloaded: where they are, and their terms.

fetch_glue("MRPC", "glue")  # glue/MRPC/train.tsv, dev.tsv and test.tsv
fetch_squad("squad")
"""

import os
from typing import NamedTuple

from bert.data import fetching, files
from bert.errors import check_known

_GLUE_URL = "https://dl.fbaipublicfiles.com/glue/data"
_MRPC_URL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_SQUAD_URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset"


class Dataset(NamedTuple):
  """A task of GLUE."""

  terms: str  # Who owns it, and what its license allows.
  file: str = ""  # Name of its archive or file, below GLUE's address.
  sha256: str | None = None  # None if none is published.


GLUE = {
  "CoLA": Dataset(
    "examples from the linguistics literature, for research (fair use)",
    "CoLA.zip",
    "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
  ),
  "SST-2": Dataset(
    "Stanford Sentiment Treebank, for research",
    "SST-2.zip",
    "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
  ),
  "MRPC": Dataset("Microsoft Research Paraphrase Corpus, for research"),
  "STS-B": Dataset(
    "CC BY-SA 4.0",
    "STS-B.zip",
    "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
  ),
  "QQP": Dataset(
    "Quora's terms of service, not for commercial use",
    "QQP-clean.zip",
    "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
  ),
  "MNLI": Dataset(
    "OANC's license, CC BY 3.0 and CC BY-SA 3.0, by genre",
    "MNLI.zip",
    "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
  ),
  "QNLI": Dataset(
    "CC BY-SA 4.0, from SQuAD",
    "QNLIv2.zip",
    "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
  ),
  "RTE": Dataset(
    "the RTE challenges' data, for research",
    "RTE.zip",
    "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
  ),
  "WNLI": Dataset(
    "CC BY 4.0, from the Winograd Schema Challenge",
    "WNLI.zip",
    "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
  ),
  "AX": Dataset("GLUE's diagnostic set, for research", "AX.tsv"),
}

# The files of MRPC and SQuAD, with their checksums.
_MRPC = {
  f"{_MRPC_URL}/msr_paraphrase_train.txt": (
    "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"
  ),
  f"{_MRPC_URL}/msr_paraphrase_test.txt": (
    "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"
  ),
  f"{_GLUE_URL}/mrpc_dev_ids.tsv": (
    "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"
  ),
}
SQUAD_TERMS = "CC BY-SA 4.0"
_SQUAD = {
  "train-v1.1.json": (
    "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955"
  ),
  "dev-v1.1.json": (
    "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"
  ),
  "train-v2.0.json": (
    "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"
  ),
  "dev-v2.0.json": (
    "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"
  ),
}


def find_glue(name: str) -> str:
  """GLUE's spelling of the name of a task, whatever its case."""
  spelling = {known.lower(): known for known in GLUE}.get(name.lower(), name)
  check_known(f"the task {name!r}", spelling, GLUE)
  return spelling


def fetch_glue(name: str, folder: str, offline: bool = False) -> str:
  """Downloads a task, a key of GLUE, into `folder`; returns its folder."""
  target, dataset = os.path.join(folder, name), GLUE[name]
  if name == "MRPC":
    _fetch_mrpc(target, offline)
  elif dataset.file.endswith(".zip"):
    url = f"{_GLUE_URL}/{dataset.file}"
    fetching.fetch_archive(url, target, offline, dataset.sha256)
  else:
    path = os.path.join(target, "diagnostic.tsv")
    fetching.fetch(f"{_GLUE_URL}/{dataset.file}", path, offline)
  return target


def fetch_squad(folder: str, offline: bool = False) -> str:
  """Downloads SQuAD 1.1 and 2.0; returns the folder."""
  for name, sha256 in _SQUAD.items():
    path = os.path.join(folder, name)
    fetching.fetch(f"{_SQUAD_URL}/{name}", path, offline, sha256)
  return folder


def _fetch_mrpc(folder, offline):
  """Downloads MRPC, and divides it into GLUE's three files."""
  targets = [os.path.join(folder, f"{n}.tsv") for n in ("dev", "test", "train")]
  if files.exists(targets[-1]):  # Written last.
    return
  tables = []
  for url, sha256 in _MRPC.items():
    path = os.path.join(folder, os.path.basename(url))
    fetching.fetch(url, path, offline, sha256)
    lines = files.read_bytes(path).decode().split("\n")
    tables.append([line.strip().split("\t") for line in lines if line.strip()])
  train, test, dev_ids = tables
  in_dev = set(map(tuple, dev_ids))
  header, *rows = train
  split = {"dev": [header], "test": [["index", *header[1:]]], "train": [header]}
  for row in rows:
    split["dev" if tuple(row[1:3]) in in_dev else "train"].append(row)
  for index, row in enumerate(test[1:]):
    split["test"].append([str(index), *row[1:]])
  files.write_files(
    {
      path: "".join("\t".join(row) + "\n" for row in rows)
      for path, rows in zip(targets, split.values(), strict=True)
    }
  )
