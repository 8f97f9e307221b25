"""Students: a model with some layers, or some word pieces, of another.

write_smaller("teacher", "student", layers=["0", "2", "4"])
write_smaller("multilingual", "german", corpus=["german.txt"])
"""

import collections
import json
import os
import re
from collections.abc import Iterable, Sequence

from absl import logging

import modeling
import tokenization
from bert import strict_json
from bert.data import files, text_files, vocabulary
from bert.data.masked_text import MASK
from bert.errors import UserError, plural
from bert.export.new_folder import new_folder
from bert.models import checkpoints, task_file
from bert.models.resolve import resolve

# Tables with a row for each piece.
_TABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")

_LAYER = re.compile(r"(?<=/layer_)\d+(?=/)")


def write_smaller(
  model_dir: str,
  output_dir: str,
  layers: Sequence[str] | None = None,
  corpus: Sequence[str] | None = None,
) -> None:
  """Writes a smaller model in the format of a release, with its task.

  Args:
    model_dir, output_dir: the folder of a model in that format, and a new one.
    layers: the layers to keep in ascending order, "0" first; None for all.
    corpus: text files. The pieces that they do not use are dropped; the model
      computes the same for all texts in them. None keeps all pieces.
  """
  model = resolve(model_dir)
  config = modeling.BertConfig.from_dict(model.config.to_dict())
  checkpoint = checkpoints.Checkpoint(model.checkpoint, weights_only=True)
  weights = {name: checkpoint[name] for name in checkpoint.shapes}
  path = model.vocab_file or model.spm_model_file
  paths = [path, os.path.join(model_dir, task_file.NAME)]
  contents = {
    os.path.basename(path): files.read_bytes(path)
    for path in filter(files.exists, paths)
  }
  if layers is not None:
    shares = config.num_hidden_groups  # All layers share their weights.
    count = 0 if shares else config.num_hidden_layers
    weights = _with_layers(weights, layers, count)
    config.num_hidden_layers = len(layers)
  if corpus is not None:
    lines = (line for path in corpus for line in text_files.read_lines(path))
    ids = _cut_vocabulary(model, contents, lines)
    for name in weights.keys() & set(_TABLES):
      weights[name] = weights[name][ids]
    logging.info(
      "Kept %d of %d word pieces", len(ids), len(model.tokenizer.vocab)
    )
    config.vocab_size = len(ids)
  smaller = model._replace(config=config)
  contents["bert_config.json"] = smaller.config_json()
  with new_folder(output_dir) as folder:
    checkpoints.write_release(folder, weights, contents)


def _cut_vocabulary(model, contents, lines):
  """Replaces the vocabulary; returns the former ids of the pieces that stay."""
  vocab, name = model.tokenizer.vocab, "tokenizer.json"
  if not contents.keys() & {"vocab.txt", name}:
    raise UserError(
      f"--keep_vocabulary: the model has neither vocab.txt nor {name}; pass "
      f"one that has it"
    )
  used = set(used_pieces(model.tokenizer, lines))
  # Positions are counted from the id of padding, which therefore stays.
  used.update(list(vocab)[: model.config.position_offset])
  fields = strict_json.loads(contents.get(name, "null"))
  if fields:
    _add_needed(used, fields)
  pieces = [piece for piece in vocab if piece in used]
  if fields:
    _cut_json(fields, {piece: index for index, piece in enumerate(pieces)})
    contents[name] = json.dumps(fields, ensure_ascii=False)
  else:
    contents["vocab.txt"] = vocabulary.vocab_text(pieces)
  return [vocab[piece] for piece in pieces]


def _add_needed(used, fields):
  """Adds the pieces that a tokenizer.json needs to split text as before."""
  from tokenizers import pre_tokenizers

  model = fields["model"]
  used.update(token["content"] for token in fields["added_tokens"])
  if model["type"] == "Unigram":
    used.add(model["vocab"][model["unk_id"]][0])
    # The score of an unknown character follows from the lowest one.
    used.add(min(model["vocab"], key=lambda entry: entry[1])[0])
  if model["type"] != "BPE":
    return
  # Any text consists of bytes. A merged piece needs its parts, too.
  used.update(pre_tokenizers.ByteLevel.alphabet())
  parts = collections.defaultdict(set)
  for pair in map(_pair_of, model["merges"]):
    parts["".join(pair)].update(pair)
  waiting = list(used)
  while waiting:
    new = parts[waiting.pop()] - used
    used |= new
    waiting += new


def _pair_of(merge):
  """The two parts of a merge; earlier versions wrote them as one text."""
  return merge.split(" ") if isinstance(merge, str) else merge


def _cut_json(fields, ids):
  """Keeps only the pieces in `ids`, with these ids, in a tokenizer.json."""
  model = fields["model"]
  if isinstance(model["vocab"], dict):
    known = model["vocab"].keys()
    model["vocab"] = {p: index for p, index in ids.items() if p in known}
  else:
    scores = dict(model["vocab"])
    model["unk_id"] = ids[model["vocab"][model["unk_id"]][0]]
    model["vocab"] = [[p, scores[p]] for p in ids if p in scores]
  if "merges" in model:
    merges = model["merges"]
    model["merges"] = [m for m in merges if "".join(_pair_of(m)) in ids]
  for token in fields["added_tokens"]:
    token["id"] = ids[token["content"]]
  if padding := fields.get("padding"):
    padding["pad_id"] = ids[padding["pad_token"]]
  _renumber(fields.get("post_processor"), ids)


def _renumber(node, ids):
  """Replaces the ids of pieces in a post-processor."""
  if isinstance(node, dict) and "tokens" in node:
    node["ids"] = [ids[piece] for piece in node["tokens"]]
  elif isinstance(node, list) and list(map(type, node)) == [str, int]:
    node[1] = ids[node[0]]
  elif isinstance(node, dict | list):
    for part in node.values() if isinstance(node, dict) else node:
      _renumber(part, ids)


def _with_layers(weights, layers, count):
  """The weights with the given layers of `count`, numbered anew."""
  if not layers or list(layers) != [
    name for name in map(str, range(count)) if name in layers
  ]:
    known = f"some of 0 to {count - 1}, in ascending order"
    raise UserError(
      f"--keep_layers={','.join(layers)}: the model has "
      f"{plural(count, 'layer')} with weights of its own; "
      f"{f'pass {known}' if count else 'omit it'}"
    )
  number = {layer: str(index) for index, layer in enumerate(layers)}
  kept = {}
  for name, value in weights.items():
    match = _LAYER.search(name)
    if match is None:
      kept[name] = value
    elif match[0] in number:
      kept[_LAYER.sub(number[match[0]], name)] = value
  return kept


def used_pieces(
  tokenizer: tokenization.FullTokenizer, lines: Iterable[str]
) -> list[str]:
  """The pieces that a text needs, in the order of the vocabulary.

  These are the pieces of the text, the special ones, and single characters, so
  that any other word can be split. WordPiece and unigram models split the text
  into the same pieces as before, because all of them are kept.
  """
  special = tokenizer.special
  used = {*special[:4], tokenizer.unk_token}
  for line in lines:
    masked = tokenizer.tokenize_masked(line.replace(MASK, special.mask))
    used.update(tokenizer.tokenize(line), masked)
  characters = {char for piece in used for char in piece.removeprefix("##")}
  used |= characters | {"##" + char for char in characters}
  return [piece for piece in tokenizer.vocab if piece in used]
