"""How a program in another language uses an ONNX or LiteRT file.

files.write_file(f"{folder}/README.md", readme("model.tflite", task))
"""

from collections.abc import Mapping

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
  "ids": "the most probable pieces, the best first",
  "log_prob": "the log-probability of the piece `masked_lm_ids`",
  "next_sentence": "the probability that B follows A",
}

# Further inputs of masked words.
_MASK_INPUTS = """
   `masked_lm_positions`, int64 [rows, 1], is the position of the piece to
   predict, and `masked_lm_ids`, of the same shape, any piece."""

# Follows the card of an ONNX folder, whose code answers without TensorFlow.
_OTHERS = """
`bert-serve --model_dir=FOLDER` serves it. Neither needs TensorFlow.

## Use it in a program of your own
"""


def readme(
  name: str,
  task: Task,
  length: int | None = None,
  has_task: bool = True,
  is_release: bool = False,
  metrics: Mapping[str, Mapping[str, float]] | None = None,
) -> str:
  """What follows the card beside model.onnx, or the README of model.tflite.

  Args:
    length: of the rows; default: that of the task.
    has_task: whether the folder has a task.json.
    is_release: whether an ONNX file also has the outputs of the encoder.
    metrics: in float32 and in int8, see `precision_loss`.
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
  if has_task:
    recorded = " `task.json` has\n   the labels, in the order of the outputs, "
    recorded += "and the settings."
  others = _MASK_INPUTS if task.kind == "fill_mask" else ""
  dtype = "int32" if is_lite else "int64"
  shape = ["1", f"{length}"] if is_lite else ["rows", "length"]
  if len(task.feature_spec(False)["input_ids"].cut_axes) > 1:
    shape.insert(1, "1" if is_lite else "choices")
  return f"""{f"# A BERT model ({task.kind})" if is_lite else _OTHERS}

An input consists of {inputs}.

1. Split each text by `tokenizer.json`, without special pieces.{recorded}
2. Cut a row to {length} pieces, with special ones: remove the last pieces of
   the longer text; of equally long ones, those of the second.
3. `input_ids` is {row}.
   Padding follows. `input_mask` is 1 for pieces and 0 for padding.
   `segment_ids` is 1 for B and its last {special.sep}, if the model has two
   segments, and else 0. All three are {dtype} [{", ".join(shape)}].{others}
4. `{name}` computes for each row:
{_outputs(task, is_release and not is_lite)}{_measured(metrics or {})}"""


def _measured(metrics):
  """The loss by int8."""
  lines = [
    f"| {name} | {value:.4f} | {metrics['int8'][name]:.4f} |\n"
    for name, value in metrics.get("float32", {}).items()
  ]
  head = "\n| development set | float32 | int8 |\n| --- | --- | --- |\n"
  return head + "".join(lines) if lines else ""


def _outputs(task, is_release):
  meanings = {output: _MEANINGS.get(output) for output in task.output_axes()}
  if task.kind == "classification" and not task.labels:
    meanings["probabilities"] = "the predicted numbers"
  if is_release:
    meanings["sequence_output"] = "the vector of each piece"
    meanings[POOLED] = "the vector of the pooler, if the model has one"
  return "".join(
    f"   - `{output}`{f': {meaning}' if meaning else ''}\n"
    for output, meaning in meanings.items()
  )
