"""README.md beside an ONNX or LiteRT file, for programs in other languages.

files.write_file(f"{folder}/README.md", readme("model.onnx", task))
"""

from bert.contract.task import Task
from bert.engine.onnx_graph import POOLED

# Output -> its meaning.
_MEANINGS = {
  "logits": "scores before the softmax or sigmoid, not probabilities",
  "probabilities": "probabilities, from 0 to 1",
  "start_logits": "scores of the first piece of the answer, not probabilities",
  "end_logits": "scores of its last piece, not probabilities",
  "labels": "the index of the label of each piece",
  "vectors": "the vector of the text",
}


def readme(
  name: str, task: Task, length: int | None = None, is_trained: bool = True
) -> str:
  """The content of README.md beside a file, model.onnx or model.tflite."""
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
  if len(task.feature_spec(False)["input_ids"].cut_axes) > 1:
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
{_outputs(name, task, is_trained)}"""


def _outputs(name, task, is_trained):
  meanings = {output: _MEANINGS.get(output) for output in task.output_axes()}
  if task.kind == "classification" and not task.labels:
    meanings["probabilities"] = "the predicted numbers"
  if name == "model.onnx" and not is_trained:
    meanings = {"sequence_output": "the vector of each piece"}
    meanings[POOLED] = "the vector of the pooler, if the model has one"
  return "".join(
    f"   - `{output}`{f': {meaning}' if meaning else ''}\n"
    for output, meaning in meanings.items()
  )
