"""Vectors of texts by bert.load, sentence-transformers or fastembed.

    python vectors.py encode LIBRARY MODEL_DIR OPTIONS TEXTS_FILE OUTPUT_DIR
    python vectors.py serve LIBRARY MODEL_DIR OPTIONS PORT
    python vectors.py quantize MODEL_DIR TEXTS_DIR OUTPUT_DIR
    python vectors.py rename MODEL_DIR ONNX_DIR OUTPUT_DIR

`encode` loads the model, encodes 320 texts, and then all, 32 at a time, whose
seconds it prints; it writes result.npy. With a single text, it prints nothing.
`serve` answers POST /v1/embeddings by FastAPI. OPTIONS is JSON: what the
constructor of the library takes. `quantize` writes a model of
sentence-transformers for OpenVINO, also in static eight bits, calibrated with
the column `text` of the tables in TEXTS_DIR. `rename` gives an ONNX folder of
ours the names of inputs that fastembed expects, and the length of texts where
fastembed looks for it.
"""

import json
import os
import shutil
import sys
import time

BATCH = 32


def load_bert(folder, options):
  root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
  sys.path.insert(0, root)
  import bert

  model = bert.load(folder, batch_size=BATCH, **options)
  return lambda texts: [answer["vector"] for answer in model(texts)]


def load_sentence_transformers(folder, options):
  import torch
  from sentence_transformers import SentenceTransformer

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  model = SentenceTransformer(folder, device="cpu", **options)
  return lambda texts: model.encode(texts, batch_size=BATCH)


def load_fastembed(folder, options):
  from fastembed import TextEmbedding
  from fastembed.common.model_description import ModelSource, PoolingType

  with open(f"{folder}/config.json", encoding="utf-8") as reader:
    width = json.load(reader)["hidden_size"]
  TextEmbedding.add_custom_model(
    "the/model",
    PoolingType.DISABLED,  # The graph pools and normalizes.
    False,
    ModelSource(hf="the/model"),
    width,
    model_file="model.onnx",
  )
  model = TextEmbedding("the/model", specific_model_path=folder, **options)
  return lambda texts: list(model.embed(texts, batch_size=BATCH))


LIBRARIES = {
  "bert": load_bert,
  "sentence-transformers": load_sentence_transformers,
  "fastembed": load_fastembed,
}


def load(library, folder, options):
  return LIBRARIES[library](folder, json.loads(options))


def encode(library, folder, options, texts_file, output_dir):
  import numpy as np

  with open(texts_file, encoding="utf-8") as reader:
    texts = reader.read().splitlines()
  run = load(library, folder, options)
  if len(texts) > 1:
    run(texts[:320])
  start = time.perf_counter()
  vectors = run(texts)
  if len(texts) > 1:
    print(f"seconds = {time.perf_counter() - start}")
  np.save(f"{output_dir}/result.npy", np.asarray(vectors, np.float32))


def serve(library, folder, options, port):
  import fastapi
  import uvicorn

  run, app = load(library, folder, options), fastapi.FastAPI()

  @app.post("/v1/embeddings")
  def embeddings(body: dict):
    vectors = run([body["input"]])
    return {"data": [{"embedding": vector.tolist()} for vector in vectors]}

  uvicorn.run(app, port=int(port), log_level="error")


def quantize(folder, texts_dir, output_dir):
  import sentence_transformers
  from optimum.intel import OVQuantizationConfig

  model = sentence_transformers.SentenceTransformer(
    folder, device="cpu", backend="openvino"
  )
  model.save_pretrained(output_dir)
  sentence_transformers.export_static_quantized_openvino_model(
    model,
    OVQuantizationConfig(),
    output_dir,
    dataset_name=texts_dir,
    dataset_config_name="default",
    dataset_split="train",
    column_name="text",
  )


def read_json(path):
  with open(path, encoding="utf-8") as reader:
    return json.load(reader)


def rename(folder, onnx_dir, output_dir):
  import onnx

  model = onnx.load(f"{onnx_dir}/model.onnx")
  names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
  for value in model.graph.input:
    value.name = names.get(value.name, value.name)
  for node in model.graph.node:
    node.input[:] = [names.get(name, name) for name in node.input]
  shutil.copytree(folder, output_dir)
  config = read_json(f"{folder}/tokenizer_config.json")
  own = read_json(f"{folder}/sentence_bert_config.json")
  config["max_length"] = own.get("max_seq_length", config["model_max_length"])
  with open(f"{output_dir}/tokenizer_config.json", "w") as writer:
    json.dump(config, writer)
  onnx.save(model, f"{output_dir}/model.onnx")


if __name__ == "__main__":
  jobs = {
    "encode": encode,
    "serve": serve,
    "quantize": quantize,
    "rename": rename,
  }
  jobs[sys.argv[1]](*sys.argv[2:])
