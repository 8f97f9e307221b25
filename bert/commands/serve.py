"""Answers requests over HTTP with a trained model.

    python serve.py --model_dir=/tmp/mrpc_output --port=8501

    curl -d '{"text_a": "It rains.", "text_b": "Rain falls."}' \\
      http://127.0.0.1:8501/answer

The model is the folder of any training, or a release, which gives vectors of
texts. The interface is that of TensorFlow Serving, and a plain one;
docs/serving.md describes both. http://127.0.0.1:8501/ is a page to try it.
"""

import dataclasses
import os
import re

from absl import logging

from bert import runtimes
from bert.errors import import_optional, plural
from bert.flags import flag_table
from bert.flags.values import COUNT, PATH, Check, Flag, Flags, at_least, table
from bert.scripts import startup

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")

_HOST_NAMES = Check(
  "names such as bert.example.org, without scheme, port and path",
  lambda hosts: all(
    re.fullmatch(r"[\w.-]+|\[?[\da-fA-F:]+\]?", host) for host in hosts
  ),
)

# fmt: off
FLAGS = table(
  flag_table.model_dir(),
  flag_table.SEARCH,
  (
    flag_table.THREADS,
    Flag("index", None,
         "Folder of an index to search, which search_texts.py wrote. "
         "--model_dir defaults to its model.", kind=PATH),
    Flag("model_name", None,
         "Name of the model in /v1/models/NAME. Default: that of its folder."),
    Flag("host", "127.0.0.1",
         "Address to listen on. The default accepts only this machine; "
         "0.0.0.0 accepts all, without a password or encryption."),
    Flag("allowed_hosts", [],
         "Host names that requests may name, separated by commas: those by "
         "which a proxy or the network knows the server. On the default "
         "--host, localhost, 127.0.0.1 and [::1] are always allowed; on any "
         "other, the default allows all.", check=_HOST_NAMES),
    Flag("port", 8501, "Port to listen on; 0 takes a free one.",
         check=at_least(0, 65535)),
    Flag("max_batch", 32, "Maximum number of texts in a batch.", check=COUNT),
    Flag("max_queue", 256,
         "Maximum number of waiting texts; more get status 429.", check=COUNT),
    Flag("max_texts", 64, "Maximum number of texts in a request.",
         check=COUNT),
    Flag("max_text_chars", 20_000,
         "Maximum length of the inputs of an answer, in characters.",
         check=COUNT),
    Flag("max_body_bytes", 2**20, "Maximum size of a request, in bytes.",
         check=COUNT),
    Flag("max_wait_ms", 5.0,
         "Milliseconds that a text waits for others to share a batch.",
         check=at_least(0, 60_000)),
    Flag("timeout_s", 30.0, "Seconds from a request to its answer.",
         check=at_least(0.001, 3600)),
  ),
)
# fmt: on


def check_flags(flags: Flags) -> str:
  """Checks the flags; returns the name of the model."""
  if not flags.index:
    flags.require("model_dir")
    flags.warn_if_given("add --index", "ann", "search")
  flags.require("host")  # An empty one would open the server to the network.
  runtimes.check_runtime(flags.runtime, flags.precision)
  folder = os.path.basename(os.path.abspath(flags.model_dir or flags.index))
  # It is a part of URLs.
  name = re.sub(r"[^\w.-]", "_", flags.model_name or folder) or "model"
  for package in _PACKAGES:
    import_optional(package, "serve.py", "requirements-serve.txt")
  return name


def main(flags: Flags) -> None:
  name = check_flags(flags)
  from bert.serving import host_guard, server  # They need those packages.
  from bert.engine import loaded_model
  from bert.search import search

  listener = server.open_socket(flags.host, flags.port)
  options = {row.name: flags[row.name] for row in flag_table.SEARCH}
  options["batch_size"], searcher = flags.max_batch, None
  if flags.index:
    searcher = search.load_searcher(
      flags.index, flags.model_dir, needs_model=True, **options
    )
    model, reranker = searcher.model, None  # The searcher has its own.
  else:
    engine = {n: options[n] for n in ("batch_size", "precision", "runtime")}
    model = loaded_model.load(flags.model_dir, **engine)
    pairs = flags.reranker, flags.relevant_label
    reranker = search.load_reranker(*pairs, **engine)
  names = (field.name for field in dataclasses.fields(server.Limits))
  limits = server.Limits(**{name: flags[name] for name in names})
  hosts = host_guard.allowed_hosts(
    listener.getsockname()[0], flags.allowed_hosts
  )
  app = server.make_app(
    model, name, limits, hosts, searcher, flags.relevant_label, reranker
  )
  host = f"[{flags.host}]" if ":" in flags.host else flags.host
  address = f"http://{host}:{listener.getsockname()[1]}"
  kind = plural(len(searcher.index), "text") if searcher else model.kind
  logging.info("Serving %s (%s) at %s", name, kind, address)
  if server.serve(app, listener, flags.timeout_s):
    logging.info("Stopped; all requests are answered")
  else:
    logging.warning("Stopped at once; requests were dropped")


run, command = startup.script(main, FLAGS)
