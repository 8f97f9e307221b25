"""Fine-tunes on MRPC with transformers, as the other side of commands.py.

    python benchmarks/torch_mrpc.py MODEL_DIR MRPC_DIR [--seed=1] [--bf16]

Runs in an environment with torch and transformers. MODEL_DIR is a model in
Hugging Face's format. As run_classifier.py does: batches of 32 rows of similar
length, padded to the longest row, 3 epochs, learning rate 5e-5 with warm-up and
linear decay. bfloat16 is PyTorch's autocast. Prints the accuracy on the
development set. For both sides in turns, run:

    python benchmarks/commands.py \\
      'python run_classifier.py --task_name=MRPC --do_train --do_eval
       --data_dir=MRPC_DIR --init_checkpoint=MODEL_DIR --train_batch_size=32
       --learning_rate=5e-5 --seed={round} --output_dir={folder}' \\
      'TORCH_PYTHON benchmarks/torch_mrpc.py MODEL_DIR MRPC_DIR --seed={round}'
"""

import argparse
import csv
import os
import random

import torch
import transformers

BATCH, EPOCHS, LENGTH, RATE = 32, 3, 128, 5e-5


def read(path):
  """Triples of two texts and a label."""
  with open(path, encoding="utf-8-sig") as reader:
    _, *rows = csv.reader(reader, delimiter="\t", quoting=csv.QUOTE_NONE)
  return [(row[3], row[4], int(row[0])) for row in rows]


def encode(tokenizer, rows):
  """Features of rows, not padded."""
  first, second, labels = zip(*rows, strict=True)
  encoded = tokenizer(first, second, truncation=True, max_length=LENGTH)
  return [
    {**{name: values[i] for name, values in encoded.items()}, "labels": label}
    for i, label in enumerate(labels)
  ]


def batches_of_an_epoch(rows, rng):
  """Batches of rows of similar length, in random order."""
  order = rng.sample(rows, len(rows))
  size = 50 * BATCH
  parts = [order[start : start + size] for start in range(0, len(order), size)]
  ordered = [
    row
    for part in parts
    for row in sorted(part, key=lambda row: -len(row["input_ids"]))
  ]
  starts = range(0, len(ordered) - BATCH + 1, BATCH)
  batches = [ordered[start : start + BATCH] for start in starts]
  return rng.sample(batches, len(batches))


def make_optimizer(model, steps):
  """AdamW with the original's weight decay, and its schedule."""
  groups = {0.01: [], 0.0: []}
  for name, parameter in model.named_parameters():
    is_small = "bias" in name or "LayerNorm" in name
    groups[0.0 if is_small else 0.01].append(parameter)
  optimizer = torch.optim.AdamW(
    [{"params": p, "weight_decay": decay} for decay, p in groups.items()],
    lr=RATE,
    eps=1e-6,
  )
  return optimizer, transformers.get_linear_schedule_with_warmup(
    optimizer, steps // 10, steps
  )


def train(model, rows, collate, seed, autocast):
  steps = int(len(rows) / BATCH * EPOCHS)
  optimizer, schedule = make_optimizer(model, steps)
  rng, step = random.Random(seed), 0
  model.train()
  while step < steps:
    for batch in batches_of_an_epoch(rows, rng)[: steps - step]:
      with autocast:
        loss = model(**collate(batch)).loss
      optimizer.zero_grad()
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
      optimizer.step()
      schedule.step()
      step += 1


def accuracy(model, rows, collate):
  model.eval()
  correct = 0
  with torch.inference_mode():
    for start in range(0, len(rows), BATCH):
      features = collate(rows[start : start + BATCH])
      predicted = model(**features).logits.argmax(-1)
      correct += (predicted == features["labels"]).sum().item()
  return correct / len(rows)


def main():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("model_dir")
  parser.add_argument("mrpc_dir")
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--bf16", action="store_true")
  flags = parser.parse_args()
  torch.manual_seed(flags.seed)
  torch.set_num_threads(os.cpu_count())
  tokenizer = transformers.BertTokenizerFast.from_pretrained(flags.model_dir)
  collate = transformers.DataCollatorWithPadding(tokenizer)
  model = transformers.BertForSequenceClassification.from_pretrained(
    flags.model_dir, num_labels=2
  )
  rows, dev = (
    encode(tokenizer, read(f"{flags.mrpc_dir}/{name}.tsv"))
    for name in ("train", "dev")
  )
  autocast = torch.autocast("cpu", torch.bfloat16, enabled=flags.bf16)
  train(model, rows, collate, flags.seed, autocast)
  print(f"accuracy {accuracy(model, dev, collate):.4f}")


if __name__ == "__main__":
  main()
