"""Models by name, from servers on loopback."""

import functools
import json
import re

import huggingface_hub
import pytest
from huggingface_hub import errors

from bert.errors import UserError
from loopback import Answer, serve
from bert.data import downloads, fetching

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "uncased_L-2_H-128_A-2"
FILES = {
  "config.json": b'{"model_type": "bert"}',
  "model.safetensors": b"weights",
  "vocab.txt": b"[UNK]\n",
  "pytorch_model.bin": b"a pickle",
  "onnx/model.onnx": b"other",
  "onnx/config.json": b"of the other",
  "spm.model": b"pieces",
  "merges.txt": b"t h",
  "1_Pooling/config.json": b"{}",
  "2_Dense/model.safetensors": b"a layer",
}


@pytest.fixture(autouse=True)
def fresh():
  """Forgets what an earlier test resolved."""
  downloads.use_cache_only(False)
  yield
  downloads.use_cache_only(False)


@pytest.fixture
def fetched(tmp_path, monkeypatch):
  """The arguments of downloads of archives, which are not made."""
  monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
  calls = []

  def fetch_archive(*args):
    calls.append(args)
    return args[1]

  monkeypatch.setattr(fetching, "fetch_archive", fetch_archive)
  return calls


@pytest.mark.parametrize("offline", [False, True])
def test_a_release_is_downloaded(fetched, tmp_path, offline):
  downloads.use_cache_only(offline)
  folder = str(tmp_path / "cache" / "models" / NAME)
  assert downloads.local_path(NAME) == folder
  ((url, *rest),) = fetched
  assert url.startswith("https://")
  assert url.endswith(f"/bert_models/2020_02_20/{NAME}.zip")
  assert rest == [folder, offline]


def test_what_exists_is_not_downloaded(fetched, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / NAME).mkdir()
  for path in (NAME, str(tmp_path), "nowhere", "gs://bucket/model", ""):
    assert downloads.local_path(path) == path
  assert downloads.local_path(tmp_path) == str(tmp_path)
  assert fetched == []


def test_the_cache_may_be_in_the_home_folder(tmp_path, monkeypatch):
  """Settings that no shell reads, as of containers, may contain a ~."""
  monkeypatch.setenv("HOME", str(tmp_path))
  monkeypatch.setenv("BERT_CACHE", "~/models")
  assert downloads.cache_folder("a", "b") == f"{tmp_path}/models/a/b"


def test_all_releases_are_known():
  """The 24 small ones, and those of 2018 and 2019."""
  assert len(downloads.RELEASES) == 24 + 9 - 1  # BERT-Base is both.
  pattern = r"(\w+_)?(un)?(cased|multilingual|chinese)_L-\d+_H-\d+_A-\d+"
  for name, date in downloads.RELEASES.items():
    assert re.fullmatch(pattern, name)
    hidden, heads = re.search(r"_H-(\d+)_A-(\d+)", name).groups()
    assert int(hidden) == 64 * int(heads)
    assert re.fullmatch(r"20\d\d_\d\d_\d\d", date)
  assert downloads.RELEASES["uncased_L-12_H-768_A-12"] == "2018_10_18"
  with pytest.raises(UserError, match=f"did you mean '{NAME}'"):
    downloads.check_name(NAME[:-1] + "3")


def _hub_answers():
  def answer(content):
    return [Answer(json.dumps(content).encode())]

  tree = [
    {"type": "file", "path": name, "size": len(body), "oid": name}
    for name, body in FILES.items()
  ]
  siblings = [{"rfilename": name} for name in FILES]
  info = {"id": "org/model", "sha": COMMIT, "siblings": siblings}
  not_found = [Answer(status=404, headers={"X-Error-Code": "RepoNotFound"})]
  api = "/api/models/org"
  return {
    f"{api}/model/revision/main": answer(info),
    f"{api}/model/revision/v1": answer(info),
    f"{api}/model/tree/{COMMIT}": answer(tree),
    f"{api}/pickle/revision/main": answer({**info, "id": "org/pickle"}),
    f"{api}/pickle/tree/{COMMIT}": answer(tree[3:4]),
    f"{api}/gone/revision/main": not_found,
    f"{api}/gpt/revision/main": answer({**info, "id": "org/gpt"}),
    f"{api}/gpt/tree/{COMMIT}": answer(tree),
    f"/org/gpt/resolve/{COMMIT}/config.json": [
      Answer(
        b'{"model_type": "gpt2"}',
        headers={"ETag": '"gpt"', "X-Repo-Commit": COMMIT},
      )
    ],
    **{
      f"/org/model/resolve/{COMMIT}/{name}": [
        Answer(body, headers={"ETag": f'"{name}"', "X-Repo-Commit": COMMIT})
      ]
      for name, body in FILES.items()
    },
  }


@pytest.fixture
def hub(tmp_path, monkeypatch):
  """A server that answers as Hugging Face's does."""
  with serve(_hub_answers()) as server:
    download = functools.partial(
      huggingface_hub.snapshot_download,
      endpoint=server.url,
      cache_dir=str(tmp_path),
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    yield server


def test_a_model_of_the_hub_is_downloaded_once(hub, tmp_path):
  folder = downloads.local_path("hf://org/model")
  for name, body in FILES.items():
    path = tmp_path / folder / name
    if name != "pytorch_model.bin" and not name.startswith("onnx/"):
      assert path.read_bytes() == body
    else:
      assert not path.exists()
  assert downloads.local_path("hf://org/model@v1") == folder
  bodies = [path for method, path in hub.requests if method == "GET"]
  assert len([path for path in bodies if "/resolve/" in path]) == 7
  downloads.use_cache_only(True)
  hub.requests.clear()
  assert downloads.local_path("hf://org/model") == folder
  assert hub.requests == []


def test_errors_of_the_hub_are_one_line(hub):
  for name, wanted in {
    "hf://org/gone": "no public model or revision; check the name",
    "hf://org/pickle": "has no model.safetensors; pass another",
    "hf://": "no public model or revision; check",
    "hf://a/b/c": "no public model or revision; check",
    "hf://../x": "no public model or revision; check",
  }.items():
    with pytest.raises(UserError, match=wanted) as error:
      downloads.local_path(name)
    assert "\n" not in str(error.value)


def test_the_type_of_a_model_is_checked_before_its_weights(hub):
  with pytest.raises(UserError, match=r"^hf://org/gpt: model_type='gpt2' is"):
    downloads.local_path("hf://org/gpt")
  read = [path for _, path in hub.requests if "/resolve/" in path]
  assert {path.rpartition("/")[2] for path in read} == {"config.json"}


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("variable", [False, True])
def test_only_what_was_given_is_to_be_omitted(monkeypatch, offline, variable):
  constants = huggingface_hub.constants
  monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", variable)
  downloads.use_cache_only(offline)
  remedy = "unset HF_HUB_OFFLINE" if variable else "check the network"
  remedy = "omit --offline" if offline else remedy
  with pytest.raises(UserError, match=f"not in the cache .*; {remedy}, or"):
    downloads.local_path("hf://org/absent")


@pytest.mark.parametrize(
  ("error", "message"),
  [
    # As hf_xet raises it, which transfers large files.
    (RuntimeError("Data processing error: CAS"), "CAS; run the same command"),
    (ConnectionResetError("\n"), "downloaded: ConnectionResetError; run"),
    # Without --offline.
    (
      errors.LocalEntryNotFoundError("no connection"),
      "not in the cache and cannot be downloaded; check the network, or pass",
    ),
  ],
)
def test_an_error_of_the_storage(monkeypatch, error, message):
  def fail(*_, **__):
    raise error

  monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
  with pytest.raises(UserError, match=message):
    downloads.local_path("hf://org/unreachable")
