"""Converts models to and from Hugging Face's format.

    to_huggingface("mrpc_output", "mrpc_huggingface")
    to_tensorflow("mrpc_huggingface", "mrpc_model")

Neither PyTorch nor transformers is needed. task.json goes along, so nothing is
lost on the way back.
"""

import codecs
import json
import os
from collections.abc import Mapping

import numpy as np
from absl import logging
from safetensors import numpy as safetensors

import modeling
import tokenization
from bert import layers, strict_json
from bert.data import files, vocabulary
from bert.engine import loaded_model
from bert.errors import UserError, listing, plural
from bert.export.new_folder import new_folder
from bert.layers import POOLER
from bert.models import (
  checkpoints,
  huggingface_config,
  huggingface_names,
  huggingface_weights,
  model_folder,
  sentence_folder,
  task_file,
)
from bert.models.huggingface_config import label_fields
from bert.models.huggingface_names import (
  FAMILIES,
  split_architecture,
  tensor_name,
)
from bert.models.resolve import resolve
from bert.reports import model_card
from bert.tasks.classification import portable
from bert.tasks.pretraining import task as pretraining

# Model types with a head for the next sentence.
_PAIRED = ("bert", "albert")

Contents = dict[str, str | bytes]


def to_huggingface(model_dir: str, output_dir: str) -> str:
  """Writes a model as `config.json`, `model.safetensors` and a tokenizer.

  `model_dir` is its folder, or a checkpoint beside its configuration. The scale
  of a regression becomes part of its output layer. A model of vectors becomes a
  folder of sentence-transformers. Returns the architecture.
  """
  folder, model, task, weights = _read_model(model_dir)
  step = weights.pop(huggingface_weights.STEP, None)
  config = huggingface_config.their_fields(model.config)
  pad_id = model.tokenizer.vocab.get(model.tokenizer.special.pad, 0)
  config.setdefault("pad_token_id", pad_id)
  family = config["model_type"]
  head, fields = _describe_head(family, task, weights)
  architecture = FAMILIES[family].name + head
  contents = {}
  if task:
    settings = task.settings
    if task.kind == "classification":
      settings = portable.fold(settings, weights)
    contents[task_file.NAME] = task_file.content(task.kind, settings)
    if task.kind == "vectors":
      contents |= sentence_folder.contents(
        vars(settings), model.config, weights
      )
  prefix_of_bert = FAMILIES[family].prefix if head == "Model" else ""
  tensors = {
    # Variables of a task that Hugging Face does not know keep their names.
    (tensor_name(name, family, head) or name).removeprefix(
      prefix_of_bert
    ): np.ascontiguousarray(huggingface_weights.exchanged(name, value))
    for name, value in weights.items()
  }
  contents |= _tokenizer_files(folder, model)
  name = os.path.basename(os.path.abspath(output_dir))
  code = model_card.transformers_code(task, architecture, name)
  library = "transformers"
  if task and task.kind == "vectors":
    code = model_card.sentence_code(name)
    library = "sentence-transformers"
  content = model_card.converted(folder, task, code, library)
  contents[model_card.NAME] = content
  config |= {"architectures": [architecture], **fields}
  contents[huggingface_weights.WEIGHTS_NAME] = _safetensors(tensors, step)
  # Last, because a folder with this file counts as a model.
  contents[huggingface_config.CONFIG_NAME] = strict_json.dumps(
    config, sort_keys=True
  )
  with new_folder(output_dir) as new:
    for name, content in contents.items():
      path = os.path.join(new, name)
      files.makedirs(os.path.dirname(path))
      files.write_file(path, content)
  return architecture


def to_tensorflow(model_dir: str, output_dir: str) -> str:
  """Writes a model in the format of a release; describes its size."""
  folder, model, task, weights = _read_model(model_dir)
  contents = _vocab_files(folder, model.tokenizer)
  if task:
    contents[task_file.NAME] = task_file.content(task.kind, task.settings)
  contents["bert_config.json"] = model.config_json()
  with new_folder(output_dir) as new:
    checkpoints.write_release(new, weights, contents)
  parameters = sum(int(np.size(value)) for value in weights.values())
  return f"{plural(len(weights), 'tensor')}, {parameters:,} parameters"


def _read_model(model_dir):
  """The folder of a Model, the Model, its Task or None, and its weights."""
  prefix = checkpoints.find_checkpoint(model_dir)
  if not files.is_remote(prefix):
    prefix = os.path.abspath(prefix)
  folder = os.path.dirname(prefix)
  model = resolve(prefix)
  kind, _ = task_file.read(folder)
  task = kind and loaded_model.make_task(model, kind, folder)
  return folder, model, task, _read_weights(prefix, model.config, task)


def _read_weights(prefix, config, task):
  """The variables of BERT and its heads, by name; others are logged."""
  checkpoint = checkpoints.Checkpoint(prefix)
  head = task.head_shapes(config) if task else _head_shapes(checkpoint, config)
  weights = {
    name
    for name in checkpoint.shapes
    if not checkpoints.is_training_state(name)
  }
  known = {name for name in weights if tensor_name(name) or name in head}
  others = sorted(weights - known)
  if changes := [name for name in others if name.startswith("bert/")]:
    raise UserError(
      f"{prefix} has {changes[0]}, which Hugging Face's format does not know; "
      f"convert a model whose encoder is BERT's"
    )
  if others:
    logging.warning("%s: not converted: %s", prefix, listing(others))
  reads_pooler = "cls/seq_relationship/output_weights" in head
  if task:
    reads_pooler = task.needs_pooler
  needs_pooler = reads_pooler or not known.isdisjoint(POOLER)
  checkpoints.compare(
    checkpoint,
    modeling.variable_shapes(config) | head,
    () if needs_pooler else POOLER,
  )
  if huggingface_weights.STEP in checkpoint:
    known.add(huggingface_weights.STEP)
  return {name: checkpoint[name] for name in sorted(known)}


def _head_shapes(checkpoint, config):
  """Name and shape of the variables of the heads of a model without a task."""
  shapes, size = checkpoint.shapes, config.hidden_size
  parts = {name.rpartition("/")[0] for name in shapes}
  folder = os.path.dirname(checkpoint.prefix)
  architecture = huggingface_config.read_head(folder).architecture
  model_type, head = split_architecture(architecture)
  is_paired = head == "ForPreTraining" and model_type in _PAIRED
  wanted = {}
  if "output_weights" in shapes:
    wanted = layers.output_shapes(size, shapes["output_weights"][0])
  if "cls/squad" in parts:
    wanted |= layers.output_shapes(size, 2, "cls/squad/")
  if "cls/seq_relationship" in parts or is_paired:
    wanted |= layers.output_shapes(size, 2, "cls/seq_relationship/")
  is_masked = is_paired or head == "ForMaskedLM"
  if is_masked or any(part.startswith("cls/predictions") for part in parts):
    wanted |= pretraining.variable_shapes(config, False)
  return wanted


def _describe_head(family, task, weights):
  """The head of a model, and the fields of config.json for its task."""
  if task:
    name = huggingface_names.head_of(task.kind)
    if not name or task.fits_head:  # Theirs reads the pooled output.
      return "Model", {}
    if task.kind == "classification":
      return name, portable.config_fields(task.settings)
    return name, label_fields(task.labels) if task.labels else {}
  if "cls/squad/output_weights" in weights:
    return huggingface_names.head_of("squad"), {}
  if "output_weights" in weights:  # Trained by the original.
    labels = [f"LABEL_{i}" for i in range(len(weights["output_bias"]))]
    return huggingface_names.head_of("classification"), label_fields(labels)
  if "cls/predictions/output_bias" not in weights:
    return "Model", {}
  is_paired = "cls/seq_relationship/output_weights" in weights
  is_paired &= family in _PAIRED
  return "ForPreTraining" if is_paired else "ForMaskedLM", {}


def _vocab_files(folder, tokenizer) -> Contents:
  """vocab.txt, or the SentencePiece model, by name."""
  path = model_folder.find_vocabulary(folder)
  if not (path.endswith(".json") and tokenizer.splits_words):
    # To other programs, a byte order mark is a part of the first piece.
    content = files.read_bytes(path).removeprefix(codecs.BOM_UTF8)
    return {os.path.basename(path): content}
  return {"vocab.txt": vocabulary.vocab_text(tokenizer.vocab)}


def _tokenizer_files(folder, model) -> Contents:
  """The vocabulary, tokenizer_config.json and tokenizer.json."""
  tokenizer, config = model.tokenizer, model.config
  contents = _vocab_files(folder, tokenizer)
  if tokenizer.splits_words:
    lower_cases = tokenizer.basic_tokenizer.do_lower_case
    made = make_tokenizer(tokenizer.vocab, lower_cases)
    contents["tokenizer.json"] = made.to_str(pretty=True)
    settings = {
      "tokenizer_class": "BertTokenizer",
      "do_lower_case": lower_cases,
      "strip_accents": None,
      "tokenize_chinese_chars": True,
    }
  elif "tokenizer.json" in contents:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if task_file.read(folder)[0] == "tagging":
      fields = strict_json.loads(contents["tokenizer.json"])
      splits = fields.get("pre_tokenizer") or {}
      for part in (splits, *splits.get("pretokenizers", ())):
        if "add_prefix_space" in part:  # Split the first word like the others.
          part["add_prefix_space"] = True
      contents["tokenizer.json"] = json.dumps(fields, ensure_ascii=False)
      settings["add_prefix_space"] = True  # For transformers 4.
  else:
    logging.warning(
      "No tokenizer.json: BERT's tokenizer in transformers has no "
      "SentencePiece. The model file is copied."
    )
    return contents
  has_segments = config.type_vocab_size > 1 and tokenizer.special.has_segments
  segments = ["token_type_ids"] if has_segments else []
  settings["model_input_names"] = ["input_ids", *segments, "attention_mask"]
  positions = config.max_position_embeddings
  trained = task_file.read(folder)[1].get("max_seq_length", positions)
  settings |= {
    "clean_up_tokenization_spaces": False,
    "model_max_length": trained,
  }
  special = {"unk": tokenizer.unk_token, **tokenizer.special._asdict()}
  for role in ("unk", "sep", "pad", "cls", "mask"):
    if special[role] in tokenizer.vocab:
      settings[f"{role}_token"] = special[role]
  name = huggingface_config.TOKENIZER_NAME
  return {**contents, name: strict_json.dumps(settings)}


def make_tokenizer(vocab: Mapping[str, int], do_lower_case: bool):
  """A `tokenizers.Tokenizer` that splits text as `FullTokenizer` does.

  The exception: special tokens in a text, such as [MASK], are not split.
  """
  import tokenizers

  made = tokenizers.BertWordPieceTokenizer(dict(vocab), lowercase=do_lower_case)
  made.model.max_input_chars_per_word = tokenization.MAX_WORD_LENGTH
  return made


def _safetensors(tensors, step):
  metadata = {"format": "pt"}
  if step is not None:
    metadata[huggingface_weights.STEP] = str(step)
  content = safetensors.save(tensors, metadata)
  length = int.from_bytes(content[:8], "little")
  header = strict_json.loads(content[8 : 8 + length])
  # The library's order of the metadata differs from run to run.
  header["__metadata__"] = metadata
  text = json.dumps(header, separators=(",", ":")).encode()
  # The data start at a multiple of 8 bytes.
  text += b" " * (-len(text) % 8)
  return len(text).to_bytes(8, "little") + text + content[8 + length :]
