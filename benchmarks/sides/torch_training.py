"""Trains, evaluates and predicts with transformers and sentence-transformers.

    python torch_training.py TASK MODEL_DIR OUTPUT_DIR --labels=FILE
        [--train=FILE] [--dev=FILE] [--test=FILE] [--seed=1] [--bfloat16]

TASK is `pairs`, a classifier of two texts; `words`, labels of words; or
`vectors`, in-batch negatives with scale 20. As our scripts do: one epoch with
batches of 32 rows of at most 128 word pieces, AdamW with a weight decay of
0.01, and a linear warm-up over a tenth of the steps. The learning rate is 5e-5,
and 2e-5 for vectors. Rows of similar length share a batch, as with
`group_by_length`, and a batch is padded to its longest row. bfloat16 is
PyTorch's autocast.

Writes eval_results.txt of --dev, and test_results.tsv of --test, in the form of
our scripts. The labels are those of the file --labels. Without --train, the
model in MODEL_DIR is evaluated.
"""

import argparse
import csv
import itertools
import os
import random

import torch
import transformers

BATCH, LENGTH, SCALE = 32, 128, 20.0


def read_table(path):
  """Triples of two texts and a label."""
  with open(path, encoding="utf-8", newline="") as reader:
    _, *rows = csv.reader(reader)
  return rows


def read_sentences(path):
  """Pairs of words and their labels, from columns."""
  with open(path, encoding="utf-8") as reader:
    lines = [line.split() for line in reader]
  blocks = itertools.groupby(lines, lambda x: bool(x) and x[0] != "-DOCSTART-")
  sentences = [list(block) for is_sentence, block in blocks if is_sentence]
  return [([x[0] for x in s], [x[-1] for x in s]) for s in sentences]


class Pairs:
  """A classifier of pairs; its metric is accuracy."""

  rate, read = 5e-5, staticmethod(read_table)
  kind = transformers.AutoModelForSequenceClassification

  def __init__(self, folder, rows):
    self.labels = self.labels_of(rows)
    self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    count = len(self.labels)
    self.model = self.kind.from_pretrained(folder, num_labels=count)

  def labels_of(self, rows):
    return sorted({row[2] for row in rows})

  def size(self, row):
    return len(row[0]) + len(row[1])

  def tokenize(self, *texts, **options):
    return self.tokenizer(
      *texts,
      truncation=True,
      max_length=LENGTH,
      padding=True,
      return_tensors="pt",
      **options,
    )

  def encode(self, rows):
    first, second, labels = zip(*rows, strict=True)
    features = self.tokenize(first, second)
    features["labels"] = torch.tensor([self.labels.index(x) for x in labels])
    return features

  def loss(self, rows):
    return self.model(**self.encode(rows)).loss

  def evaluate(self, rows):
    """Accuracy, and the mean loss of a label."""
    right, count, total = 0, 0, 0.0
    for batch in in_order(rows):
      features = self.encode(batch)
      output = self.model(**features)
      known = features["labels"] != -100
      equal = output.logits.argmax(-1) == features["labels"]
      right += (equal & known).sum().item()
      count += known.sum().item()
      total += output.loss.item() * known.sum().item()
    return {"eval_accuracy": right / count, "eval_loss": total / count}

  def predict(self, rows):
    """Probabilities [rows, labels], computed in the order of lengths."""
    order = sorted(range(len(rows)), key=lambda n: self.size(rows[n]))
    found = []
    for batch in in_order([rows[n] for n in order]):
      found += self.model(**self.encode(batch)).logits.softmax(-1).tolist()
    return [row for _, row in sorted(zip(order, found, strict=True))]


class Words(Pairs):
  """Labels of words, at their first piece."""

  read = staticmethod(read_sentences)
  kind = transformers.AutoModelForTokenClassification

  def labels_of(self, rows):
    return sorted({label for _, labels in rows for label in labels})

  def size(self, row):
    return len(row[0])

  def encode(self, rows):
    texts = [words for words, _ in rows]
    features = self.tokenize(texts, is_split_into_words=True)
    labels = torch.full(features["input_ids"].shape, -100)
    for n, (_, names) in enumerate(rows):
      words = features.word_ids(n)
      for position, word in enumerate(words):
        if word is not None and word != words[position - 1]:
          labels[n, position] = self.labels.index(names[word])
    features["labels"] = labels
    return features


class Vectors(Pairs):
  """Vectors of texts."""

  rate = 2e-5

  def __init__(self, folder, rows):
    import sentence_transformers

    self.model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    self.model.max_seq_length = LENGTH

  def vectors(self, texts):
    # Its name before version 5.3.
    prepare = getattr(self.model, "preprocess", None) or self.model.tokenize
    found = self.model(prepare(list(texts)))["sentence_embedding"].float()
    return torch.nn.functional.normalize(found)

  def loss(self, rows):
    first, second, _ = zip(*rows, strict=True)
    scores = SCALE * self.vectors(first) @ self.vectors(second).T
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(rows)))

  def evaluate(self, rows):
    """MRR@10 among the second texts."""
    queries, corpus = (
      list(dict.fromkeys(row[n] for row in rows)) for n in (0, 1)
    )
    pairs = {(query, text) for query, text, _ in rows}
    first, second = (
      self.model.encode(x, convert_to_tensor=True, normalize_embeddings=True)
      for x in (queries, corpus)
    )
    total = 0.0
    for query, scores in zip(queries, first @ second.T, strict=True):
      best = scores.argsort(descending=True, stable=True)[:10].tolist()
      ranks = (n for n, x in enumerate(best, 1) if (query, corpus[x]) in pairs)
      total += 1 / next(ranks, float("inf"))
    return {"eval_mrr_at_10": total / len(queries)}


def in_order(rows):
  return [rows[n : n + BATCH] for n in range(0, len(rows), BATCH)]


def grouped(rows, size, rng):
  """Batches of rows of similar length, in random order."""
  order = rng.sample(rows, len(rows))
  parts = [order[n : n + 50 * BATCH] for n in range(0, len(order), 50 * BATCH)]
  ordered = [x for part in parts for x in sorted(part, key=size, reverse=True)]
  batches = in_order(ordered)[: max(1, len(rows) // BATCH)]
  return rng.sample(batches, len(batches))


def train(task, rows, seed, uses_bfloat16):
  """One epoch."""
  batches = grouped(rows, task.size, random.Random(seed))
  groups = {0.01: [], 0.0: []}
  for name, parameter in task.model.named_parameters():
    is_small = "bias" in name or "LayerNorm" in name
    groups[0.0 if is_small else 0.01].append(parameter)
  groups = [{"params": p, "weight_decay": x} for x, p in groups.items()]
  optimizer = torch.optim.AdamW(groups, lr=task.rate, eps=1e-6)
  schedule = transformers.get_linear_schedule_with_warmup(
    optimizer, len(batches) // 10, len(batches)
  )
  task.model.train()
  for batch in batches:
    with torch.autocast("cpu", torch.bfloat16, enabled=uses_bfloat16):
      loss = task.loss(batch)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
    optimizer.step()
    schedule.step()


def parse_flags(tasks):
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument("task", choices=tasks)
  parser.add_argument("model_dir")
  parser.add_argument("output_dir")
  for name in ("labels", "train", "dev", "test"):
    parser.add_argument(f"--{name}")
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--bfloat16", action="store_true")
  return parser.parse_args()


def main():
  tasks = {"pairs": Pairs, "words": Words, "vectors": Vectors}
  flags = parse_flags(tasks)
  torch.manual_seed(flags.seed)
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  kind = tasks[flags.task]
  task = kind(flags.model_dir, kind.read(flags.labels))
  if flags.train:
    train(task, kind.read(flags.train), flags.seed, flags.bfloat16)
  task.model.eval()
  with torch.inference_mode():
    if flags.dev:
      results = task.evaluate(kind.read(flags.dev))
      with open(f"{flags.output_dir}/eval_results.txt", "w") as writer:
        writer.writelines(f"{name} = {x}\n" for name, x in results.items())
    if flags.test:
      rows = task.predict(kind.read(flags.test))
      path = f"{flags.output_dir}/test_results.tsv"
      with open(path, "w", newline="") as writer:
        csv.writer(writer, delimiter="\t").writerows(rows)


if __name__ == "__main__":
  main()
