"""Extraction of features by extract_features.py, as a whole command.

    python benchmarks/features.py [LINES LAYERS HIDDEN ROUNDS]

Extracts the features of LINES (400) texts of 4 to 60 words with a model of
LAYERS (6) layers of width HIDDEN (384) and random weights, in turns: four
layers of each token as JSON Lines and as .npz in float16, and one vector for
each text in float32 and in bfloat16. Prints the seconds of ROUNDS (5) runs.
"""

import functools
import sys
import tempfile

import machine

JOBS = {
  "tokens, JSON Lines": ["out.jsonl", "--layers=-1,-2,-3,-4"],
  "tokens, .npz": ["out.npz", "--layers=-1,-2,-3,-4", "--dtype=float16"],
  "vectors, .npz": ["out.npz", "--layers=-1", "--pooling=mean"],
  "vectors, .npz, bfloat16": [
    "out.npz",
    "--layers=-1",
    "--pooling=mean",
    "--precision=bfloat16",
  ],
}


def extract(folder, output, *flags):
  machine.script(
    "extract_features.py",
    f"--input_file={folder}/texts.txt",
    f"--output_file={folder}/{output}",
    f"--init_checkpoint={folder}/model",
    *flags,
  )


def main(lines=400, layers=6, hidden=384, rounds=5):
  print(machine.describe(), flush=True)
  with tempfile.TemporaryDirectory() as folder:
    machine.write_model(f"{folder}/model", max(layers, 4), hidden)
    with open(f"{folder}/texts.txt", "w", encoding="utf-8") as writer:
      writer.writelines(f"{text}\n" for text in machine.make_texts(lines))
    sides = {
      name: functools.partial(
        machine.timed, functools.partial(extract, folder, *arguments)
      )
      for name, arguments in JOBS.items()
    }
    machine.in_turns(sides, rounds)


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
