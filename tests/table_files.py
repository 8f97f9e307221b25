"""Writes tables for tests."""

import gzip
import json


def write(folder, name, content):
  """A file of str or bytes, packed if its name says so."""
  path = folder / name
  content = content.encode() if isinstance(content, str) else content
  path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
  return str(path)


def write_rows(folder, name, names, rows):
  """A table in the format that its name says; cells hold nothing special."""
  if ".json" in name:
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
  else:
    separator = "\t" if ".tsv" in name else ","
    lines = [separator.join(row) for row in [names, *rows]]
  return write(folder, name, "".join(line + "\n" for line in lines))
