"""Question answering: a start and an end vector on BERT's sequence output.

Devlin et al. (2019), sections 4.2 and 4.3. `SquadTask` trains on SQuAD's files,
answers their questions, and scores the answers.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

import modeling
import tokenization
import variables
from errors import UserError, plural
from pipeline import files
from reports import squad as squad_report
from tasks import squad, squad_decoding, squad_scoring
from tasks.squad import ReadingSettings
from training import estimator, model_folder
from training.task import (
  Evaluation,
  Optimization,
  Outputs,
  RowSet,
  Task,
  build_model_fn,
)

# Files of a model folder: how the model reads, and the best threshold found.
SETTINGS_NAME = "squad.json"
THRESHOLD_NAME = "null_threshold.json"
_THRESHOLD_KEY = "null_score_diff_threshold"

# The value of --null_score_diff_threshold that selects the best.
AUTO = "auto"


def variable_shapes(config: modeling.BertConfig) -> dict[str, list[int]]:
  """Name and shape of the variables that SQuAD adds to BERT."""
  return {
    "cls/squad/output_weights": [2, config.hidden_size],
    "cls/squad/output_bias": [2],
  }


def compute_logits(bert: modeling.BertModel) -> tuple[tf.Tensor, tf.Tensor]:
  """Start and end logits, each float [B, S]."""
  sequence_output = bert.get_sequence_output()
  batch, seq, hidden = modeling.get_shape_list(sequence_output, expected_rank=3)
  weights = variables.get_variable(
    "cls/squad/output_weights", [2, hidden], modeling.create_initializer(0.02)
  )
  bias = variables.get_variable(
    "cls/squad/output_bias", [2], tf.compat.v1.zeros_initializer()
  )
  rows = tf.reshape(sequence_output, [batch * seq, hidden])
  logits = tf.nn.bias_add(tf.matmul(rows, weights, transpose_b=True), bias)
  logits = tf.transpose(tf.reshape(logits, [batch, seq, 2]), [2, 0, 1])
  start_logits, end_logits = tf.unstack(logits, axis=0)  # [B, S] each.
  return start_logits, end_logits


def create_model(
  bert_config: modeling.BertConfig,
  is_training: bool,
  input_ids: tf.Tensor,
  input_mask: tf.Tensor,
  segment_ids: tf.Tensor,
  use_one_hot_embeddings: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
  """BERT with a start and an end vector (section 4.2).

  Args:
    bert_config: a BertConfig.
    is_training: whether dropout is on.
    input_ids, input_mask, segment_ids: integer [B, S].
    use_one_hot_embeddings: see BertModel.

  Returns:
    start_logits, end_logits, each float [B, S].
  """
  return compute_logits(
    modeling.BertModel(
      bert_config,
      is_training,
      input_ids,
      input_mask,
      segment_ids,
      use_one_hot_embeddings,
    )
  )


def span_loss(
  start_logits: tf.Tensor,
  end_logits: tf.Tensor,
  start_positions: tf.Tensor,
  end_positions: tf.Tensor,
  input_mask: tf.Tensor | None = None,
) -> tf.Tensor:
  """The mean of the cross-entropies of start and end, scalar.

  Args:
    start_logits, end_logits: float [B, S].
    start_positions, end_positions: integer [B].
    input_mask: integer [B, S], to exclude padding from the softmax, so that the
      loss does not depend on the amount of padding. None includes it, as the
      original does.
  """
  losses = []
  for logits, positions in (
    (start_logits, start_positions),
    (end_logits, end_positions),
  ):
    if input_mask is not None:
      logits = mask_padding(logits, input_mask)
    losses.append(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(positions, tf.int32), logits=logits
      )
    )
  return tf.reduce_mean(tf.stack(losses))


def mask_padding(logits: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
  """Logits [B, S] that are very low at padding positions."""
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
) -> Callable[..., estimator.EstimatorSpec]:
  """The `model_fn` of SQuAD, for `estimator.Estimator`, with the original loss.

  Args:
    bert_config: a BertConfig.
    init_checkpoint: initial weights, or None.
    learning_rate, num_train_steps, num_warmup_steps: see `create_optimizer`.
    use_tpu: has no effect; the strategy knows the device.
    use_one_hot_embeddings, precision: see BertModel.
  """
  del use_tpu
  return build_model_fn(
    SquadTask({}, None, ReadingSettings()),
    bert_config,
    init_checkpoint,
    Optimization(learning_rate, num_train_steps, num_warmup_steps),
    use_one_hot_embeddings,
    precision,
  )


class SquadTask(Task):
  """SQuAD 1.1 or 2.0.

  Args:
    paths: dict from split to its file of questions. The "dev" split needs
      answers, and "test" may have them.
    tokenizer: a FullTokenizer.
    reading: its ReadingSettings.
    decoding: DecodingSettings; its threshold has no effect.
    threshold: null odds above which there is no answer. None selects the one
      with the best F1, or, for questions without answers, the one that was
      selected before.
    threshold_folders: model folders to search for the latter.
    padding_competes: whether the loss includes padding, as in the original.
      All training batches must then be padded to the same length.
    epoch_counts_rows: whether an epoch is counted in windows; the original
      counts questions.
  """

  pads_training = True
  has_eval_loss = False  # The windows to evaluate on have no positions.

  def __init__(
    self,
    paths: Mapping[str, str],
    tokenizer: tokenization.FullTokenizer | None,
    reading: ReadingSettings,
    decoding: squad_decoding.DecodingSettings | None = None,
    threshold: float | None = 0.0,
    threshold_folders: Iterable[str | None] = (),
    padding_competes: bool = True,
    epoch_counts_rows: bool = False,
  ):
    self._is_v2 = reading.version_2_with_negative
    self.name = f"SQuAD {2.0 if self._is_v2 else 1.1}"
    self.metrics = ("f1", "exact_match")
    if self._is_v2:
      self.metrics = ("f1", "exact", "best_f1", "best_exact")
    self.epoch_counts_rows = epoch_counts_rows
    self._paths = paths
    self._tokenizer = tokenizer
    self._reading = reading
    self._decoding = decoding
    self._threshold = threshold
    self._threshold_folders = threshold_folders
    self._padding_competes = padding_competes
    # The files for "dev" and "test" are usually the same.
    self._read = functools.cache(squad.read_squad_examples)
    self._hash = functools.cache(_sha256)

  # Text to rows.

  def examples(self, split: str) -> dict[str, Sequence[squad.SquadExample]]:
    """The questions of a split's file."""
    path = self._paths[split]
    examples = self._read(path, split == "train", self._is_v2)
    is_scored = squad_scoring.has_answers(examples, self._is_v2)
    if split == "dev" and not is_scored:
      first = next(e for e in examples if not e.answers)
      raise UserError(
        f"{path}: question {first.qas_id} has no answer to evaluate with; pass "
        f"a --predict_file with answers, or --do_predict alone"
      )
    if split == "test" and self._threshold is None and not is_scored:
      self._threshold = read_threshold(self._threshold_folders)
    return {"": examples}

  def features(
    self, examples: Iterable[squad.SquadExample], is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields a row for each window of a question."""
    for windows in self._reading.windows(
      examples, self._tokenizer, is_training
    ):
      yield list(map(squad.feature_row, windows))

  def feature_spec(self, is_training: bool) -> dict:
    """The three sequences [S], the window's id, and the answer's position."""
    return squad.feature_spec(self._reading.max_seq_length, is_training)

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the file to train on and the file to answer."""
    return {
      "train" if split == "train" else "dev": self._hash(path)
      for split, path in self._paths.items()
    }

  # Rows to numbers.

  def variable_shapes(
    self, config: modeling.BertConfig
  ) -> dict[str, list[int]]:
    """The output layer's weights [2, H] and bias [2]."""
    return variable_shapes(config)

  def outputs(
    self, bert: modeling.BertModel, features: Mapping, mode: str
  ) -> Outputs:
    """The loss in training, otherwise a RawResult's fields."""
    logits = compute_logits(bert)
    mask = features["input_mask"]
    if mode == estimator.ModeKeys.TRAIN:
      positions = features["start_positions"], features["end_positions"]
      padding_mask = None if self._padding_competes else mask
      return Outputs(loss=span_loss(*logits, *positions, padding_mask))
    # Otherwise padding could be among the n best starts and ends, and its
    # amount depends on the other rows of the batch.
    logits = (mask_padding(part, mask) for part in logits)
    result = squad_decoding.RawResult(features["unique_ids"], *logits)
    return Outputs(predictions=result._asdict())

  # Numbers to answers.

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> "ScoredAnswers":
    """Exact match and F1."""
    return self._score(rows, self._answer(rows, predictions))

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> "ScoredAnswers | None":
    """Writes predictions.json, nbest_predictions.json and null_odds.json."""
    path, nbest_path, odds_path = (
      os.path.join(folder, f"{name}.json")
      for name in ("predictions", "nbest_predictions", "null_odds")
    )
    with squad_decoding.answer_writer(
      None, nbest_path, odds_path if self._is_v2 else None
    ) as write:
      answered = self._answer(rows, predictions, write)
    scores = None
    if squad_scoring.has_answers(rows.examples, self._is_v2):
      scores = self._score(rows, answered, answered)
    else:
      _remove_scores(folder, self._paths[rows.split], rows.examples)
    threshold = scores.threshold if scores else self._threshold
    with squad_decoding.answer_writer(path, None) as write:
      for a in answered:
        text = a.prediction(threshold)
        write(a.example.qas_id, a.answer._replace(text=text))
    logging.info("%s: %s", path, plural(len(answered), "answer"))
    return scores

  def _answer(self, rows, predictions, write=None):
    """A list of each question's Answered; `write` gets ids and answers."""
    answered = []
    # The windows are made again, because records do not contain tokens.
    windows = self._reading.windows(rows.examples, self._tokenizer, False)
    for example, features, results in zip(
      rows.examples, windows, predictions, strict=True
    ):
      answer = squad_decoding.answer_question(
        example,
        features,
        [squad_decoding.RawResult(**result) for result in results],
        self._decoding,
      )
      if write:
        write(example.qas_id, answer)
      answered.append(squad_scoring.Answered.of(example, answer, self._is_v2))
    return answered

  def _score(self, rows, answered, shown=None):
    """The ScoredAnswers of all questions; `shown` go on the page."""
    details = {"predict_file": self._paths[rows.split]}
    threshold = self._threshold
    if self._is_v2:
      best = squad_scoring.find_best_threshold(answered)
      threshold = best if threshold is None else threshold
      details |= {_THRESHOLD_KEY: threshold, f"best_{_THRESHOLD_KEY}": best}
    texts = {a.example.qas_id: a.prediction(threshold) for a in answered}
    results = squad_scoring.evaluate(answered, texts)
    return ScoredAnswers(results, details, threshold, shown)

  def report(
    self, folder: str, evaluations: Sequence["ScoredAnswers"], record: Mapping
  ) -> None:
    """Writes the best threshold, and answer.html on written predictions."""
    for scores in evaluations:
      if self._is_v2:
        best = scores.details[f"best_{_THRESHOLD_KEY}"]
        logging.info(
          "Predicted no answer above null_score_diff_threshold=%g. F1 is best "
          "with %g, stored in %s. (best_f1_thresh and best_exact_thresh are "
          "the official script's, for the predictions as they are.)",
          scores.threshold,
          best,
          write_threshold(folder, best),
        )
      if scores.answered is None:
        continue
      shown = {**scores.results, **scores.details}
      for name in ("global_step", "predict_file"):
        del shown[name]
      squad_report.write_page(
        os.path.join(folder, "answer.html"),
        f"{self.name}: {os.path.basename(os.path.abspath(folder))}",
        (
          squad_scoring.page_question(a, a.prediction(scores.threshold))
          for a in scores.answered
        ),
        shown,
      )

  def assets(self) -> dict[str, str]:
    """squad.json."""
    content = json.dumps(dataclasses.asdict(self._reading), indent=2)
    return {SETTINGS_NAME: content + "\n"}


@dataclasses.dataclass
class ScoredAnswers(Evaluation):
  """An Evaluation of SQuAD.

  Attributes:
    threshold: the null_score_diff_threshold of the predictions.
    answered: the questions of written predictions, for the page; else None.
  """

  threshold: float = 0.0
  answered: Sequence[squad_scoring.Answered] | None = None


def _sha256(path):
  return hashlib.sha256(files.read_bytes(path)).hexdigest()


def _remove_scores(folder, path, examples):
  """Deletes the scores of earlier predictions, and says why there are none."""
  unknown = [e for e in examples if not e.answers]
  logging.info(
    "%s: not scored, because %d of %s have no answer; the first is %s",
    path,
    len(unknown),
    plural(len(examples), "question"),
    unknown[0].qas_id,
  )
  for name in ("eval_results.txt", "eval_results.json", "answer.html"):
    earlier = os.path.join(folder, name)
    if files.exists(earlier):
      files.remove(earlier)
      logging.info("Deleted %s, the scores of earlier predictions", earlier)


# Files of a model folder.


def read_settings(model_dir: str | None, **given) -> ReadingSettings:
  """The ReadingSettings of a model folder, or by default the original's.

  Args:
    model_dir: the folder, or None.
    **given: fields to use instead.

  Raises:
    UserError: the folder's file is damaged.
  """
  defaults = dataclasses.asdict(ReadingSettings())
  path = os.path.join(model_dir or "", SETTINGS_NAME)
  found = model_folder.read_json(path, dict) if model_dir else None
  if found is None:
    return ReadingSettings(**given)
  for name, value in defaults.items():
    if type(found.get(name)) is not type(value):
      reason = f"{name}={found.get(name)!r}"
      raise UserError(model_folder.damaged(path, reason))
  trained = {name: found[name] for name in defaults}
  return ReadingSettings(**{**trained, **given})


def parse_threshold(text: str, version_2_with_negative: bool) -> float | None:
  """The value of --null_score_diff_threshold; None for "auto".

  Raises:
    UserError: it is not a number, or not 0 in SQuAD 1.1.
  """
  flag = f"--{_THRESHOLD_KEY}"
  if text != AUTO:
    try:
      threshold = float(text)
    except ValueError:
      threshold = math.nan
    if not math.isfinite(threshold):
      raise UserError(
        f"{flag}={text} is not a finite number; pass one, or {AUTO}"
      )
  if version_2_with_negative:
    return None if text == AUTO else threshold
  if text == AUTO or threshold:
    raise UserError(f"{flag}={text} needs --version_2_with_negative; omit it")
  return 0.0


def write_threshold(model_dir: str, threshold: float) -> str:
  """Stores the best threshold of a folder's model; returns the path."""
  path = os.path.join(model_dir, THRESHOLD_NAME)
  files.write_file(
    path, json.dumps({_THRESHOLD_KEY: threshold}, indent=2) + "\n"
  )
  return path


def read_threshold(folders: Iterable[str | None]) -> float:
  """The stored threshold, from the first of some folders that has one.

  Raises:
    UserError: there is none, or the file is damaged.
  """
  folders = list(dict.fromkeys(filter(None, folders)))
  for folder in folders:
    path = os.path.join(folder, THRESHOLD_NAME)
    found = model_folder.read_json(path, dict)
    if found is None:
      continue
    threshold = found.get(_THRESHOLD_KEY)
    if type(threshold) not in (int, float):
      raise UserError(
        f"{path} is damaged; predict a file with answers to write it again"
      )
    logging.info("null_score_diff_threshold=%g, from %s", threshold, path)
    return threshold
  raise UserError(
    f"--null_score_diff_threshold=auto: no {THRESHOLD_NAME} in "
    f"{' or '.join(folders)}; predict a file with answers first, which writes "
    f"it, or pass a number"
  )
