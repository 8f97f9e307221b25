"""Text in UTF-8: its lines, whatever they end with, and what is no text."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.data import text_files


@pytest.mark.parametrize(
  ("content", "text"),
  [
    (b"", ""),
    ("größer\n".encode(), "größer\n"),
    # Only at the very start does the character mark anything.
    ("\ufeffa\ufeff\n\ufeff".encode(), "a\ufeff\n\ufeff"),
    ("\ufeff".encode(), ""),
  ],
)
def test_decode_text(content, text):
  assert text_files.decode_text("x.txt", content) == text


@given(
  st.lists(st.sampled_from([b"a", b"\xc3\xa9", b"", b"ab c"]), max_size=5),
  st.sampled_from([b"\n", b"\r\n", b"\r"]),
  st.booleans(),
  st.sampled_from([b"\xff", b"\xe9 ", b"\xc3\n", b"\xed\xa0\x80"]),
  st.sampled_from([b"", b"\n"]),
)
def test_line_and_byte(lines, newline, is_marked, wrong, end):
  mark = b"\xef\xbb\xbf" if is_marked else b""
  before = mark + b"".join(line + newline for line in lines)
  if newline == b"\r" and b"\n" in wrong + end:
    return  # Then \r ends no line.
  with pytest.raises(ValueError, match="UTF-8") as error:
    text_files.decode_text("x.txt", before + wrong + end)
  assert str(error.value).startswith(
    f"x.txt:{len(lines) + 1}: byte {len(before)} is not UTF-8; convert the "
    f"file to UTF-8"
  )


@given(
  st.lists(st.text(st.sampled_from("ab \t\u2028\x0b\x85")), max_size=5),
  st.sampled_from(["\n", "\r\n", "\r"]),
  st.booleans(),
)
def test_split_lines(lines, newline, is_ended):
  text = "".join(line + newline for line in lines)
  if not is_ended and lines and lines[-1]:
    text = text.removesuffix(newline)
  assert text_files.split_lines(text) == lines


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "X.GZ"])
# A file is read in chunks of 2**20 bytes, which may end in a character.
@pytest.mark.parametrize("size", [0, *range(2**20 - 12, 2**20), 3 * 2**20])
def test_lines(tmp_path, name, size):
  first = "a" * size
  text = f"\ufeff{first}ß a\r\n\n b\u2028c\x0bd\re\n東京"
  path = tmp_path / name
  packed = name.lower().endswith(".gz")
  path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
  lines = list(text_files.read_lines(str(path)))
  assert lines == [f"{first}ß a\r", "", " b\u2028c\x0bd\re", "東京"]
