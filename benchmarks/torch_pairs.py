"""Trains vectors with sentence-transformers, as the other side of commands.py.

    python benchmarks/torch_pairs.py MODEL_DIR TRAIN.jsonl DEV.jsonl
        [--batch=32] [--epochs=1] [--rate=2e-5] [--seed=1] [--bf16]

Runs in an environment with sentence-transformers. MODEL_DIR is one of its
folders; the files have `text_a` and `text_b` on each line. As
run_embeddings.py does: in-batch negatives with scale 20, AdamW with warm-up
over a tenth of the steps and linear decay. Batches are in random order, and
each side of a batch is padded to its longest text. Prints MRR@10 among the
second texts of the development set. For both sides in turns, run:

    python benchmarks/commands.py \\
      'python run_embeddings.py --do_train --do_eval --output_dir={folder}
       --init_checkpoint=MODEL_DIR --train_file=TRAIN.jsonl
       --dev_file=DEV.jsonl --train_batch_size=32 --num_train_epochs=1
       --learning_rate=2e-5 --max_seq_length=128 --seed={round}' \\
      'PYTHON benchmarks/torch_pairs.py MODEL_DIR TRAIN.jsonl DEV.jsonl
       --seed={round}'
"""

import argparse
import json
import os

import sentence_transformers
import torch
import transformers

SCALE = 20.0


def read(path):
  with open(path, encoding="utf-8") as reader:
    rows = [json.loads(line) for line in reader]
  return [(row["text_a"], row["text_b"]) for row in rows]


def make_optimizer(model, rate, steps):
  groups = {0.01: [], 0.0: []}
  for name, parameter in model.named_parameters():
    is_small = "bias" in name or "LayerNorm" in name
    groups[0.0 if is_small else 0.01].append(parameter)
  optimizer = torch.optim.AdamW(
    [{"params": p, "weight_decay": decay} for decay, p in groups.items()],
    lr=rate,
  )
  return optimizer, transformers.get_linear_schedule_with_warmup(
    optimizer, steps // 10, steps
  )


def train(model, pairs, flags):
  steps = int(len(pairs) / flags.batch * flags.epochs)
  optimizer, schedule = make_optimizer(model, flags.rate, steps)
  generator = torch.Generator().manual_seed(flags.seed)
  model.train()
  step = 0
  while step < steps:
    order = torch.randperm(len(pairs), generator=generator).tolist()
    for start in range(0, len(order) - flags.batch + 1, flags.batch):
      if step == steps:
        break
      rows = [pairs[i] for i in order[start : start + flags.batch]]
      with torch.autocast("cpu", torch.bfloat16, enabled=flags.bf16):
        first, second = (
          model(model.tokenize(list(texts)))["sentence_embedding"].float()
          for texts in zip(*rows, strict=True)
        )
      first, second = map(torch.nn.functional.normalize, (first, second))
      loss = torch.nn.functional.cross_entropy(
        SCALE * first @ second.T, torch.arange(len(rows))
      )
      optimizer.zero_grad()
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
      optimizer.step()
      schedule.step()
      step += 1


def mrr(model, pairs):
  model.eval()
  corpus = list(dict.fromkeys(text for _, text in pairs))
  queries = list(dict.fromkeys(text for text, _ in pairs))
  relevant = {}
  for query, text in pairs:
    relevant.setdefault(query, set()).add(corpus.index(text))
  first, second = (
    model.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
    for texts in (queries, corpus)
  )
  total = 0.0
  for query, scores in zip(queries, first @ second.T, strict=True):
    best = scores.argsort(descending=True, stable=True)[:10].tolist()
    ranks = [n for n, i in enumerate(best, 1) if i in relevant[query]]
    total += 1 / ranks[0] if ranks else 0.0
  return total / len(queries)


def main():
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("model_dir")
  parser.add_argument("train_file")
  parser.add_argument("dev_file")
  parser.add_argument("--batch", type=int, default=32)
  parser.add_argument("--epochs", type=float, default=1.0)
  parser.add_argument("--rate", type=float, default=2e-5)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--bf16", action="store_true")
  flags = parser.parse_args()
  torch.manual_seed(flags.seed)
  torch.set_num_threads(os.cpu_count())
  model = sentence_transformers.SentenceTransformer(
    flags.model_dir, device="cpu"
  )
  model.max_seq_length = 128
  train(model, read(flags.train_file), flags)
  print(f"eval_mrr_at_10 = {mrr(model, read(flags.dev_file)):.4f}")


if __name__ == "__main__":
  main()
