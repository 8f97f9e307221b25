"""Runs in an environment with transformers: models in, outputs out.

    python transformers_outputs.py FOLDER

In FOLDER, `inputs.npz` holds a batch. Each folder `converted/ARCHITECTURE` is
loaded and its outputs are written to `converted/ARCHITECTURE.npz`. Then random
models of the same architectures are written to `saved/`, with their outputs.
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

OUTPUTS = (
  "last_hidden_state",
  "pooler_output",
  "logits",
  "prediction_logits",
  "seq_relationship_logits",
  "start_logits",
  "end_logits",
)


def write_outputs(model, path, inputs):
  model.eval()
  if type(model).__name__ == "BertForMultipleChoice":
    inputs = {name: value[None] for name, value in inputs.items()}
  with torch.no_grad():
    found = model(**inputs)
  values = {n: found[n].numpy() for n in OUTPUTS if found.get(n) is not None}
  np.savez(path, **values)


def main(folder):
  torch.manual_seed(1)
  batch = np.load(folder / "inputs.npz")
  inputs = {
    "input_ids": torch.tensor(batch["input_ids"]).long(),
    "attention_mask": torch.tensor(batch["input_mask"]).long(),
    "token_type_ids": torch.tensor(batch["segment_ids"]).long(),
  }
  (folder / "saved").mkdir()
  for path in sorted((folder / "converted").iterdir()):
    build = getattr(transformers, path.name)
    model, info = build.from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"], info
    write_outputs(model, path.with_suffix(".npz"), inputs)
    config = model.config
    # Two further activations, which have other names here.
    config.hidden_act = "gelu" if config.num_labels == 2 else "gelu_new"
    saved = folder / "saved" / path.name
    config.initializer_range = 0.2
    fresh = build(config)
    fresh.save_pretrained(saved)
    transformers.BertTokenizer.from_pretrained(path).save_pretrained(saved)
    write_outputs(fresh, saved.with_suffix(".npz"), inputs)


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]))
