"""The other side of encoder_steps.py, for an environment with PyTorch.

    python benchmarks/torch_steps.py LAYERS HIDDEN BATCH LENGTH

Builds transformers' BertForSequenceClassification with random weights. For each
line `update|forward float32|bfloat16 COUNT` on stdin it prints the median
seconds of that many steps. bfloat16 is PyTorch's autocast.
"""

import statistics
import sys
import time

import torch
import transformers


def make_model(layers, hidden):
  """A classifier of the sizes of training_step.make_config."""
  config = transformers.BertConfig(
    vocab_size=30522,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=max(1, hidden // 64),
    intermediate_size=4 * hidden,
    hidden_act="gelu_new",
    num_labels=2,
  )
  return transformers.BertForSequenceClassification(config)


def make_steps(model, batch, length):
  """Functions that make one update, and compute all positions' vectors."""
  ids = torch.randint(0, 30522, [batch, length])
  labels = torch.randint(0, 2, [batch])
  mask = torch.ones_like(ids)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, eps=1e-6)

  def update(autocast):
    model.train()
    with autocast:
      loss = model(ids, attention_mask=mask, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

  def forward(autocast):
    model.eval()
    with torch.inference_mode(), autocast:
      model.bert(ids, attention_mask=mask)

  return {"update": update, "forward": forward}


def main(layers, hidden, batch, length):
  steps = make_steps(make_model(layers, hidden), batch, length)
  print(torch.__version__, transformers.__version__, flush=True)
  for line in sys.stdin:
    name, precision, count = line.split()
    enabled = precision == "bfloat16"
    times = []
    for _ in range(int(count)):
      autocast = torch.autocast("cpu", torch.bfloat16, enabled=enabled)
      start = time.perf_counter()
      steps[name](autocast)
      times.append(time.perf_counter() - start)
    print(statistics.median(times), flush=True)


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
