r"""Shows what a model does with text.

    python visualize.py attention --text="The cat sat on the mat" \
      --output_file=attention.html ...
    python visualize.py embeddings --input_file=sentences.txt \
      --output_file=map.png ...

The first command writes a page with the attention of every head. The second
maps the sentences of a file, one per line, by the mean vector of their tokens
in the last layer. Both require --init_checkpoint. If that is a folder,
--vocab_file and --bert_config_file default to the files in it.
"""

import io
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert.contract.task import Settings, Task
from bert.data import files, records, sequences, text_files
from bert.engine import loaded_model, predictor
from bert.errors import UserError, plural, shortened
from bert.flags import flag_table
from bert.flags.values import PATH, Flag, Flags, table
from bert.models import model_folder
from bert.models.resolve import Model, Overrides, resolve
from bert.reports import attention, embedding_map
from bert.scripts import startup

# Each command with the flag that it needs, and the extensions of its output.
COMMANDS = {
  "attention": ("text", (".html", ".npz")),
  "embeddings": ("input_file", (".png", ".pdf", ".svg")),
}


# fmt: off
FLAGS = table(
  flag_table.MODEL,
  (
    flag_table.sequence_length(
      "Longer text is truncated by embeddings, and an error for attention. "
      "The default is lower for a model with fewer positions."
    ),
    Flag("command", None, "What to show; the first argument.",
         choices=tuple(COMMANDS)),
    Flag("text", None, "attention: the text."),
    Flag("text_b", None, "attention: the second text of a pair."),
    Flag("input_file", None,
         "embeddings: UTF-8 text, one sentence per line.", kind=PATH),
    Flag("output_file", None,
         "The page of attention (.html) or its numbers (.npz), or the map of "
         "embeddings (.png, .pdf or .svg).", kind=PATH),
    Flag("labels", False,
         "embeddings: lines are label<TAB>sentence; colors show the labels."),
    Flag("method", "pca",
         "embeddings: projection; pca preserves variance, tsne "
         "neighborhoods.", choices=embedding_map.METHODS),
  ),
)
# fmt: on


def name_command(arguments: list[str]) -> list[str]:
  """Makes the first argument --command."""
  if arguments and not arguments[0].startswith("-"):
    return [f"--command={arguments[0]}", *arguments[1:]]
  return arguments


def check_flags(flags: Flags) -> None:
  """Checks the command, its flags and its files."""
  flags.require("command")
  required, extensions = COMMANDS[flags.command]
  flags.require(required, "output_file", "init_checkpoint")
  if flags.input_file:
    flags.require_file("input_file")
  inputs = [
    flags.input_file,
    flags.vocab_file,
    flags.spm_model_file,
    flags.bert_config_file,
    *model_folder.input_files(flags.init_checkpoint),
  ]
  flags.check_output_files("output_file", [flags.output_file], inputs)
  if not flags.output_file.lower().endswith(extensions):
    raise UserError(
      f"--output_file={flags.output_file}: {flags.command} needs a path that "
      f"ends with {' or '.join(extensions)}"
    )


def load_model(flags: Flags) -> tuple[Model, int]:
  """The model that the flags name, and the length of its sequences."""
  model = resolve(flags.init_checkpoint, Overrides.of(flags.given))
  given = flags.given.get("max_seq_length")
  return model, model.sequence_length(given, flags.max_seq_length)


def read_texts(
  texts: Sequence[str], tokenizer: tokenization.FullTokenizer, limit: int
) -> tuple[list[str], list[int]]:
  """The tokens of a text or pair, and the segment of each."""
  parts = map(tokenizer.tokenize, texts)
  tokens, segment_ids = sequences.join_texts(tokenizer.special, *parts)
  if len(tokens) > limit:
    raise UserError(
      f"--text has {len(tokens)} tokens with [CLS] and [SEP], more than "
      f"--max_seq_length={limit}; shorten it, or raise --max_seq_length if the "
      f"model has more positions"
    )
  return tokens, segment_ids


class _AttentionTask(Task):
  """Gives the attention of every head of the encoder, [B, L, N, S, S]."""

  needs_pooler = False

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    return {}

  def head(self, ops, bert, features: Mapping) -> dict:
    return {"attention": tf.stack(bert.get_all_attention_probs(), axis=1)}

  def output_axes(self) -> dict[str, Sequence[str | None]]:
    return {"attention": (None, None, records.POSITION, records.POSITION)}


def attention_probs(
  model: Model,
  tokens: Sequence[str],
  segment_ids: Sequence[int],
  precision: str = "float32",
) -> np.ndarray:
  """The attention of every head, float32 [L, N, S, S]."""
  task = _AttentionTask(Settings(model.config.max_position_embeddings))
  run = predictor.Predictor(model, task, precision=precision)
  row = {
    "input_ids": model.tokenizer.convert_tokens_to_ids(tokens),
    "input_mask": [1] * len(tokens),
    "segment_ids": segment_ids,
  }
  return next(run([row]))["attention"]


def read_sentences(
  path: str, labeled: bool
) -> tuple[list[str], list[str] | None]:
  """The sentences of a file without blank lines, and their labels, if any."""
  text = text_files.read_text(path)
  rows = []
  for number, line in enumerate(text_files.split_lines(text), 1):
    if not line.strip():
      continue
    label, tab, sentence = line.partition("\t")
    if labeled and not (tab and sentence.strip()):
      raise UserError(
        f"{path}:{number}: {shortened(line)!r} is not label<TAB>sentence; "
        f"correct it, or omit --labels"
      )
    rows.append((label, sentence) if labeled else (None, line.strip()))
  if len(rows) < 3:
    raise UserError(
      f"{path} contains {plural(len(rows), 'sentence')}; a map needs at least 3"
    )
  labels, sentences = map(list, zip(*rows, strict=True))
  return sentences, labels if labeled else None


def show_attention(flags: Flags) -> None:
  """Writes the page of a text or pair, or the numbers in it."""
  texts = [flags.text] + ([] if flags.text_b is None else [flags.text_b])
  model, length = load_model(flags)
  tokens, segment_ids = read_texts(texts, model.tokenizer, length)
  probs = attention_probs(model, tokens, segment_ids, flags.precision)
  if flags.output_file.lower().endswith(".npz"):
    arrays = {"tokens": tokens, "segment_ids": segment_ids, "attention": probs}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    files.write_file(flags.output_file, buffer.getvalue())
  else:
    attention.write_page(flags.output_file, texts, tokens, segment_ids, probs)
  sizes = "{} layers of {} heads".format(*probs.shape)
  print(f"{flags.output_file}: {len(tokens)} tokens, {sizes}")


def mean_vectors(
  model: Model,
  sentences: Sequence[str],
  max_seq_length: int = 128,
  precision: str = "float32",
) -> np.ndarray:
  """The mean vector of each sentence in the last layer, float32 [rows, H]."""
  vectors = loaded_model.load_task(
    model, "vectors", max_seq_length=max_seq_length, precision=precision
  )
  answers = vectors.answers(sentences)
  if truncated := sum(text.was_cut for text in answers):
    cut = plural(truncated, "sentence")
    logging.warning("%s truncated to --max_seq_length=%d", cut, max_seq_length)
  return np.stack([text.vector for text in answers])


def show_embeddings(flags: Flags) -> None:
  """Writes the map of a file of sentences."""
  sentences, labels = read_sentences(flags.input_file, flags.labels)
  model, length = load_model(flags)
  vectors = mean_vectors(model, sentences, length, flags.precision)
  points, axes = embedding_map.project(vectors, flags.method)
  title = os.path.basename(flags.input_file)
  embedding_map.write_chart(
    flags.output_file, points, axes, sentences, labels, title
  )
  print(f"{flags.output_file}: {plural(len(sentences), 'sentence')}")


def main(flags: Flags) -> dict[str, str]:
  check_flags(flags)
  if flags.command == "attention":
    show_attention(flags)
  else:
    show_embeddings(flags)
  return {"output_file": flags.output_file}


run, command = startup.script(main, FLAGS, name_command)
