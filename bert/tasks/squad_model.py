"""Question answering: a start and an end vector on BERT's sequence output.

Devlin et al. (2019), sections 4.2 and 4.3. `SquadTask` trains on SQuAD's files,
answers their questions, and scores the answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert import layers
import modeling
import tokenization
from bert import variables
from bert.errors import UserError, plural
from bert.data import files
from bert.reports import squad as squad_report
from bert.tasks import squad, squad_scoring
from bert.tasks.squad import ReadingSettings
from bert.tasks.squad_decoding import (
  DecodingSettings,
  RawResult,
  answer_question,
  write_answers,
)
from bert.training import estimator, model_folder
from bert.training.task import (
  Evaluation,
  Outputs,
  RowSet,
  Task,
  model_fn_builder_of,
)

# Files of a model folder: how the model reads, and the best threshold found.
SETTINGS_NAME = "squad.json"
THRESHOLD_NAME = "null_threshold.json"
_THRESHOLD_KEY = "null_score_diff_threshold"
_WEIGHTS_KEY = "init_checkpoint"

# In eval_results.json, the file with the answers that were scored.
_PREDICTIONS_KEY = "predictions"

# Its name in Hugging Face's format.
ARCHITECTURE = "BertForQuestionAnswering"

# The value of --null_score_diff_threshold that selects the best.
AUTO = "auto"


def variable_shapes(config: modeling.BertConfig) -> dict[str, list[int]]:
  """Name and shape of the variables that SQuAD adds to BERT."""
  return layers.output_shapes(config.hidden_size, 2, "cls/squad/")


def compute_logits(bert: modeling.BertModel) -> tuple[tf.Tensor, tf.Tensor]:
  """Start and end logits, each float [B, S]."""
  with variables.variable_scope("cls/squad"):
    logits = layers.output_layer(bert.get_sequence_output(), 2)  # [B, S, 2]
  start_logits, end_logits = tf.unstack(tf.transpose(logits, [2, 0, 1]))
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
  sequences = (input_ids, input_mask, segment_ids)
  bert = modeling.BertModel(
    bert_config, is_training, *sequences, use_one_hot_embeddings
  )
  return compute_logits(bert)


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
  logits = tf.stack([start_logits, end_logits])  # [2, B, S]
  if input_mask is not None:
    logits = mask_padding(logits, input_mask)
  positions = tf.cast(tf.stack([start_positions, end_positions]), tf.int32)
  return tf.reduce_mean(layers.cross_entropy(logits, positions))


def mask_padding(logits: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
  """Logits [..., B, S] that are very low at padding positions."""
  padding = 1.0 - tf.cast(input_mask, tf.float32)
  return logits + padding * layers.MASKED_SCORE


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
    threshold_folders: folders to search for the latter.
    weights: `run_record.hash_of_weights` of a model in another folder than its
      predictions. Those of several models may be written to one folder.
    padding_competes: whether the loss includes padding, as in the original.
      All training batches must then be padded to the same length.
    epoch_counts_rows: whether an epoch is counted in windows; the original
      counts questions.
  """

  pads_training = True
  truncates = False
  has_eval_loss = False  # The windows to evaluate on have no positions.

  def __init__(
    self,
    paths: Mapping[str, str],
    tokenizer: tokenization.FullTokenizer | None,
    reading: ReadingSettings,
    decoding: DecodingSettings | None = None,
    threshold: float | None = 0.0,
    threshold_folders: Iterable[str | None] = (),
    weights: str | None = None,
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
    self._has_stored_threshold = False
    self._threshold_folders = threshold_folders
    self._weights = weights
    self._padding_competes = padding_competes
    # The files for "dev" and "test" are usually the same.
    self._read = functools.cache(self._read_file)

  # Text to rows.

  def _read_file(self, path, is_training):
    """The questions of a file, and the SHA-256 of its text.

    Reads the file once, because it may be a pipe.
    """
    digest = hashlib.sha256()
    examples = squad.read_squad_examples(
      path, is_training, self._is_v2, digest.update
    )
    return examples, digest.hexdigest()

  def examples(self, split: str) -> dict[str, Sequence[squad.SquadExample]]:
    """The questions of a split's file."""
    path = self._paths[split]
    examples, _ = self._read(path, split == "train")
    is_scored = squad_scoring.has_answers(examples, self._is_v2)
    if split == "dev" and not is_scored:
      first = next(e for e in examples if not e.answers)
      raise UserError(
        f"{path}: question {first.qas_id} has no answer to evaluate with; pass "
        f"a --predict_file with answers, or --do_predict alone"
      )
    if split == "test" and self._threshold is None and not is_scored:
      self._threshold = read_threshold(self._threshold_folders, self._weights)
      self._has_stored_threshold = True
    return {"": examples}

  def features(
    self, examples: Iterable[squad.SquadExample], is_training: bool
  ) -> Iterator[list[Mapping]]:
    """Yields a row for each window of a question."""
    for windows in squad.iterate_windows(
      examples, self._tokenizer, self._reading, is_training
    ):
      yield list(map(squad.feature_row, windows))

  def feature_spec(self, is_training: bool) -> dict:
    """The three sequences [S], the window's id, and the answer's position."""
    return squad.feature_spec(self._reading.max_seq_length, is_training)

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the text to train on and the text to answer."""
    hashes = {}
    for split, path in self._paths.items():
      is_training = split == "train"
      _, digest = self._read(path, is_training)
      hashes["train" if is_training else "dev"] = digest
    return hashes

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
    result = RawResult(features["unique_ids"], *logits)
    return Outputs(predictions=result._asdict())

  def before_updates(self, folder: str) -> None:
    """Deletes the threshold that was found with the weights of before."""
    path = os.path.join(folder, THRESHOLD_NAME)
    if self._has_stored_threshold:
      raise UserError(
        f"--null_score_diff_threshold={AUTO}: {path} was found before this "
        f"training; pass a number, or a --predict_file with answers"
      )
    if files.exists(path):
      files.remove(path)
      logging.info("%s: deleted, because training changes the weights", path)

  # Numbers to answers.

  def score(
    self, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> Evaluation:
    """Exact match and F1."""
    return self._answer(rows, predictions)[1]

  def write_predictions(
    self, folder: str, rows: RowSet, predictions: Iterable[list[dict]]
  ) -> Evaluation | None:
    """Writes the files of answers and, if answers are known, answer.html."""
    answers, evaluation = self._answer(rows, predictions)
    # First, so that a killed run leaves no answers with scores of others.
    deleted = _remove_earlier(folder)
    path, nbest_path, odds_path = (
      os.path.join(folder, f"{name}.json")
      for name in ("predictions", "nbest_predictions", "null_odds")
    )
    write_answers(answers, path, nbest_path, odds_path if self._is_v2 else None)
    logging.info("%s: %s", path, plural(len(answers), "answer"))
    if not evaluation:
      _log_unscored(self._paths[rows.split], rows.examples)
      for old in itertools.filterfalse(files.exists, deleted):
        logging.info(
          "%s: deleted, because it belongs to other predictions", old
        )
      return None
    scores = {**evaluation.results, **evaluation.details}
    del scores["predict_file"]
    evaluation.details[_PREDICTIONS_KEY] = os.path.basename(path)
    squad_report.write_page(
      os.path.join(folder, "answer.html"),
      f"{self.name}: {os.path.basename(os.path.abspath(folder))}",
      [
        squad_scoring.answered_question(e, answers[e.qas_id], self._is_v2)
        for e in rows.examples
      ],
      scores,
    )
    return evaluation

  def _answer(self, rows, predictions):
    """The Answers by id, and their Evaluation if the true ones are known."""
    answers = {}
    # The windows are made again, because records do not contain tokens.
    windows = squad.iterate_windows(
      rows.examples, self._tokenizer, self._reading, False
    )
    for example, features, results in zip(
      rows.examples, windows, predictions, strict=True
    ):
      results = [RawResult(**result) for result in results]
      answers[example.qas_id] = answer_question(
        example, features, results, self._decoding
      )
    threshold = self._threshold
    details = {"predict_file": self._paths[rows.split]}
    is_scored = squad_scoring.has_answers(rows.examples, self._is_v2)
    golds = {e.qas_id: e.answers for e in rows.examples}
    odds = {name: a.null_odds for name, a in answers.items()}
    if is_scored and self._is_v2:
      texts = {name: a.best_text for name, a in answers.items()}
      best = squad_scoring.best_threshold(golds, texts, odds)
      threshold = best if threshold is None else threshold
      details |= {_THRESHOLD_KEY: threshold, f"best_{_THRESHOLD_KEY}": best}
    answers = {name: a.at_threshold(threshold) for name, a in answers.items()}
    if not is_scored:
      return answers, None
    texts = {name: a.text for name, a in answers.items()}
    if self._is_v2:
      results = squad_scoring.evaluate_v2(golds, texts, odds)
    else:
      results = squad_scoring.evaluate_v1(golds, texts)
    return answers, Evaluation(results, details)

  def report(
    self, folder: str, evaluations: Sequence[Evaluation], record: Mapping
  ) -> None:
    """Stores the threshold with the best F1."""
    for evaluation in evaluations if self._is_v2 else ():
      best = evaluation.details[f"best_{_THRESHOLD_KEY}"]
      logging.info(
        "Predicted no answer above null_score_diff_threshold=%g. The best "
        "threshold is %g, stored in %s. (best_f1_thresh and best_exact_thresh "
        "are those of the official script, for the final predictions.)",
        evaluation.details[_THRESHOLD_KEY],
        best,
        write_threshold(folder, best, self._weights),
      )

  def assets(self) -> dict[str, str]:
    """squad.json."""
    return assets(self._reading)


def assets(reading: ReadingSettings) -> dict[str, str]:
  """The model's file in a model folder: dict from name to content."""
  content = json.dumps(dataclasses.asdict(reading), indent=2)
  return {SETTINGS_NAME: content + "\n"}


# The loss is the original's.
model_fn_builder = model_fn_builder_of(
  lambda config: SquadTask({}, None, ReadingSettings())
)


def _log_unscored(path, examples):
  """Logs why there are no scores."""
  unknown = [e for e in examples if not e.answers]
  logging.info(
    "%s: not scored, because %d of %s have no answer; the first is %s",
    path,
    len(unknown),
    plural(len(examples), "question"),
    unknown[0].qas_id,
  )


def _remove_earlier(folder):
  """Deletes scores, page and null odds of earlier predictions.

  Scores of an evaluation stay.

  Returns:
    The paths of the deleted files.
  """
  names = ["answer.html", "null_odds.json"]
  scores = os.path.join(folder, "eval_results.json")
  with contextlib.suppress(UserError):  # A damaged file is not ours to delete.
    if _PREDICTIONS_KEY in (files.read_json(scores, dict) or ()):
      names += ["eval_results.txt", "eval_results.json"]
  paths = [os.path.join(folder, name) for name in names]
  found = list(filter(files.exists, paths))
  for path in found:
    files.remove(path)
  return found


# Files of a model folder.


def read_assets(model_dir: str | None, **given) -> ReadingSettings:
  """The ReadingSettings of a model folder, or by default the original's.

  For a model with fewer positions, the default lengths are smaller.

  Args:
    model_dir: the folder, or None.
    **given: fields to use instead.

  Raises:
    UserError: the folder's file is damaged, or no text fits beside a question.
  """
  path = os.path.join(model_dir or "", SETTINGS_NAME)
  defaults = dataclasses.asdict(ReadingSettings())
  stored = (files.read_json(path, dict) if model_dir else None) or {}
  files.check_settings(path, stored, defaults)
  for name in stored.keys() & {"doc_stride", "max_query_length"}:
    files.check_least(path, name, stored[name], 1)
  if model_dir and "max_seq_length" not in stored.keys() | given.keys():
    defaults |= _fitting_lengths(model_dir)
  settings = ReadingSettings(**{**defaults, **stored, **given})
  settings.room_for_text(settings.max_query_length)
  return settings


def _fitting_lengths(model_dir):
  """The default lengths; shorter for a model with fewer positions."""
  default = ReadingSettings()
  length = model_folder.default_length(model_dir, default.max_seq_length)
  return {
    "max_seq_length": length,
    "doc_stride": length // 3,  # As 128 of 384 are.
    "max_query_length": min(default.max_query_length, length // 4),
  }


def decoding_settings(
  tokenizer: tokenization.FullTokenizer, reading: ReadingSettings, **fields
) -> DecodingSettings:
  """The DecodingSettings for a tokenizer and ReadingSettings."""
  return DecodingSettings(
    do_lower_case=tokenizer.basic_tokenizer.do_lower_case,
    version_2_with_negative=reading.version_2_with_negative,
    **fields,
  )


def stored_decoding(model_dir: str) -> dict[str, float]:
  """The fields of DecodingSettings that a model folder stores: a threshold.

  Raises:
    UserError: the folder's file is damaged.
  """
  if not files.exists(os.path.join(model_dir, THRESHOLD_NAME)):
    return {}
  return {_THRESHOLD_KEY: read_threshold([model_dir])}


def parse_threshold(text: str, version_2_with_negative: bool) -> float | None:
  """The value of --null_score_diff_threshold; None for "auto".

  Raises:
    UserError: it is not a number, or not 0 in SQuAD 1.1.
  """
  flag = f"--{_THRESHOLD_KEY}={text}"
  try:
    threshold = None if text == AUTO else float(text)
  except ValueError:
    threshold = math.nan
  if threshold is not None and not math.isfinite(threshold):
    raise UserError(f"{flag} is not a finite number; pass one, or {AUTO}")
  if threshold != 0 and not version_2_with_negative:
    raise UserError(f"{flag} needs --version_2_with_negative; omit it")
  return threshold


def write_threshold(
  folder: str, threshold: float, weights: str | None = None
) -> str:
  """Stores the best threshold of a model; returns the path.

  Args:
    folder: the folder of the model, or of its predictions.
    threshold: the threshold.
    weights: see SquadTask.
  """
  path = os.path.join(folder, THRESHOLD_NAME)
  content = {_THRESHOLD_KEY: threshold}
  if weights:
    content[_WEIGHTS_KEY] = weights
  files.write_file(path, json.dumps(content, indent=2) + "\n")
  return path


def read_threshold(
  folders: Iterable[str | None], weights: str | None = None
) -> float:
  """The stored threshold of the first folder that has one.

  Args:
    folders: folders, or None.
    weights: see SquadTask; thresholds of other models are ignored.

  Raises:
    UserError: there is none, or the file is damaged.
  """
  folders = list(dict.fromkeys(filter(None, folders)))
  for folder in folders:
    path = os.path.join(folder, THRESHOLD_NAME)
    found = files.read_json(path, dict)
    if found is None:
      continue
    if weights and found.get(_WEIGHTS_KEY, weights) != weights:
      logging.info("%s is not used: it is that of other weights", path)
      continue
    threshold = found.get(_THRESHOLD_KEY)
    if type(threshold) not in (int, float):
      raise UserError(
        f"{path} is damaged; predict a file with answers to replace it"
      )
    logging.info("null_score_diff_threshold=%g, from %s", threshold, path)
    return threshold
  raise UserError(
    f"--null_score_diff_threshold=auto: no {THRESHOLD_NAME} in "
    f"{' or '.join(folders)}; pass a number, or first predict a file with "
    f"answers"
  )
