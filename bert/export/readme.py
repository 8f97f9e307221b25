"""README.md beside an ONNX or LiteRT file, for programs in other languages.

files.write_file(f"{folder}/README.md", readme("model.onnx", task))
"""

from bert.training.onnx_graph import POOLED
from bert.training.task import Task

# What outputs are.
_MEANINGS = {
  "logits": "scores before the softmax or sigmoid, not probabilities",
  "probabilities": "probabilities, from 0 to 1",
  "start_logits": "scores of the first piece of the answer, not probabilities",
  "end_logits": "scores of its last piece, not probabilities",
  "labels": "the index of the label of each piece",
  "vectors": "the vector of the text",
}

_EXAMPLES = {
  "model.onnx": """import numpy as np, onnxruntime, tokenizers
model = onnxruntime.InferenceSession("model.onnx")
""",
  "model.tflite": """import numpy as np, tokenizers
from ai_edge_litert.interpreter import Interpreter
model = Interpreter("model.tflite").get_signature_runner()
""",
}

_READ_TEXT = """tokenizer.enable_truncation({length})
found = tokenizer.encode({texts})
"""

# `tokenizers` has no truncation that cuts a pair as step 2 does.
_READ_PAIR = """tokenizer.no_truncation()
tokenizer.no_padding()
texts = [{texts}]
a, b = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
room = {length} - tokenizer.num_special_tokens_to_add(len(b) > 0)
kept = min(len(a), max((room + 1) // 2, room - len(b)))
a.truncate(kept)
b.truncate(room - kept)
found = tokenizer.post_process(a, b if len(b) else None)
"""


def readme(
  name: str, task: Task, length: int | None = None, is_trained: bool = True
) -> str:
  """The content of README.md.

  Args:
    name: the file beside it, model.onnx or model.tflite.
    task: the task of the model.
    length: the length of a row of LiteRT; by default that of the task.
    is_trained: whether the model was trained on the task.
  """
  special, is_lite = task.tokenizer.special, name == "model.tflite"
  length = length or task.settings.max_seq_length
  fields = [field for field in task.inputs if field.default is None]
  inputs = " and ".join(f"`{field.name}`" for field in fields)
  row = f"{special.cls} A {special.sep}"
  if len(fields) > 1:
    between = f" {special.sep}" * special.between
    row = f"{special.cls} A{between} B {special.sep}, or {row} if B is empty"
  recorded = ""
  if is_trained:
    recorded = " `task.json` has\n   the labels, in the order of the outputs, "
    recorded += "and the settings."
  dtype = "int32" if is_lite else "int64"
  shape = ["1", f"{length}"] if is_lite else ["rows", "length"]
  has_choices = len(task.feature_spec(False)["input_ids"].cut_axes) > 1
  if has_choices:
    shape.insert(1, "1" if is_lite else "choices")
  return f"""# A BERT model ({task.kind})

An input consists of {inputs}.

1. Split each text by `tokenizer.json`, without special pieces.{recorded}
2. Cut a row to {length} pieces, with special ones: remove the last pieces of
   the longer text; of equally long ones, those of the second.
3. `input_ids` is {row}.
   Padding follows. `input_mask` is 1 for pieces and 0 for padding.
   `segment_ids` is 1 for B and its last {special.sep}, if the model has two
   segments, and else 0. All three are {dtype} [{", ".join(shape)}].
4. `{name}` computes for each row:
{_outputs(name, task, is_trained)}
An example in Python:

```python
{_example(name, fields, length, has_choices)}```
"""


def _outputs(name, task, is_trained):
  """A line for each output."""
  found = {output: _MEANINGS.get(output) for output in task.output_axes()}
  if task.kind == "classification" and not task.labels:
    found["probabilities"] = "the predicted numbers"
  if name == "model.onnx" and not is_trained:
    found = {"sequence_output": "the vector of each piece"}
    found[POOLED] = "the vector of the pooler, if the model has one"
  return "".join(
    f"   - `{output}`{f': {meaning}' if meaning else ''}\n"
    for output, meaning in found.items()
  )


def _example(name, fields, length, has_choices):
  """Python that answers an input."""
  texts = [f'"The {field.name}."' for field in fields[:2]]
  read = _READ_PAIR if len(texts) > 1 else _READ_TEXT
  read = read.format(texts=", ".join(texts), length=length)
  column, dtype, call = "values", "int64", "model.run(None, row)"
  if name == "model.tflite":
    column = f"(values + [0] * {length})[:{length}]"
    dtype, call = "int32", "model(**row)"
  column = f"[[{column}]]" if has_choices else f"[{column}]"
  return f"""{_EXAMPLES[name]}\
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
{read}\
columns = {{"input_ids": found.ids, "input_mask": found.attention_mask}}
columns["segment_ids"] = found.type_ids
row = {{}}
for name, values in columns.items():
  row[name] = np.array({column}, np.{dtype})
print({call})
"""
