r"""Makes the pictures of pages in docs/, from trained models.

    PYTHONPATH=.:tests python tests/browser/pictures.py \
      --report=/tmp/mrpc_output --names=/tmp/names \
      --model=hf://sentence-transformers/all-MiniLM-L6-v2

`--report` is the output folder of MRPC, `--names` that of a training on
sample_data/ner; `--model` searches, and shows its attention.
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import pathlib
import tempfile

import chromium
import scripts
import served
from PIL import Image

import bert
from bert.search import search, text_index
from bert.search.vector_index import Row, VectorIndex

NAMES = (
  "Clara Gruber left Atlas Shipping in Austria and went to Sunrise Bakery in "
  "Ireland. Nobody in Ireland had heard of her."
)
ATTENDING = "The cat sat on the mat, because it was tired after a long day."
LIMITS = dataclasses.replace(served.LIMITS, max_text_chars=9999, timeout_s=60.0)


def save(browser, name, *areas):
  """Writes areas (left, top, width, height) of a page side by side."""
  images = [Image.open(io.BytesIO(browser.picture(area))) for area in areas]
  size = sum(image.width for image in images), images[0].height
  whole = Image.new("RGB", size, "white")
  left = 0
  for image in images:
    whole.paste(image, (left, 0))
    left += image.width
  whole = whole.quantize(128, dither=Image.Dither.NONE)
  whole.save(scripts.ROOT / "docs" / name, optimize=True)


def top(browser, text):
  """Where the heading with a text begins."""
  return browser.run(
    "return [...document.querySelectorAll('h2, h3')].find(h => h.textContent "
    "=== arguments[0]).getBoundingClientRect().top + scrollY;",
    text,
  )


def show_report(browser, folder):
  browser.see((700, 900), "light")
  browser.open((pathlib.Path(folder) / "report.html").absolute().as_uri())
  browser.fit((700, 900))
  curves = top(browser, "Learning curves") - 20
  save(browser, "report.png", (0, 0, 700, 1300), (0, curves, 700, 1300))


def show_server(browser, name, height, texts, model, searcher=None):
  with served.running(model, name, LIMITS, searcher=searcher) as client:
    browser.see((760, height), "light")
    browser.open(f"http://127.0.0.1:{client.port}/")
    browser.ask(texts)
    picture = {"faq": "search.png", "names": "ner.png"}[name]
    save(browser, picture, (0, 0, 760, height))


def show_attention(browser, folder, model):
  path = folder / "attention.html"
  flags = f"--text={ATTENDING}", f"--init_checkpoint={model}"
  scripts.run("visualize.py", "attention", *flags, f"--output_file={path}")
  browser.see((760, 900), "light")
  browser.open(path.as_uri())
  browser.wait("!document.querySelector('main').hidden")
  browser.fit((760, 900))
  save(browser, "attention.png", (0, top(browser, "All heads"), 760, 530))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  for name in ("report", "names", "model"):
    parser.add_argument(f"--{name}", required=True)
  given = parser.parse_args()
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    folder = pathlib.Path(folder)
    browser = stack.enter_context(chromium.running(folder / "profile"))
    show_report(browser, given.report)
    show_attention(browser, folder, given.model)
    show_server(browser, "names", 420, [NAMES], bert.load(given.names))
    model = bert.load(given.model)
    with open(scripts.ROOT / "sample_data/embeddings/train.csv") as reader:
      answers = {row["answer"]: row for row in csv.DictReader(reader)}
    rows = [
      Row(str(number), text, {"question": row["question"]})
      for number, (text, row) in enumerate(answers.items())
    ]
    text_index.change(str(folder / "index"), model, rows, dtype="float32")
    searcher = search.Searcher(model, VectorIndex(str(folder / "index")))
    query = "How long may I keep a book?"
    show_server(browser, "faq", 640, [query], model, searcher)


if __name__ == "__main__":
  main()
