"""The model whose answers are parts of a text, and how it reads (SQuAD).

Devlin et al. 2019, sections 4.2 and 4.3.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

import modeling
import optimization
import variables
from errors import UserError
from pipeline import files, records
from tasks import squad, squad_decoding
from training import checkpoints, estimator, model_folder

# What a folder says of the model in it, beside `bert_config.json`, and of how
# sure it must be that there is no answer.
SETTINGS_NAME = "squad.json"
THRESHOLD_NAME = "null_threshold.json"


@dataclasses.dataclass(frozen=True)
class ReadingSettings:
  """How questions and texts are read.

  Attributes:
    max_seq_length: S.
    doc_stride: by how many pieces a window lies behind the one before.
    max_query_length: longer questions are cut to as many pieces.
    version_2_with_negative: whether a question may have no answer.
  """

  max_seq_length: int = 384
  doc_stride: int = 128
  max_query_length: int = 64
  version_2_with_negative: bool = False

  def check(self) -> None:
    """Raises ValueError unless windows of any question overlap."""
    if self.max_query_length < 1:
      raise UserError(
        f"--max_query_length={self.max_query_length} is less than 1; raise it"
      )
    room = self.max_seq_length - self.max_query_length - 3
    if room < 2:
      raise UserError(
        f"--max_seq_length={self.max_seq_length} leaves no room for text "
        f"beside --max_query_length={self.max_query_length} and 3 special "
        f"tokens; raise the one or lower the other"
      )
    if not 0 < self.doc_stride < room:
      raise UserError(
        f"--doc_stride={self.doc_stride} is not between 1 and {room - 1}, so "
        f"that windows of {room} pieces, which --max_seq_length="
        f"{self.max_seq_length} and --max_query_length="
        f"{self.max_query_length} leave, would not overlap; lower it"
      )

  def features(
    self, examples: Iterable[squad.SquadExample], tokenizer, is_training: bool
  ) -> Iterator[squad.InputFeatures]:
    """The windows of questions, see `squad.iterate_features`."""
    return squad.iterate_features(
      examples,
      tokenizer,
      self.max_seq_length,
      self.doc_stride,
      self.max_query_length,
      is_training,
    )

  def release_files(self) -> dict[str, str]:
    """What tells a Reader how to read: file name -> content."""
    content = json.dumps(dataclasses.asdict(self), indent=2)
    return {SETTINGS_NAME: content + "\n"}


def read_settings(model_dir: str) -> ReadingSettings | None:
  """What `release_files` wrote into a folder; None if there is nothing.

  Raises:
    ValueError: the file is damaged.
  """
  path = os.path.join(model_dir, SETTINGS_NAME)
  found = model_folder.read_json(path, dict)
  if found is None:
    return None
  settings = dataclasses.asdict(ReadingSettings())
  for name, value in settings.items():
    if type(found.get(name)) is not type(value):
      raise UserError(
        model_folder.damaged(path, f"{name}: {found.get(name)!r}")
      )
    settings[name] = found[name]
  return ReadingSettings(**settings)


def write_threshold(model_dir: str, threshold: float) -> None:
  """Stores the threshold that was found best for a folder's model."""
  content = json.dumps({"null_score_diff_threshold": threshold}, indent=2)
  files.write_file(os.path.join(model_dir, THRESHOLD_NAME), content + "\n")


def read_threshold(*folders: str) -> float:
  """What `write_threshold` stored, in the first of some folders that has it.

  Raises:
    ValueError: none has, or the file is damaged.
  """
  for folder in folders:
    path = os.path.join(folder, THRESHOLD_NAME)
    found = model_folder.read_json(path, dict)
    if found is None:
      continue
    threshold = found.get("null_score_diff_threshold")
    if type(threshold) not in (int, float):
      raise UserError(f"{path} is damaged; answer a file with answers again")
    return threshold
  places = " or ".join(dict.fromkeys(folders))
  raise UserError(
    f"--null_score_diff_threshold=auto: there is no {THRESHOLD_NAME} in "
    f"{places}; answer a file with answers first, which writes it, or pass a "
    f"number"
  )


def head_shapes(bert_config: modeling.BertConfig) -> dict[str, list[int]]:
  """Name and shape of the variables that SQuAD adds to BERT."""
  return {
    "cls/squad/output_weights": [2, bert_config.hidden_size],
    "cls/squad/output_bias": [2],
  }


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  use_one_hot_embeddings: bool,
  precision: str = "float32",
) -> tuple[tf.Tensor, tf.Tensor]:
  """BERT with a start and an end vector on each position (section 4.2).

  Args:
    bert_config: a BertConfig.
    is_training: whether dropout is on.
    input_ids, input_mask, segment_ids: integer [B, S].
    use_one_hot_embeddings, precision: see BertModel.

  Returns:
    start_logits, end_logits, each float [B, S].
  """
  model = modeling.BertModel(
    bert_config,
    is_training,
    input_ids,
    input_mask,
    segment_ids,
    use_one_hot_embeddings,
    precision=precision,
  )
  sequence = model.get_sequence_output()
  batch, seq, hidden = modeling.get_shape_list(sequence, expected_rank=3)
  weights_name, bias_name = shapes = head_shapes(bert_config)
  weights = variables.get_variable(
    weights_name, shapes[weights_name], modeling.create_initializer(0.02)
  )
  bias = variables.get_variable(
    bias_name, shapes[bias_name], tf.compat.v1.zeros_initializer()
  )
  rows = tf.reshape(sequence, [batch * seq, hidden])
  logits = tf.nn.bias_add(tf.matmul(rows, weights, transpose_b=True), bias)
  logits = tf.transpose(tf.reshape(logits, [batch, seq, 2]), [2, 0, 1])
  start_logits, end_logits = tf.unstack(logits, axis=0)  # [B, S] each.
  return start_logits, end_logits


def span_loss(
  start_logits: tf.Tensor,
  end_logits: tf.Tensor,
  start_positions: tf.Tensor,
  end_positions: tf.Tensor,
  input_mask: tf.Tensor | None = None,
) -> tf.Tensor:
  """The mean of both ends' cross-entropies, scalar.

  Args:
    start_logits, end_logits: float [B, S].
    start_positions, end_positions: integer [B].
    input_mask: integer [B, S], to leave padding out of the softmax, which makes
      the loss independent of how far rows are padded; None to let all S
      positions compete, as the original does.
  """
  losses = []
  if input_mask is not None:
    start_logits = without_padding(start_logits, input_mask)
    end_logits = without_padding(end_logits, input_mask)
  for logits, positions in (
    (start_logits, start_positions),
    (end_logits, end_positions),
  ):
    losses.append(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(positions, tf.int32), logits=logits
      )
    )
  return tf.reduce_mean(tf.stack(losses))


def without_padding(logits: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
  """Logits [B, S] of which those of padding are too low to matter."""
  padding = 1.0 - tf.cast(input_mask, tf.float32)
  return logits + padding * modeling.MASKED_SCORE


def model_fn_builder(
  bert_config: modeling.BertConfig,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
  precision: str = "float32",
  padding_competes: bool = True,
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of SQuAD, for `estimator.Estimator`, to train and predict.

  Args:
    bert_config: a BertConfig.
    init_checkpoint: where weights start from, or None.
    learning_rate, num_train_steps, num_warmup_steps: as `create_optimizer`
      takes them.
    use_tpu: kept for callers; `tf.distribute` knows the device.
    use_one_hot_embeddings, precision: see BertModel.
    padding_competes: whether the loss is the original's, in which padding may
      be taken for an answer; batches must all be padded to one length then.
  """
  del use_tpu

  def model_fn(features, labels, mode, params):
    del labels, params
    checkpoints.initialize_from(init_checkpoint, head_shapes(bert_config))
    is_training = mode == estimator.ModeKeys.TRAIN
    logits = create_model(
      bert_config,
      is_training,
      *(features[name] for name in records.SEQUENCES),
      use_one_hot_embeddings,
      precision,
    )
    if is_training:
      loss = span_loss(
        *logits,
        features["start_positions"],
        features["end_positions"],
        None if padding_competes else features["input_mask"],
      )
      train_op, logged = optimization.minimize(
        loss, learning_rate, num_train_steps, num_warmup_steps
      )
      return estimator.EstimatorSpec(mode, loss, train_op, logged)
    # Padding must not take a place among the best, since how much there is
    # depends on the other rows of the batch.
    logits = [without_padding(row, features["input_mask"]) for row in logits]
    outputs = (features["unique_ids"], *logits)
    names = squad_decoding.RawResult._fields
    return estimator.EstimatorSpec(
      mode, predictions=dict(zip(names, outputs, strict=True))
    )

  return model_fn
