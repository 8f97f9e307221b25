"""Ids of the word pieces of a text by our tokenizer, or by tokenizers.

    python tokens.py bert|tokenizers MODEL_DIR TEXT_FILE OUTPUT_DIR

Prints the seconds of all lines on one core, with an empty cache and without
loading. Writes result.npy.
"""

import os
import sys
import time

import numpy as np


def load_bert(folder):
  root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
  sys.path.insert(0, root)
  from bert.models.resolve import resolve

  tokenizer = resolve(folder).tokenizer

  def run(lines):
    pieces = map(tokenizer.tokenize, lines)
    return [tokenizer.convert_tokens_to_ids(words) for words in pieces]

  return run


def load_tokenizers(folder):
  from tokenizers import Tokenizer

  tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
  tokenizer.no_truncation()
  tokenizer.no_padding()

  def run(lines):
    found = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    return [row.ids for row in found]

  return run


def main(library, folder, text_file, output_dir):
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  os.environ["TOKENIZERS_PARALLELISM"] = "false"
  with open(text_file, encoding="utf-8") as reader:
    lines = reader.read().splitlines()
  run = {"bert": load_bert, "tokenizers": load_tokenizers}[library](folder)
  start = time.perf_counter()
  ids = run(lines)
  print(f"seconds = {time.perf_counter() - start}")
  np.save(f"{output_dir}/result.npy", np.concatenate(ids))


if __name__ == "__main__":
  main(*sys.argv[1:])
