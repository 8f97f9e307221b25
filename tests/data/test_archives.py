"""Archives that are damaged, or lead out of their folder."""

import pathlib
import stat
import struct
import zipfile

import pytest

from bert.errors import UserError
from bert.data import archives


def _write(folder, names, content=b"text"):
  path = folder / "a.zip"
  with zipfile.ZipFile(path, "w") as archive:
    for name in names:
      archive.writestr(name, content)
  return str(path)


def _unpack(folder, names):
  archives.unpack(_write(folder, names), str(folder / "out" / "a"))
  return sorted(
    str(path.relative_to(folder / "out" / "a"))
    for path in (folder / "out" / "a").rglob("*")
    if path.is_file()
  )


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "out").mkdir()
  return tmp_path


@pytest.mark.parametrize(
  ("names", "wanted"),
  [
    (["x", "y/z"], ["x", "y/z"]),
    (["top/x", "top/y/z"], ["x", "y/z"]),
    (["top/", "top/x", "__MACOSX/top/._x"], ["x"]),
    (["a/x", "b/x"], ["a/x", "b/x"]),
  ],
)
def test_the_folder_around_everything_is_left_out(folder, names, wanted):
  assert _unpack(folder, names) == wanted


@pytest.mark.parametrize(
  "name",
  [
    "../x",
    "top/../../x",
    "/x",
    "//server/x",
    "C:/x",
    "C:\\x",
    "..\\x",
    "top/./x",
    "top//x",
  ],
)
def test_a_path_that_leads_out_is_an_error(folder, name):
  before = sorted(folder.rglob("*"))
  with pytest.raises(
    UserError, match=r"^\S+zip contains .* leads out of its folder; do not"
  ):
    _unpack(folder, ["top/good", name])
  assert sorted(folder.rglob("*")) == [folder / "a.zip", *before]


def test_a_link_is_an_error(folder):
  path = folder / "a.zip"
  with zipfile.ZipFile(path, "w") as archive:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(link, "/etc")
    archive.writestr("link/x", "text")
  with pytest.raises(
    UserError, match=r"^\S+zip contains 'link', which leads out"
  ):
    archives.unpack(str(path), str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []


def test_a_bomb_is_an_error(folder, monkeypatch):
  with pytest.raises(
    UserError, match=r"^\S+zip has 1,001 files .* do not use it"
  ):
    _unpack(folder, [str(i) for i in range(1001)])
  monkeypatch.setattr(archives, "_MAX_BYTES", 7)
  with pytest.raises(UserError, match=r"^\S+zip has 2 files and 8 bytes"):
    _unpack(folder, ["x", "y"])
  assert list((folder / "out").iterdir()) == []


def test_altered_content_is_an_error(folder):
  path = _write(folder, ["x"], b"some content")
  with open(path, "r+b") as file:
    content = file.read()
    file.seek(content.index(b"some content"))
    file.write(b"S")
  with pytest.raises(UserError, match=r"not a complete zip .* again"):
    archives.unpack(path, str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize(
  "names", [["x", "x/y"], ["x/y", "x"], ["x", "x/y/z"], ["x/y/z", "x/y"]]
)
def test_a_file_that_is_also_a_folder_is_an_error(folder, names):
  with pytest.raises(UserError, match=r"not a complete zip .* again"):
    _unpack(folder, [*names, "other"])
  assert list((folder / "out").iterdir()) == []


def test_damaged_compression_is_an_error(folder):
  path = folder / "a.zip"
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("x", "some content " * 99)
  content = bytearray(path.read_bytes())
  # The data follow a header of 30 bytes and the name. Kind 3 of a block does
  # not exist.
  content[31] |= 0b110
  path.write_bytes(content)
  with pytest.raises(
    UserError, match=r"not a complete zip .*invalid block type"
  ):
    archives.unpack(str(path), str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []


def test_a_name_that_is_not_utf_8_is_an_error(folder):
  content = bytearray(pathlib.Path(_write(folder, ["x"])).read_bytes())
  # The second byte of flags says UTF-8; the name ends the header.
  for signature, flags, name in ((b"PK\3\4", 7, 30), (b"PK\1\2", 9, 46)):
    start = content.index(signature)
    content[start + flags] |= 0b1000
    content[start + name] = 0xFF
  (folder / "a.zip").write_bytes(content)
  with pytest.raises(UserError, match="not a complete zip"):
    archives.unpack(str(folder / "a.zip"), str(folder / "out" / "a"))


def test_an_encrypted_archive_is_an_error(folder):
  content = bytearray(pathlib.Path(_write(folder, ["x"])).read_bytes())
  for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
    content[content.index(signature) + offset] |= 1
  (folder / "a.zip").write_bytes(content)
  with pytest.raises(UserError, match=r"not a complete zip .*encrypted"):
    archives.unpack(str(folder / "a.zip"), str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_fault_of_the_archive(folder):
  (folder / "out" / "a").touch()
  with pytest.raises(NotADirectoryError):
    _unpack(folder, ["x"])


@pytest.mark.parametrize("name", ["n" * 300, "top/" + "n" * 300])
def test_a_name_that_no_file_can_have(folder, name):
  with pytest.raises(UserError, match=r"is not a complete zip .*too long"):
    _unpack(folder, ["top/x", f"{name}x"])
  assert list((folder / "out").iterdir()) == []


def test_an_empty_name(folder):
  path = pathlib.Path(_write(folder, ["?", "x"]))
  # Python ends a name at a zero.
  path.write_bytes(path.read_bytes().replace(b"?", b"\0"))
  with pytest.raises(UserError, match="contains '', which leads out"):
    archives.unpack(str(path), str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize("offset", [0, 1, 10**6, 2**32 - 1])
def test_a_wrong_offset_of_the_directory(folder, offset):
  path = pathlib.Path(_write(folder, ["x"]))
  content = bytearray(path.read_bytes())
  # It is 6 bytes before the end of an archive without a comment.
  content[-6:-2] = struct.pack("<I", offset)
  path.write_bytes(content)
  with pytest.raises(
    UserError, match=r"is not a complete zip archive .*again$"
  ):
    archives.unpack(str(path), str(folder / "out" / "a"))
  assert list((folder / "out").iterdir()) == []
