"""Classification of texts and pairs: a linear layer on BERT's pooled output.

Devlin et al. (2019), section 4.1. The outputs are one label, several labels, or
a number; see `bert/tasks/classification/label_types.py`. After few-shot
training, the layer reads vectors of length 1; see `few_shot.py`.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import layers, metrics
from bert.contract import distillation
from bert.contract.task import Field, RowSet, Settings, Task
from bert.data import files, text_hashes
from bert.errors import UserError, check_known, listing, plural, read_each
from bert.models import huggingface_config, task_file
from bert.tasks.classification import (
  calibration,
  few_shot,
  glue,
  label_types,
  page,
  portable,
  prediction_files,
  tabular,
)
from bert.tasks.classification.examples import (
  LONG_TEXT,
  DataProcessor,
  InputExample,
  content_hash,
  convert_example,
  feature_row,
  feature_spec,
  label_id,
  without_label,
)
from bert.tasks.classification.seen_rows import NO_ROWS, SeenRows
from bert.training import data_checks

if TYPE_CHECKING:
  from bert.engine.loaded_model import LoadedModel

# Labels with fewer rows would get too large a weight.
_FEW_ROWS = 10


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(Settings):
  """The settings that a classifier records."""

  kind: str = "classification"  # a key of `label_types.KINDS`
  labels: tuple[str, ...] = ()  # in the order of the outputs; none for numbers
  mean: float = 0.0  # with the deviation, the scale of numbers
  deviation: float = 1.0
  long_text: str = "head"  # one of `examples.LONG_TEXT`
  # One of `few_shot.POOLINGS`, of a model by --few_shot; "" for others.
  pooling: str = ""
  is_pair: bool | None = None  # whether examples have two texts; None: unknown
  # Divisors of the logits, from --calibrate: one, or one for each of several
  # labels.
  temperatures: tuple[float, ...] = ()
  # The rows that the model and its initial models have seen; see `seen_rows`.
  held_out: str = ""
  trained_on: str = ""
  fixed = (
    *("kind", "labels", "mean", "deviation", "is_pair", "pooling"),
    *("held_out", "trained_on"),
  )

  def check(self) -> None:
    super().check()
    check_known(f"kind={self.kind!r}", self.kind, label_types.KINDS)
    check_known(f"long_text={self.long_text!r}", self.long_text, LONG_TEXT)
    poolings = ("", *few_shot.POOLINGS)
    check_known(f"pooling={self.pooling!r}", self.pooling, poolings)
    for name in ("temperatures", "deviation"):
      for value in np.atleast_1d(getattr(self, name)):
        if not 0 < value < math.inf:
          raise ValueError(f"{name} has {value}, and must be above 0")
    count = len(self.labels) if self.kind == "multilabel" else 1
    if len(self.temperatures) not in (0, count):
      raise ValueError(
        f"temperatures has {plural(len(self.temperatures), 'number')}, not "
        f"{count}"
      )
    for name in ("held_out", "trained_on"):
      try:
        text_hashes.check(getattr(self, name))
      except ValueError as error:
        raise ValueError(f"{name} has no hashes: {error}") from error

  def seen(self) -> SeenRows | None:
    """The rows that the model has seen; None if unknown."""
    decode = text_hashes.decode
    rows = SeenRows(decode(self.held_out), decode(self.trained_on))
    return rows if rows.trained_on else None

  def with_seen(self, seen: SeenRows | None):
    """Settings with the rows that a model has seen."""
    encoded = map(text_hashes.encode, seen or NO_ROWS)
    return dataclasses.replace(
      self, **dict(zip(SeenRows._fields, encoded, strict=True))
    )

  def label_type(self) -> label_types.LabelType:
    if self.kind == label_types.Regression.kind:
      return label_types.Regression(self.mean, self.deviation)
    return label_types.KINDS[self.kind](self.labels)

  def with_label_type(self, label_type: label_types.LabelType):
    return dataclasses.replace(
      self,
      kind=label_type.kind,
      labels=tuple(label_type.labels),
      mean=getattr(label_type, "mean", 0.0),
      deviation=getattr(label_type, "deviation", 1.0),
    )


class Prediction(NamedTuple):
  """The answer to an example."""

  logits: np.ndarray  # float [C], the mean over its rows
  label: int | float | np.ndarray  # encoded; any value if unknown


class ClassificationTask(Task):
  """A classification or regression task.

  Args:
    processor, data_dir: the DataProcessor of its files, and their folder.
    metric_names: keys of `metrics.METRICS`; the first selects the best model.
    balances_labels: whether to give all labels equal weight in training.
    submission_dir: folder for GLUE's submission files.
  """

  kind = "classification"
  Settings = ClassifierSettings
  style = page.STYLE
  section = staticmethod(page.section)

  def __init__(
    self,
    settings: ClassifierSettings,
    tokenizer: tokenization.FullTokenizer | None = None,
    name: str = "",
    processor: DataProcessor | None = None,
    data_dir: str | None = None,
    metric_names: Sequence[str] = ("accuracy",),
    balances_labels: bool = False,
    submission_dir: str | None = None,
  ):
    super().__init__(settings, tokenizer)
    self.name = name
    self.metrics = tuple(metric_names)
    self.label_type = settings.label_type()
    self._processor = processor
    self._data_dir = data_dir
    self._balances_labels = balances_labels
    self._label_weights = None
    self._can_balance = False
    self._advice = []
    self._submission_dir = submission_dir
    self._hashes = {}
    self._row_labels = []
    self._seen = self._seen_before = settings.seen() or NO_ROWS

  # Inference.

  @classmethod
  def settings_of(cls, head: huggingface_config.Head) -> dict:
    default = "regression" if len(head.labels) == 1 else "classification"
    by_type = {theirs: ours for ours, theirs in portable.PROBLEM_TYPES.items()}
    kind = by_type.get(head.problem_type, default)
    labels = () if kind == "regression" else tuple(head.labels)
    return {"kind": kind, "labels": labels}

  @property
  def needs_pooler(self) -> bool:
    return self.settings.pooling in ("", "pooled")

  @property
  def spans_batch(self) -> bool:
    return bool(self.settings.pooling)

  @property
  def fits_head(self) -> bool:
    return bool(self.settings.pooling)

  @property
  def inputs(self) -> tuple[Field, ...]:
    if self.settings.is_pair is None:
      return (Field("text"), Field("text_b", default=""))
    names = ("text_a", "text_b") if self.settings.is_pair else ("text",)
    return tuple(map(Field, names))

  @property
  def output_types(self) -> tuple[tuple[str, str], ...]:
    if not self.labels:
      return (("value", "DT_FLOAT"),)
    texts = ("label", "DT_STRING"), ("labels", "DT_STRING")
    return (*texts, ("probabilities", "DT_FLOAT"))

  def example(self, text_a: str, text_b: str = "") -> InputExample:
    return InputExample("", text_a, text_b or None)

  def rows(self, example: InputExample, is_training: bool) -> list[Mapping]:
    return list(map(feature_row, self._convert(example)))

  def _convert(self, example):
    return convert_example(
      example,
      self.label_type,
      self.settings.max_seq_length,
      self.tokenizer,
      self.settings.long_text,
    )

  def feature_spec(self, is_training: bool) -> dict:
    return feature_spec(self.settings.max_seq_length, self.label_type)

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    """The output layer's weights [C, H] and bias [C]."""
    return layers.output_shapes(config.hidden_size, self.label_type.num_outputs)

  def output_labels(self) -> dict[str, tuple[str, ...]]:
    # A number is an output without a name.
    names = tuple(self.labels) or ("",)
    return dict.fromkeys(layers.output_shapes(0, 0), names)

  def head(self, ops, bert, features: Mapping) -> dict:
    """Logits [B, C] of the pooled output, and their probabilities.

    In few-shot training and after it, also the vectors [B, H] that the output
    layer reads.
    """
    size, pooling = self.label_type.num_outputs, self.settings.pooling
    if pooling in ("", "pooled"):
      vectors = bert.get_pooled_output()
    else:
      tokens, mask = bert.get_sequence_output(), features["input_mask"]
      vectors = ops.pool(tokens, mask, pooling)
    if pooling:
      vectors = ops.unit_length(vectors)
    logits = ops.output_layer(vectors, size, dropout=not pooling)
    if self.settings.temperatures:
      factors = [1 / value for value in self.settings.temperatures]
      logits = ops.linear(logits, factors, 0.0)
    if self.settings.kind == "classification":
      probabilities = ops.softmax(logits)
    elif self.settings.kind == "multilabel":
      probabilities = ops.sigmoid(logits)
    else:
      scale = self.settings.deviation, self.settings.mean
      probabilities = ops.linear(logits, *scale)
    outputs = {"vectors": vectors} if pooling else {}
    return outputs | {"logits": logits, "probabilities": probabilities}

  def output_axes(self) -> dict[str, Sequence[str | int | None]]:
    axes = (self.label_type.num_outputs,)
    vectors = {"vectors": (None,)} if self.settings.pooling else {}
    return vectors | {"logits": axes, "probabilities": axes}

  def soft_targets(self) -> dict[str, Sequence[int]]:
    """The logits; for a regression, the numbers, which may have any scale."""
    name = "logits" if self.labels else "probabilities"
    return {name: (self.label_type.num_outputs,)}

  def soft_loss(
    self, outputs: Mapping, features: Mapping, temperature: float
  ) -> tf.Tensor:
    """The divergence of each row; for a regression, the squared error."""
    if "logits" not in outputs:
      logits = features[distillation.PREFIX + "logits"]
      labels = self.label_type.probabilities(logits / temperature)
      return few_shot.pair_losses(outputs["vectors"], labels)
    if self.settings.kind == "classification":
      return super().soft_loss(outputs, features, temperature)
    if self.settings.kind == "multilabel":
      targets = features[distillation.PREFIX + "logits"]
      return distillation.binary_divergence(
        outputs["logits"], targets, temperature
      )
    targets = features[distillation.PREFIX + "probabilities"]
    errors = (outputs["probabilities"] - targets) / self.settings.deviation
    return tf.square(errors[:, 0])

  def answer(
    self, example: InputExample, predictions: Sequence[Mapping]
  ) -> Prediction:
    logits = np.mean([row["logits"] for row in predictions], axis=0)
    return Prediction(logits, predictions[0]["label_ids"])

  def public(self, answer: Prediction) -> dict:
    """`label`, `labels` and their `probabilities`; or `value`, a number."""
    row = self.probabilities(answer)
    if not self.labels:
      return {"value": float(row[0])}  # It is rounded.
    return {
      "label": label_types.predicted_text(self.label_type, row),
      "labels": list(self.labels),
      "probabilities": row.tolist(),
    }

  def probabilities(self, answer: Prediction) -> np.ndarray:
    """The probability of each label [C], or the number [1]."""
    return np.asarray(self.label_type.probabilities(answer.logits[None]))[0]

  def describe(self, answer: Prediction) -> str:
    row = self.probabilities(answer)
    text = label_types.predicted_text(self.label_type, row)
    if not self.labels:
      return text
    ranked = sorted(zip(row.tolist(), self.labels, strict=True), reverse=True)
    shares = (f"{label} {p:.1%}" for p, label in ranked)
    return f"{text or 'no label'}   ({', '.join(shares)})"

  # Training.

  def examples(self, split: str) -> dict[str, Sequence[InputExample]]:
    sets = self._processor.get_example_sets(self._data_dir, split)
    if split == "test":
      sets = {suffix: list(map(without_label, sets[suffix])) for suffix in sets}
    for suffix, examples in sets.items():
      if split != "train":
        self._check_texts(examples, split)
      self._hashes[split + suffix] = content_hash(
        [e.text_a, e.text_b, e.label] for e in examples
      )
      if split != "test":
        label_ids = read_each(
          lambda example: label_id(example, self.label_type), examples
        )
      if split == "train":
        is_pair = any(e.text_b is not None for e in examples[:1])
        self.settings = dataclasses.replace(self.settings, is_pair=is_pair)
        self._set_weights(label_ids)
        held_out = self._processor.held_out_examples()
        self._add_seen(held_out=held_out, trained_on=examples)
      elif split == "dev":
        self._add_seen(held_out=examples)
    return sets

  def _check_texts(self, examples, split):
    """Raises UserError if the model was trained on another number of texts."""
    on_pairs = self.settings.is_pair
    is_table = isinstance(self._processor, tabular.TableProcessor)
    # The user's own processor may mix single texts and pairs.
    if on_pairs is None or not (is_table or hasattr(self._processor, "task")):
      return
    if {e.text_b is not None for e in examples} == {not on_pairs}:
      names = ("single texts", "pairs of texts")
      flag = f"--task_name={self.name}"
      remedy = "pass the task that it was trained on"
      if is_table:
        flag, remedy = "--text_b_column", "pass it" if on_pairs else "omit it"
      raise UserError(
        f"{flag}: the {split} set has {names[not on_pairs]}, but the model was "
        f"trained on {names[on_pairs]}; {remedy}"
      )

  def _add_seen(self, **rows):
    self._seen = self._seen.adding(**rows)
    self.settings = self.settings.with_seen(self._seen)

  def _set_weights(self, label_ids):
    if self._balances_labels:
      self._label_weights = self.label_type.balanced_weights(label_ids)

  def features(
    self, examples: Iterable[InputExample], is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields the rows of each example; logs how many were truncated."""
    count = truncated = 0
    label_ids = []  # Per row, because the loss counts each window of a text.
    for example in examples:
      rows = self._convert(example)
      count += 1
      truncated += rows[0].was_cut
      label_ids += [row.label_id for row in rows]
      yield list(map(feature_row, rows))
    if is_training:
      self._set_weights(label_ids)
      self._row_labels = label_ids
    if truncated:
      logging.info(
        "Truncated %d of %s (%.1f %%) to --max_seq_length=%d%s",
        truncated,
        plural(count, "example"),
        100 * truncated / count,
        self.settings.max_seq_length,
        f" for {self.name}" if self.name else "",
      )

  def texts(self, rows: RowSet) -> Iterator[tuple[str, Sequence[str]]]:
    for example in rows.examples or ():
      yield str(example), example.texts

  def log_data(self, row_sets: Mapping[str, Sequence[RowSet]]) -> None:
    """Warns of rare or doubtful labels, and of rows of earlier trainings."""
    for train in row_sets.get("train", ()):
      fewest = tabular.log_rare_labels(train.examples, self.label_type)
      self._can_balance = not self._balances_labels and fewest >= _FEW_ROWS
      if self.labels and not self.settings.pooling:
        self._advice = few_shot.advice(len(train.examples), len(self.labels))
      tabular.log_doubtful_labels(train.examples, self.label_type)
      if self._label_weights:
        shown = zip(self.labels, self._label_weights, strict=True)
        logging.info(
          "Label weights: %s", ", ".join(f"{n} {w:.3g}" for n, w in shown)
        )
    if self._processor:
      self._processor.log_data()
    for dev in row_sets.get("dev", ()):
      trained_on = self._seen_before.trained_on
      if seen := data_checks.find_seen(self, dev, trained_on):
        logging.warning(
          "%s: the model that this run starts from was trained on %d of the "
          "%s, starting with %s; the metrics are too optimistic",
          self.name,
          len(seen),
          plural(len(dev.examples), "development example"),
          seen[0],
        )

  def drop_calibration(self) -> None:
    """Drops the temperatures, but not those in task.json."""
    self.settings = dataclasses.replace(self.settings, temperatures=())

  def before_updates(self, folder: str) -> None:
    """Drops the temperatures; they were fitted to the old weights."""
    if self.settings.temperatures:
      self.drop_calibration()
      path = task_file.write(folder, self)
      logging.info(
        "%s: dropped the calibration, because training changes the weights",
        path,
      )

  def data_hashes(self) -> dict[str, str]:
    return self._hashes

  def loss(self, outputs: Mapping, features: Mapping) -> tf.Tensor:
    """The loss of each row, multiplied by the weight of its label.

    In few-shot training, which has no logits yet, the loss of its pairs.
    """
    if "logits" not in outputs:
      labels = self.label_type.shares(features["label_ids"])
      return few_shot.pair_losses(outputs["vectors"], labels)
    return self.label_type.per_example_loss(
      outputs["logits"], features["label_ids"], self._label_weights
    )

  def row_groups(self, num_rows: int) -> list[np.ndarray]:
    if not self.settings.pooling:
      return []
    return few_shot.row_groups(self._row_labels, num_rows)

  def fitted(self, predictions: Iterable[Mapping]) -> dict[str, np.ndarray]:
    """The output layer of few-shot training, fitted to the rows' vectors."""
    names = ["vectors", "label_ids"]
    if self.distillation:
      names += [distillation.PREFIX + "logits", distillation.IS_LABELED]
    rows = ([row[name] for name in names] for row in predictions)
    vectors, label_ids, *soft = map(np.stack, zip(*rows, strict=True))
    targets = self.label_type.shares(label_ids)
    if self.distillation:
      probabilities = self.label_type.probabilities(soft[0])
      targets = self.distillation.mix(targets, probabilities, soft[1])
    fitted = few_shot.fit(
      vectors,
      targets.numpy(),
      np.array(self._label_weights or [1.0] * len(self.labels)),
      self.settings.kind == "multilabel",
    )
    return dict(zip(layers.output_shapes(0, 0), fitted, strict=True))

  # Evaluation and prediction.

  def calibrate(self, answers: Iterable[Prediction]) -> None:
    """Fits the temperatures to answers without any."""
    logits, label_ids = map(np.stack, zip(*answers, strict=True))
    temperatures = calibration.fit_temperatures(logits, label_ids)
    self.settings = dataclasses.replace(
      self.settings, temperatures=temperatures
    )
    shown = ", ".join(f"{value:.3g}" for value in temperatures)
    logging.info("Calibrated with the temperature %s", shown)
    stay = [i for i, value in enumerate(temperatures) if value == 1]
    if stay:
      several = len(temperatures) > 1
      logging.warning(
        "--calibrate: without errors, the development set does not show how "
        "certain the model may be, so probabilities%s stay; use more rows",
        f" of {listing([self.labels[i] for i in stay])}" if several else "",
      )

  def score(
    self, rows: RowSet, answers: Iterable[Prediction]
  ) -> page.ClassifiedSet:
    label_type = self.label_type
    logits, label_ids = map(np.stack, zip(*answers, strict=True))
    losses = label_type.per_example_loss(tf.constant(logits), label_ids).numpy()
    probabilities = np.asarray(label_type.probabilities(logits))
    truth = label_type.truth(label_ids)
    predictions = label_type.predictions(probabilities)
    loss = float(np.mean(losses, dtype=np.float64))
    results = metrics.compute(self.metrics, truth, predictions)
    results |= {"eval_loss": loss, "loss": loss}
    return page.ClassifiedSet(
      rows.name,
      label_type,
      results,
      truth,
      probabilities,
      losses,
      rows.examples,
      self._uncalibrated(logits),
      rows.suffix,
      can_balance=self._can_balance,
      advice=self._advice,
    )

  def _uncalibrated(self, logits):
    """The probabilities without temperatures; None if there are none."""
    if not self.settings.temperatures:
      return None
    raw = logits * np.float32(self.settings.temperatures)
    return np.asarray(self.label_type.probabilities(raw))

  def write(
    self, folder: str, rows: RowSet, answers: Iterable[Prediction]
  ) -> None:
    label_type = self.label_type
    logits = [answer.logits for answer in answers]
    probabilities = np.asarray(
      label_type.probabilities(np.reshape(logits, [-1, label_type.num_outputs]))
    )
    contents = {
      "test_results": "".join(
        "\t".join(map(str, row)) + "\n" for row in probabilities
      ),
      "test_predictions": prediction_files.predictions_table(
        label_type, rows.examples, probabilities
      ),
    }
    paths = [f"{folder}/{name}{rows.suffix}.tsv" for name in contents]
    contents = dict(zip(paths, contents.values(), strict=True))
    predictions = label_type.predictions(probabilities).tolist()
    contents |= self._submission(rows.suffix, predictions)
    files.write_files(contents)
    logging.info("%s: %s", paths[-1], plural(len(predictions), "row"))

  def _submission(self, suffix, predictions):
    """The file for GLUE's leaderboard, if any: dict from path to text."""
    task = getattr(self._processor, "task", None)
    # The user's own processor may have other labels than its base class.
    has_its_labels = task and list(self.labels) == list(task.labels)
    if not (has_its_labels and task.submission):
      return {}
    files.makedirs(self._submission_dir)
    path = os.path.join(self._submission_dir, task.submission[suffix])
    return {path: glue.submission_lines(task, predictions)}

  def answers_of(
    self, model: LoadedModel, examples: Sequence[InputExample]
  ) -> list[Prediction | None]:
    """The answers, with logits by the labels of this model."""
    theirs = model.task.label_type
    if theirs.kind != self.label_type.kind:
      return [None] * len(examples)
    seen = (model.task.settings.seen() or NO_ROWS).trained_on

    def translated(example, answer):
      try:
        label_id(example, theirs)
      except UserError:
        return None
      if data_checks.hash_texts(example.texts) in seen:
        return None
      logits = self.label_type.translated(answer.logits, theirs)
      return Prediction(logits, label_id(example, self.label_type))

    answers = model.answer_examples(list(map(without_label, examples)))
    return list(map(translated, examples, answers))

  def finish(
    self, folder: str, evaluations: Sequence[page.ClassifiedSet]
  ) -> None:
    """Writes dev_predictions.tsv, with the given labels."""
    for evaluation in evaluations:
      path = os.path.join(folder, f"dev_predictions{evaluation.suffix}.tsv")
      table = prediction_files.predictions_table(
        self.label_type,
        evaluation.examples,
        evaluation.probabilities,
        shows_given=True,
      )
      files.write_file(path, table)
