"""Hashes of the texts of rows, by which data sets are compared.

A hash is one of texts, not of labels: a row whose label was corrected keeps
its hash. White space does not matter.
"""

import base64
import hashlib
import json
from collections.abc import Iterable

# 48 bits: a new row collides with one of a million with p = 4e-9.
_SIZE = 6


def hash_texts(texts: Iterable[str]) -> bytes:
  """The hash of the texts of a row."""
  content = json.dumps([" ".join(text.split()) for text in texts])
  return hashlib.blake2b(content.encode(), digest_size=_SIZE).digest()


def encode(hashes: Iterable[bytes]) -> str:
  """Hashes as text."""
  return base64.b64encode(b"".join(sorted(hashes))).decode()


def decode(text: str) -> frozenset[bytes]:
  """The inverse of `encode`; raises ValueError for another text."""
  joined = _joined(text)
  starts = range(0, len(joined), _SIZE)
  return frozenset(joined[start : start + _SIZE] for start in starts)


def check(text: str) -> None:
  """Raises ValueError if `encode` returns no such text."""
  _joined(text)


def _joined(text):
  joined = base64.b64decode(text, validate=True)
  if len(joined) % _SIZE:
    raise ValueError(f"{len(joined)} bytes are not hashes of {_SIZE} bytes")
  return joined
