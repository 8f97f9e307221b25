"""Answers requests over HTTP with a trained model.

    python serve.py --model_dir=/tmp/mrpc_output --port=8501

    curl -d '{"text_a": "It rains.", "text_b": "Rain falls."}' \\
      http://127.0.0.1:8501/answer

The model is any folder that a training left, or a release, whose answers are
vectors of texts. The interface is that of TensorFlow Serving, and a plain one;
docs/serving.md describes both. http://127.0.0.1:8501/ is a page to try it.
"""

import dataclasses
import math
import os
import re

from absl import flags, logging

from bert.errors import UserError, import_optional, plural
from bert.training import common_flags, flag_checks, runtimes, startup

FLAGS = flags.FLAGS

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")

# Some of the limits: flag, default, help.
_FLAGS = (
  ("max_batch", 32, "Maximum number of texts in a batch."),
  ("max_queue", 256, "Maximum number of waiting texts; more get status 429."),
  ("max_texts", 64, "Maximum number of texts in a request."),
  (
    "max_text_chars",
    20_000,
    "Maximum length of the inputs of an answer, in characters.",
  ),
  ("max_body_bytes", 2**20, "Maximum size of a request, in bytes."),
)


# Flags of search and reranking: name, default, help.
_SEARCH_FLAGS = (
  (
    "index",
    None,
    "Folder of an index to search, which search_texts.py wrote. --model_dir "
    "defaults to its model.",
  ),
  ("reranker", None, "Folder of a model of pairs that reorders the hits."),
  (
    "relevant_label",
    None,
    "Label that a classifier of pairs gives to matching texts, for reranking. "
    "Default: the second of two.",
  ),
)


def define_flags() -> None:
  """Defines this script's flags."""
  common_flags.define_runtime_flag()
  common_flags.define_model_dir_flag()
  common_flags.define_from_table(_SEARCH_FLAGS)
  flags.DEFINE_enum(
    "ann", None, ["hnsw"], "Search --index approximately, by graphs."
  )
  flags.DEFINE_string(
    "model_name",
    None,
    "Name of the model in /v1/models/NAME. Default: that of its folder.",
  )
  flags.DEFINE_string(
    "host",
    "127.0.0.1",
    "Address to listen on. The default accepts only this machine; 0.0.0.0 "
    "accepts all, without a password or encryption.",
  )
  flags.DEFINE_integer(
    "port", 8501, "Port to listen on; 0 takes a free one.", 0, 65535
  )
  flags.DEFINE_enum(
    "precision",
    None,
    runtimes.PRECISIONS,
    "Precision of the layers. Default: float32, or as --runtime says.",
  )
  common_flags.define_from_table(_FLAGS)
  flags.DEFINE_float(
    "max_wait_ms",
    5.0,
    "Milliseconds that a text waits for others to share a batch.",
    0,
    60_000,
  )
  flags.DEFINE_float(
    "timeout_s", 30.0, "Seconds from a request to its answer.", 0.001, 3600
  )


def check_flags() -> str:
  """Checks the flags; returns the name of the model.

  Raises:
    UserError: a flag is wrong, or a package is missing.
  """
  if not FLAGS.index:
    flag_checks.require("model_dir")
    flag_checks.warn_of_unused("add --index", "ann", "reranker")
  if not FLAGS.host:  # It would accept all.
    raise UserError("--host= is empty; omit it, or pass an address")
  if FLAGS.max_texts > FLAGS.max_queue:
    raise UserError(
      f"--max_texts={FLAGS.max_texts} is more than --max_queue="
      f"{FLAGS.max_queue}; lower it"
    )
  for name in ("max_wait_ms", "timeout_s"):
    if math.isnan(FLAGS[name].value):  # No bound excludes it.
      raise UserError(f"--{name}=nan is not a number; pass one")
  runtimes.check_runtime(FLAGS.runtime, FLAGS.precision)
  folder = os.path.basename(os.path.abspath(FLAGS.model_dir or FLAGS.index))
  name = FLAGS.model_name or re.sub(r"[^\w.-]", "_", folder) or "model"
  if re.search(r"[^\w.-]", name):
    raise UserError(
      f"--model_name={name} has other characters than letters, digits and _.-"
    )
  for package in _PACKAGES:
    import_optional(package, "serve.py", "requirements-serve.txt")
  return name


def main() -> None:
  name = check_flags()
  from bert.export import server  # It needs those packages.
  from bert.tasks import loaded_model, search

  listener = server.open_socket(FLAGS.host, FLAGS.port)
  options = {
    "batch_size": FLAGS.max_batch,
    "precision": FLAGS.precision,
    "runtime": FLAGS.runtime,
  }
  searcher = None
  if FLAGS.index:
    searcher = search.load_searcher(
      FLAGS.index,
      FLAGS.model_dir,
      FLAGS.ann,
      FLAGS.reranker,
      FLAGS.relevant_label,
      **options,
    )
  model = (
    searcher.model
    if searcher
    else loaded_model.load(FLAGS.model_dir, **options)
  )
  names = (field.name for field in dataclasses.fields(server.Limits))
  limits = server.Limits(**{name: FLAGS[name].value for name in names})
  app = server.make_app(model, name, limits, searcher, FLAGS.relevant_label)
  host = f"[{FLAGS.host}]" if ":" in FLAGS.host else FLAGS.host
  address = f"http://{host}:{listener.getsockname()[1]}"
  shown = plural(len(searcher.index), "text") if searcher else model.kind
  logging.info("Serving %s (%s) at %s", name, shown, address)
  if server.serve(app, listener, FLAGS.timeout_s):
    logging.info("Stopped; all requests are answered")
  else:
    logging.warning("Stopped at once; requests were dropped")


def command() -> None:
  """Runs the script with the flags of the command line."""
  startup.run(main, define_flags)
