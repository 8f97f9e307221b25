"""Names in the original checkpoints of ALBERT and ELECTRA, and ours.

    their_names(["electra/embeddings/word_embeddings"])
    # {"bert/embeddings/word_embeddings": "electra/embeddings/word_embeddings"}

Both were made of BERT's code, and have other names for what they added. A
checkpoint of ELECTRA may hold two encoders; the discriminator is read, and the
generator if there is no discriminator.
"""

import re
from collections.abc import Iterable

# Our names by patterns of ALBERT's; \1 is the number of a group.
_GROUP = r"^bert/encoder/transformer/group_(\d+)/inner_group_0/"
_LAYER = r"bert/encoder/layer_\1/"
_ALBERT = {
  r"^bert/encoder/embedding_hidden_mapping_in/": "bert/embeddings_project/",
  rf"{_GROUP}attention_1/": rf"{_LAYER}attention/",
  rf"{_GROUP}LayerNorm/": rf"{_LAYER}attention/output/LayerNorm/",
  rf"{_GROUP}ffn_1/intermediate/output/": rf"{_LAYER}output/",
  rf"{_GROUP}ffn_1/intermediate/": rf"{_LAYER}intermediate/",
  rf"{_GROUP}LayerNorm_1/": rf"{_LAYER}output/LayerNorm/",
}
_DISCRIMINATOR = {r"^electra/": "bert/"}
_GENERATOR = {
  r"^electra/embeddings/": "bert/embeddings/",
  r"^generator/": "bert/",
  r"^generator_predictions/output_bias": "cls/predictions/output_bias",
  r"^generator_predictions/": "cls/predictions/transform/",
}


def their_names(names: Iterable[str]) -> dict[str, str]:
  """The names of a checkpoint's variables by ours, where they differ."""
  names = list(names)
  patterns = _ALBERT | _GENERATOR
  if any(name.startswith("electra/encoder/") for name in names):
    patterns = _ALBERT | _DISCRIMINATOR
  found = {}
  for name in names:
    renamed = name.removeprefix("module/")  # Of TF-Hub's modules.
    for pattern, ours in patterns.items():
      renamed, count = re.subn(pattern, ours, renamed)
      if count:
        break
    if renamed != name:
      found[renamed] = name
  return found
