"""A pre-trained model for an extended vocabulary."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert.data import files, vocabulary
from bert.models import checkpoints
from bert.models.resolve import Overrides, resolve

# Have a row for each piece.
_TABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


def write_extended_model(
  init_checkpoint: str,
  output_dir: str,
  old: Sequence[str],
  pieces: Sequence[str],
  replaced: Mapping[str, Sequence[str]],
  do_lower_case: bool = True,
) -> None:
  """Writes a model whose table of word embeddings has rows for new pieces.

  The embedding of a new piece is the mean of those of the pieces that it
  replaces, and so is its bias in the masked-word head, if there is one.

  Args:
    init_checkpoint, output_dir: the model, and the release to write.
    old, pieces: the vocabulary before and after.
    replaced: from each new piece to the old ones that it replaces.
  """
  overrides = Overrides(do_lower_case=do_lower_case)
  model = resolve(init_checkpoint, overrides, True, needs_tokenizer=False)
  config = model.config
  # The name of a new folder does not tell it.
  config.do_lower_case = do_lower_case
  checkpoint = checkpoints.Checkpoint(model.checkpoint, weights_only=True)
  values = {name: checkpoint[name] for name in checkpoint.shapes}
  index = {piece: number for number, piece in enumerate(old)}
  config.vocab_size = max(config.vocab_size, len(pieces))
  for name in _TABLES:
    if name in values:
      table = values[name]
      grown = np.zeros([config.vocab_size, *table.shape[1:]], table.dtype)
      grown[: len(table)] = table
      for number, piece in enumerate(pieces):
        if piece in replaced:
          rows = [index[part] for part in replaced[piece]]
          grown[number] = table[rows].mean(axis=0)
      values[name] = grown
  contents = {
    "bert_config.json": config.to_json_string(),
    "vocab.txt": vocabulary.vocab_text(pieces),
  }
  files.makedirs(output_dir)
  checkpoints.write_release(output_dir, values, contents)
