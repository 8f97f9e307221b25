"""The PyTorch side of training_step.py.

    python benchmarks/torch_steps.py LAYERS HIDDEN BATCH LENGTH

Runs in an environment with torch and transformers. For each line `JOB PRECISION
COUNT` on stdin, it prints the median seconds of COUNT steps of a model with
random weights. JOB is update (a classifier) or pretraining. bfloat16 is
PyTorch's autocast.
"""

import statistics
import sys
import time

import torch
import transformers

PREDICTIONS = 20


def make_model(kind, layers, hidden):
  """A model with the sizes of training_step.make_config."""
  config = transformers.BertConfig(
    vocab_size=30522,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=max(1, hidden // 64),
    intermediate_size=4 * hidden,
    hidden_act="gelu_new",
    num_labels=2,
  )
  return kind(config)


def make_update(model, inputs):
  """A function that makes one update."""
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, eps=1e-6)

  def update(autocast):
    model.train()
    with autocast:
      loss = model(**inputs).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

  return update


def make_step(job, layers, hidden, batch, length):
  """A function that runs one step of a job."""
  ids = torch.randint(0, 30522, [batch, length])
  inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
  if job == "pretraining":
    labels = torch.full_like(ids, -100)
    labels[:, :PREDICTIONS] = ids[:, :PREDICTIONS]
    inputs["labels"] = labels
    inputs["next_sentence_label"] = torch.randint(0, 2, [batch])
    kind = transformers.BertForPreTraining
    return make_update(make_model(kind, layers, hidden), inputs)
  inputs["labels"] = torch.randint(0, 2, [batch])
  kind = transformers.BertForSequenceClassification
  return make_update(make_model(kind, layers, hidden), inputs)


def main(*sizes):
  steps = {}
  print(torch.__version__, transformers.__version__, flush=True)
  for line in sys.stdin:
    job, precision, count = line.split()
    steps[job] = steps.get(job) or make_step(job, *sizes)
    times = []
    for _ in range(int(count)):
      enabled = precision == "bfloat16"
      autocast = torch.autocast("cpu", torch.bfloat16, enabled=enabled)
      start = time.perf_counter()
      steps[job](autocast)
      times.append(time.perf_counter() - start)
    print(statistics.median(times), flush=True)


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
