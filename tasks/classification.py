"""A classifier on BERT's pooled output: its model_fn, and its use in Python.

    classifier = Classifier("/tmp/mrpc_output")
    classifier(["This movie is great!"])[0].label

A folder that training has filled says all that a Classifier needs to know.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import modeling
import optimization
import variables
from errors import UserError
from pipeline import records
from tasks import examples
from tasks import labels as label_types
from training import checkpoints, estimator, metrics, model_folder

# What a folder says of the classifier in it, beside `bert_config.json`.
LABELS_NAME = "labels.json"
SETTINGS_NAME = "classifier.json"


def head_shapes(
  bert_config: modeling.BertConfig, num_labels: int
) -> dict[str, list[int]]:
  """Name and shape of the variables that a classifier adds to BERT."""
  return {
    "output_weights": [num_labels, bert_config.hidden_size],
    "output_bias": [num_labels],
  }


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  labels: tf.Tensor,
  num_labels: int,
  use_one_hot_embeddings: bool,
  head: label_types.Head | None = None,
  label_weights: Sequence[float] | None = None,
  precision: str = "float32",
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """BERT with a linear layer on its pooled output (section 4.1).

  Args:
    bert_config: a BertConfig.
    is_training: whether dropout is on.
    input_ids, input_mask, segment_ids: integer [B, S].
    labels: [B, ...], as the head encodes them.
    num_labels: number of outputs, C.
    use_one_hot_embeddings, precision: see BertModel.
    head: what the outputs stand for; one of C labels when None.
    label_weights: [C], see the head's `per_example_loss`.

  Returns:
    loss (scalar), per_example_loss [B], logits [B, C], probabilities [B, C].
  """
  head = head or label_types.Classification([None] * num_labels)
  model = modeling.BertModel(
    bert_config,
    is_training,
    input_ids,
    input_mask,
    segment_ids,
    use_one_hot_embeddings,
    precision=precision,
  )
  pooled_output = model.get_pooled_output()
  if is_training:
    pooled_output = modeling.dropout(pooled_output, 0.1)
  shapes = head_shapes(bert_config, num_labels)
  weights = variables.get_variable(
    "output_weights",
    shapes["output_weights"],
    modeling.create_initializer(0.02),
  )
  bias = variables.get_variable(
    "output_bias", shapes["output_bias"], tf.compat.v1.zeros_initializer()
  )
  logits = tf.nn.bias_add(
    tf.matmul(pooled_output, weights, transpose_b=True), bias
  )
  per_example_loss = head.per_example_loss(logits, labels, label_weights)
  loss = tf.reduce_mean(per_example_loss)
  return loss, per_example_loss, logits, head.probabilities(logits)


def model_fn_builder(
  bert_config: modeling.BertConfig,
  num_labels: int,
  init_checkpoint: str | None,
  learning_rate: float,
  num_train_steps: int | None,
  num_warmup_steps: int | None,
  use_tpu: bool,
  use_one_hot_embeddings: bool,
  head: label_types.Head | None = None,
  metric_names: Sequence[str] = ("accuracy",),
  label_weights: Sequence[float] | None = None,
  precision: str = "float32",
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of a classifier, for `estimator.Estimator`.

  `init_checkpoint` is where weights start from, or None; `label_weights` count
  in training only; `metric_names` are keys of `metrics.METRICS`. The other
  arguments are those of `create_model` and `optimization.create_optimizer`.
  """
  del use_tpu  # What it decided, `use_one_hot_embeddings` and the strategy do.
  head = head or label_types.Classification([None] * num_labels)

  def model_fn(features, labels, mode, params):
    del labels, params
    checkpoints.initialize_from(
      init_checkpoint, head_shapes(bert_config, num_labels)
    )
    is_training = mode == estimator.ModeKeys.TRAIN
    loss, per_example_loss, logits, probabilities = create_model(
      bert_config,
      is_training,
      features["input_ids"],
      features["input_mask"],
      features["segment_ids"],
      features["label_ids"],
      num_labels,
      use_one_hot_embeddings,
      head,
      label_weights if is_training else None,
      precision,
    )
    if is_training:
      train_op, logged = optimization.minimize(
        loss, learning_rate, num_train_steps, num_warmup_steps
      )
      return estimator.EstimatorSpec(mode, loss, train_op, logged)
    metric_fn = functools.partial(evaluate_logits, head, metric_names)
    evaluated = {"label_ids": features["label_ids"], "logits": logits}
    return estimator.EstimatorSpec(
      mode,
      loss=estimator.mean_over_real_rows(per_example_loss, features),
      eval_metrics=(metric_fn, evaluated),
      predictions={"logits": logits, "probabilities": probabilities},
    )

  return model_fn


def evaluate_logits(
  head: label_types.Head,
  metric_names: Sequence[str],
  label_ids: np.ndarray,
  logits: np.ndarray,
) -> dict[str, float]:
  """The metrics of a set of examples, and `eval_loss`.

  Args:
    head: what the outputs stand for.
    metric_names: keys of `metrics.METRICS`.
    label_ids: [rows, ...], as the head encodes them.
    logits: float [rows, C].
  """
  losses = np.asarray(head.per_example_loss(tf.constant(logits), label_ids))
  predictions = head.predictions(np.asarray(head.probabilities(logits)))
  return {
    **metrics.compute(metric_names, head.truth(label_ids), predictions),
    "eval_loss": float(np.mean(losses, dtype=np.float64)),
  }


def release_files(
  head: label_types.Head, settings: Mapping[str, object]
) -> dict[str, str]:
  """What tells a Classifier how to read and answer: file name -> content.

  Args:
    head: what the outputs stand for.
    settings: dict with `max_seq_length`, `long_text` and `is_pair`.
  """
  settings = {"kind": head.kind, **settings}
  if not head.labels:
    settings |= {"mean": head.mean, "deviation": head.deviation}
  return {
    LABELS_NAME: json.dumps(list(head.labels), ensure_ascii=False) + "\n",
    SETTINGS_NAME: json.dumps(settings, indent=2) + "\n",
  }


def read_release(model_dir: str) -> tuple[label_types.Head | None, dict]:
  """What `release_files` wrote into a folder: the head, and the settings.

  Without `labels.json` the head is None; without `classifier.json`, which
  other programs do not write, the settings are those of the original.

  Raises:
    ValueError: one of the files is damaged.
  """
  settings = {
    "kind": "classification",
    "max_seq_length": 128,
    "long_text": "head",
    "is_pair": False,
    "mean": 0.0,
    "deviation": 1.0,
  }
  path = os.path.join(model_dir, SETTINGS_NAME)
  for name, value in (model_folder.read_json(path, dict) or {}).items():
    if name in settings and type(value) is not type(settings[name]):
      raise UserError(model_folder.damaged(path, f"{name}={value!r}"))
    settings[name] = value
  labels = model_folder.read_json(os.path.join(model_dir, LABELS_NAME), list)
  scale = (settings.pop("mean"), settings.pop("deviation"))
  if labels is None:
    return None, settings
  try:
    return label_types.make_head(settings["kind"], labels, *scale), settings
  except ValueError as error:
    raise UserError(model_folder.damaged(path, error)) from error


class Prediction(NamedTuple):
  """An answer.

  Attributes:
    label: the most probable label; of a multilabel model, those that are more
      probable than not, separated by `|`; of a regression, the number.
    probabilities: dict from each label to its probability; empty in a
      regression.
  """

  label: str | float
  probabilities: dict[str, float]


class Classifier:
  """A trained classifier, loaded once.

  Args:
    model_dir: the `output_dir` of a finished training.
    batch_size: most rows that are computed at a time.
    precision: "float32" or "bfloat16".

  Attributes:
    head: what its outputs stand for.
    is_pair: whether it was trained on pairs of texts.

  Raises:
    ValueError: the folder does not hold a trained classifier.
  """

  def __init__(
    self, model_dir: str, batch_size: int = 32, precision: str = "float32"
  ):
    self._batch_size = batch_size
    self._precision = precision
    self.head, settings = read_release(model_dir)
    config_file = os.path.join(model_dir, "bert_config.json")
    prefix = os.path.join(model_dir, checkpoints.RELEASE_NAME)
    needed = map(tf.io.gfile.exists, (config_file, prefix + ".index"))
    if self.head is None or not all(needed):
      raise UserError(
        f"{model_dir} does not hold a trained classifier; pass the "
        f"--output_dir of a training that has ended"
      )
    self.is_pair = settings["is_pair"]
    self._max_seq_length = settings["max_seq_length"]
    self._long_text = settings["long_text"]
    self._config = modeling.BertConfig.from_json_file(config_file)
    self._tokenizer = model_folder.load_tokenizer(
      model_dir, getattr(self._config, "do_lower_case", True)
    )
    weights = checkpoints.Checkpoint(prefix, weights_only=True)
    head_variables = head_shapes(self._config, self.head.num_outputs)
    checkpoints.compare(
      weights, {**modeling.variable_shapes(self._config), **head_variables}
    )
    self._store = variables.VariableStore(initial_values=weights)
    ids = tf.TensorSpec([None, None], tf.int32)
    self._logits = tf.function(
      self._compute_logits, input_signature=[ids] * 3, autograph=False
    )

  def __call__(
    self, texts: Sequence[str | tuple[str, str]]
  ) -> list[Prediction]:
    """The answer to each text, or pair of texts.

    Raises:
      ValueError: a text is no pair where the model was trained on pairs, or
        the reverse; or it is a str in place of a list of them.
    """
    return [self._prediction(row) for row in self.probabilities(texts).tolist()]

  def probabilities(self, texts: Sequence[str | tuple[str, str]]) -> np.ndarray:
    """The probability of each label, float32 [texts, C].

    Of a regression: the numbers, [texts, 1].
    """
    if isinstance(texts, str):
      raise UserError("pass a list of texts, not a text")
    rows, windows = [], []
    for text in texts:
      pair = (text,) if isinstance(text, str) else tuple(text)
      if len(pair) != 1 + self.is_pair:
        wanted = "pairs of texts" if self.is_pair else "single texts"
        raise UserError(f"{text!r}: the model was trained on {wanted}")
      features = examples.convert_example(
        examples.InputExample("", *pair),
        self.head,
        self._max_seq_length,
        self._tokenizer,
        self._long_text,
      )
      rows += features
      windows.append(len(features))
    if not rows:
      return np.zeros([0, self.head.num_outputs], np.float32)
    logits = examples.mean_by_example(self._run(rows), np.array(windows))
    return np.asarray(self.head.probabilities(logits))

  def _run(self, rows):
    """Logits [rows, C] of InputFeatures, computed in order of length."""
    lengths = np.array([sum(row.input_mask) for row in rows])
    order = np.argsort(lengths, kind="stable")
    logits = np.zeros([len(rows), self.head.num_outputs], np.float32)
    for start in range(0, len(rows), self._batch_size):
      chosen = order[start : start + self._batch_size]
      longest = lengths[chosen].max()
      batch = [
        np.array([getattr(rows[i], name)[:longest] for i in chosen], np.int32)
        for name in records.SEQUENCES
      ]
      logits[chosen] = self._logits(*batch).numpy()
    return logits

  def _compute_logits(self, input_ids, input_mask, segment_ids):
    with self._store:
      _, _, logits, _ = create_model(
        self._config,
        False,
        input_ids,
        input_mask,
        segment_ids,
        tf.fill(
          [tf.shape(input_ids)[0], *self.head.label_feature().shape],
          tf.zeros([], self.head.label_feature().dtype),
        ),
        self.head.num_outputs,
        False,
        self.head,
        precision=self._precision,
      )
    return logits

  def _prediction(self, row):
    answer = self.head.answer(self.head.predictions(np.array([row]))[0])
    if not self.head.labels:
      return Prediction(row[0], {})
    return Prediction(answer, dict(zip(self.head.labels, row, strict=True)))
