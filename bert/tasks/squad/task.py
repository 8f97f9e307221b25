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
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

import modeling
import tokenization
from bert import layers
from bert.contract.task import Evaluation, Field, RowSet, Settings, Task
from bert.data import files, records
from bert.data.text_words import check_has_words
from bert.errors import UserError, plural
from bert.flags.flag_table import wanted_splits
from bert.flags.values import Flags
from bert.models import checkpoints, run_weights, task_file
from bert.models.resolve import Model
from bert.tasks.squad import data, page, scores as squad_scoring
from bert.tasks.squad.data import ReadingSettings
from bert.tasks.squad.decoding import (
  NOTHING_ALLOWED,
  Answer,
  DecodingSettings,
  RawResult,
  answer_question,
  write_answers,
)

_THRESHOLD_KEY = "null_score_diff_threshold"

# Key in eval_results.json of the file with the scored answers.
_PREDICTIONS_KEY = "predictions"

# Number of answers shown on the terminal.
_SHOWN = 5

# The value of --null_score_diff_threshold that selects the best threshold.
AUTO = "auto"


def span_losses(
  start_logits: tf.Tensor,
  end_logits: tf.Tensor,
  start_positions: tf.Tensor,
  end_positions: tf.Tensor,
) -> tf.Tensor:
  """The cross-entropies of start and end, float [2, B].

  Logits are [B, S], positions integer [B].
  """
  logits = tf.stack([start_logits, end_logits])  # [2, B, S]
  positions = tf.cast(tf.stack([start_positions, end_positions]), tf.int32)
  return layers.cross_entropy(logits, positions)


@dataclasses.dataclass(frozen=True)
class SquadSettings(DecodingSettings, ReadingSettings, Settings):
  """The settings that a model for SQuAD records."""

  null_score_diff_threshold: float | None = None  # the best one found
  # `checkpoints.hash_of_weights` of the threshold's model, if that is in
  # another folder.
  init_checkpoint: str | None = None
  fixed = ("init_checkpoint",)

  def check(self) -> None:
    super().check()
    counts = ("doc_stride", "max_query_length", "n_best_size")
    for name in (*counts, "max_answer_length"):
      if getattr(self, name) < 1:
        raise ValueError(
          f"{name} is {getattr(self, name)}, and must be at least 1"
        )


class Answered(NamedTuple):
  """A question, and the Answer to it."""

  example: data.SquadExample
  answer: Answer


class SquadTask(Task):
  """SQuAD 1.1 or 2.0.

  Args:
    threshold: null odds above which there is no answer. Default: that of the
      settings, or 0. AUTO selects the threshold with the best F1 or, for
      questions without answers, reads one from `threshold_folders`.
    weights: `checkpoints.hash_of_weights` of a model in another folder than
      its predictions. A folder may hold predictions of several models.
    stores_threshold: whether an evaluation stores its best threshold in the
      folder of the predictions.
    padding_competes: whether the loss includes padding, as in the original.
      All training batches must then be padded to the same length.
    epoch_counts_rows: whether an epoch is counted in windows, not questions.
  """

  kind = "squad"
  Settings = SquadSettings
  inputs = (Field("question"), Field("context"))
  output_types = (
    ("answer", "DT_STRING"),
    ("start", "DT_INT64"),
    ("end", "DT_INT64"),
    ("probability", "DT_FLOAT"),
  )
  needs_pooler = False
  pads_training = True
  truncates = False
  has_eval_loss = False  # The windows to evaluate on have no positions.

  def __init__(
    self,
    settings: SquadSettings | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    paths: Mapping[str, str] | None = None,
    threshold: float | str | None = None,
    threshold_folders: Iterable[str | None] = (),
    weights: str | None = None,
    stores_threshold: bool = True,
    padding_competes: bool = True,
    epoch_counts_rows: bool = False,
  ):
    super().__init__(settings, tokenizer, paths)
    settings = self.settings
    self._is_v2 = settings.version_2_with_negative
    self.name = f"SQuAD {2.0 if self._is_v2 else 1.1}"
    self.metrics = ("f1", "exact_match")
    if self._is_v2:
      self.metrics = ("f1", "exact", "best_f1", "best_exact")
    self.epoch_counts_rows = epoch_counts_rows
    if threshold is None:
      threshold = settings.null_score_diff_threshold or 0.0
    self._threshold = threshold
    self._has_stored_threshold = False
    self._threshold_folders = threshold_folders
    self._weights = weights
    self._stores_threshold = stores_threshold and self._is_v2
    self._padding_competes = padding_competes
    if tokenizer:
      self._make_windows = data.WindowMaker(tokenizer, settings)
    # The files for "dev" and "test" are usually the same.
    self._read = functools.cache(self._read_file)

  @classmethod
  def from_flags(cls, flags: Flags, model: Model) -> SquadTask:
    weights, folder = None, flags.output_dir
    if not flags.do_train and model.folder != folder:
      weights = checkpoints.hash_of_weights(model.checkpoint)
    own = run_weights.own_checkpoint(folder, flags.init_checkpoint)
    stored = stored_threshold(folder)
    return cls(
      dataclasses.replace(
        cls.settings_of_run(flags, model), null_score_diff_threshold=stored
      ),
      model.tokenizer,
      {split: flags[flag] for split, flag in file_flags(flags).items()},
      parse_threshold(flags.null_score_diff_threshold),
      # Newly trained weights need a new threshold.
      [folder, None if flags.do_train else model.folder],
      weights,
      stores_threshold=flags.do_train
      or own in (None, checkpoints.final_checkpoint(folder)),
      padding_competes=flags.pad_to_max_length is not False,
      epoch_counts_rows=flags.count_steps_on_windows,
    )

  @classmethod
  def settings_of_run(cls, flags: Flags, model: Model) -> SquadSettings:
    """The settings of flags; by default those of the trained model."""
    given = flags.given_of(field.name for field in cls.Settings.flag_fields())
    settings = cls.Settings()
    if not flags.do_train:
      kind, _ = task_file.read(model.folder)
      if kind or "max_seq_length" not in given:
        settings = model.settings(cls, is_required=False)
    settings = dataclasses.replace(settings, **given)
    settings.room_for_text(settings.max_query_length)
    return settings

  # Inference.

  @classmethod
  def default_settings(cls, config: modeling.BertConfig) -> SquadSettings:
    default = SquadSettings()
    length = config.max_position_embeddings
    if length >= default.max_seq_length:
      return default
    return SquadSettings(
      length,
      doc_stride=length // 3,  # The ratio of 128 to 384.
      max_query_length=min(default.max_query_length, length // 4),
    )

  def example(self, question: str, context: str) -> data.SquadExample:
    paragraph = data.Paragraph.of(context)
    check_has_words(self.tokenizer, question, "the question")
    check_has_words(self.tokenizer, context, "the context")
    return data.SquadExample(
      "", question, paragraph.doc_tokens, paragraph=paragraph
    )

  def rows(self, example: data.SquadExample, is_training: bool) -> list:
    return list(map(data.feature_row, self._make_windows(example, is_training)))

  def feature_spec(self, is_training: bool) -> dict:
    return data.feature_spec(self.settings.max_seq_length, is_training)

  def head_shapes(self, config: modeling.BertConfig) -> dict[str, list[int]]:
    """The output layer's weights [2, H] and bias [2]."""
    return layers.output_shapes(config.hidden_size, 2, "cls/squad/")

  def head(self, ops, bert, features: Mapping) -> dict:
    """Start and end logits [B, S], without and (`all_`) with padding."""
    # Mask padding: it could be among the n best starts and ends, and its amount
    # depends on the other rows of the batch.
    mask, low = features["input_mask"], layers.MASKED_SCORE
    x = bert.get_sequence_output()
    logits = ops.output_layer(x, 2, "cls/squad/", dropout=False)
    start, end = ops.take(logits, 0), ops.take(logits, 1)
    return {
      "start_logits": ops.masked(start, mask, low),
      "end_logits": ops.masked(end, mask, low),
      "all_start_logits": start,
      "all_end_logits": end,
    }

  def output_axes(self) -> dict[str, Sequence[str]]:
    return dict.fromkeys(("start_logits", "end_logits"), (records.POSITION,))

  soft_targets = output_axes

  def unlabeled(self, path: str) -> Sequence[data.SquadExample]:
    examples, _ = self._read(path, False)
    return examples

  def reading_with(self, other: Task) -> Task:
    reader = super().reading_with(other)
    reader._make_windows = data.WindowMaker(other.tokenizer, self.settings)
    return reader

  def answer(
    self, example: data.SquadExample, predictions: Sequence[Mapping]
  ) -> Answered:
    # Make the windows again, because records do not contain tokens.
    windows = self._make_windows(example, False)
    results = [
      RawResult(window.unique_id, row["start_logits"], row["end_logits"])
      for window, row in zip(windows, predictions, strict=True)
    ]
    answer = answer_question(example, windows, results, self.settings)
    if self._threshold != AUTO:
      answer = answer.at_threshold(self._threshold)
    return Answered(example, answer)

  def public(self, answer: Answered) -> dict:
    """The `answer`, its `start` and `end` in the context, its `probability`.

    The offsets are -1 if there is no answer.
    """
    example, predicted = answer
    if not (predicted.text and predicted.span):
      probability = (
        0.0 if predicted.text == NOTHING_ALLOWED else predicted.probability
      )
      return {"answer": "", "start": -1, "end": -1, "probability": probability}
    start, end = predicted.span
    text = example.paragraph.context[start:end].rstrip()
    end = start + len(text)
    text = text.lstrip()  # The pieces at both ends may be blanks.
    return {
      "answer": text,
      "start": end - len(text),
      "end": end,
      "probability": predicted.probability,
    }

  def describe(self, answer: Answered) -> str:
    lines = [_one_line(answer.answer.text)]
    for candidate in answer.answer.nbest[:_SHOWN]:
      text = _one_line(candidate.text)
      lines.append(f"  {candidate.probability:6.1%}  {text}")
    return "\n".join(lines)

  # Training.

  def _read_file(self, path, is_training):
    """The questions of a file, or a pipe, and the SHA-256 of its text."""
    digest = hashlib.sha256()
    examples = data.read_squad_examples(
      path, is_training, self._is_v2, digest.update
    )
    return examples, digest.hexdigest()

  def examples(self, split: str) -> dict[str, Sequence[data.SquadExample]]:
    path = self.paths[split]
    examples, _ = self._read(path, split == "train")
    is_scored = squad_scoring.has_answers(examples, self._is_v2)
    if split == "dev" and not is_scored:
      first = next(e for e in examples if not e.answers)
      raise UserError(
        f"{path}: question {first.qas_id} has no answer to evaluate with; pass "
        f"a --predict_file with answers, or --do_predict alone"
      )
    if split == "test" and self._threshold == AUTO and not is_scored:
      self._threshold = read_threshold(self._threshold_folders, self._weights)
      self._has_stored_threshold = True
    return {"": examples}

  def texts(self, rows: RowSet) -> Iterator[tuple[str, Sequence[str]]]:
    for example in rows.examples or ():
      context = " ".join(example.doc_tokens)
      yield f"question {example.qas_id}", (example.question_text, context)

  def data_hashes(self) -> dict[str, str]:
    """SHA-256 of the text to train on and the text to answer."""
    hashes = {}
    for split, path in self.paths.items():
      is_training = split == "train"
      _, digest = self._read(path, is_training)
      hashes["train" if is_training else "dev"] = digest
    return hashes

  def loss(self, outputs: Mapping, features: Mapping) -> tf.Tensor:
    """The mean of the losses of start and end, of each row."""
    prefix = "all_" if self._padding_competes else ""
    logits = (outputs[prefix + name] for name in self.output_axes())
    positions = features["start_positions"], features["end_positions"]
    return tf.reduce_mean(span_losses(*logits, *positions), axis=0)

  def before_updates(self, folder: str) -> None:
    """Drops the threshold; it was tuned for the old weights."""
    path = os.path.join(folder, task_file.NAME)
    if self._has_stored_threshold:
      raise UserError(
        f"--null_score_diff_threshold={AUTO}: the threshold in {path} is of "
        f"older weights; pass a number, or a --predict_file with answers"
      )
    if self.settings.null_score_diff_threshold is not None:
      logging.info(
        "%s: dropped the threshold, because training changes the weights", path
      )
      write_threshold(folder, self, None)

  # Evaluation and prediction.

  def score(self, rows: RowSet, answers: Iterable[Answered]) -> Evaluation:
    return self._decide(rows, answers)[1]

  def write(
    self, folder: str, rows: RowSet, answers: Iterable[Answered]
  ) -> Evaluation | None:
    """Writes the files of answers and, if answers are known, answer.html."""
    answers, evaluation = self._decide(rows, answers)
    # Delete first, so that a killed run does not leave scores of other answers.
    deleted = _remove_earlier(folder)
    path, nbest_path, odds_path = (
      os.path.join(folder, f"{name}.json")
      for name in ("predictions", "nbest_predictions", "null_odds")
    )
    write_answers(answers, path, nbest_path, odds_path if self._is_v2 else None)
    logging.info("%s: %s", path, plural(len(answers), "answer"))
    if not evaluation:
      unknown = [e for e in rows.examples if not e.answers]
      logging.info(
        "%s: not scored, because %d of %s have no answer; the first is %s",
        self.paths[rows.split],
        len(unknown),
        plural(len(rows.examples), "question"),
        unknown[0].qas_id,
      )
      for old in itertools.filterfalse(files.exists, deleted):
        logging.info(
          "%s: deleted, because it belongs to other predictions", old
        )
      return None
    scores = {**evaluation.results, **evaluation.details}
    del scores["predict_file"]
    evaluation.details[_PREDICTIONS_KEY] = os.path.basename(path)
    page.write_page(
      os.path.join(folder, "answer.html"),
      f"{self.name}: {os.path.basename(os.path.abspath(folder))}",
      [
        squad_scoring.answered_question(e, answers[e.qas_id], self._is_v2)
        for e in rows.examples
      ],
      scores,
    )
    return evaluation

  def _decide(self, rows, answers):
    """The Answers by id, and their Evaluation if the true answers are known."""
    answers = {e.qas_id: answer for e, answer in answers}
    threshold = self._threshold
    details = {"predict_file": self.paths[rows.split]}
    is_scored = squad_scoring.has_answers(rows.examples, self._is_v2)
    golds = {e.qas_id: e.answers for e in rows.examples}
    odds = {name: a.null_odds for name, a in answers.items()}
    if is_scored and self._is_v2:
      texts = {name: a.best_text for name, a in answers.items()}
      best = squad_scoring.best_threshold(golds, texts, odds)
      threshold = best if threshold == AUTO else threshold
      details |= {_THRESHOLD_KEY: threshold, f"best_{_THRESHOLD_KEY}": best}
    answers = {name: a.at_threshold(threshold) for name, a in answers.items()}
    if not is_scored:
      return answers, None
    texts = {name: a.text for name, a in answers.items()}
    if self._is_v2:
      results = squad_scoring.evaluate_v2(golds, texts, odds)
    else:
      results = squad_scoring.evaluate_v1(golds, texts)
    sample = functools.partial(squad_scoring.sample, golds, texts, self._is_v2)
    counts = {"questions": len(texts)}
    return answers, Evaluation(results, details, counts, rows.name, sample)

  def finish(self, folder: str, evaluations: Sequence[Evaluation]) -> None:
    """Stores the threshold with the best F1."""
    for evaluation in evaluations if self._stores_threshold else ():
      best = evaluation.details[f"best_{_THRESHOLD_KEY}"]
      logging.info(
        "Predicted no answer above null_score_diff_threshold=%g. The best "
        "threshold is %g, stored in %s. (best_f1_thresh and best_exact_thresh "
        "are those of the official script, for the final predictions.)",
        evaluation.details[_THRESHOLD_KEY],
        best,
        write_threshold(folder, self, best, self._weights),
      )


def _remove_earlier(folder):
  """Deletes the files of earlier predictions; returns their paths."""
  names = ["answer.html", "null_odds.json"]
  scores = os.path.join(folder, "eval_results.json")
  with contextlib.suppress(UserError):  # A damaged file is not ours to delete.
    if _PREDICTIONS_KEY in (files.read_json(scores, dict) or ()):
      names += ["eval_results.txt", "eval_results.json"]
  paths = (os.path.join(folder, name) for name in names)
  existing = list(filter(files.exists, paths))
  for path in existing:
    files.remove(path)
  return existing


def file_flags(flags: Flags) -> dict[str, str]:
  """The flag of the file of each split that a run reads."""
  return {
    split: "train_file" if split == "train" else "predict_file"
    for split in wanted_splits(flags)
  }


def parse_threshold(text: str) -> float | str:
  """The value of --null_score_diff_threshold: a number, or AUTO."""
  try:
    return AUTO if text == AUTO else float(text)
  except ValueError as error:
    raise UserError(
      f"--{_THRESHOLD_KEY}={text} is not a number; pass one, or {AUTO}"
    ) from error


def write_threshold(
  folder: str,
  task: SquadTask,
  threshold: float | None,
  weights: str | None = None,
) -> str:
  """Stores the best threshold in a folder's task.json; returns the path."""
  task.settings = dataclasses.replace(
    task.settings, null_score_diff_threshold=threshold, init_checkpoint=weights
  )
  return task_file.write(folder, task)


def stored_threshold(folder: str | None) -> float | None:
  """The threshold in the task.json of a folder; None without one."""
  kind, fields = task_file.read(folder) if folder else (None, {})
  if kind != SquadTask.kind:
    return None
  fields = task_file.parse(SquadSettings, fields, folder)
  return fields.get(_THRESHOLD_KEY)


def read_threshold(
  folders: Iterable[str | None], weights: str | None = None
) -> float:
  """The stored threshold of the first folder that has one for these weights."""
  folders = list(dict.fromkeys(filter(None, folders)))
  for folder in folders:
    threshold = stored_threshold(folder)
    if threshold is None:
      continue
    path = os.path.join(folder, task_file.NAME)
    trained_weights = task_file.read(folder)[1].get("init_checkpoint")
    if weights and trained_weights and trained_weights != weights:
      logging.info(
        "Not using the threshold in %s, because it is of other weights", path
      )
      continue
    logging.info("null_score_diff_threshold=%g, from %s", threshold, path)
    return threshold
  raise UserError(
    f"--null_score_diff_threshold=auto: no threshold in the {task_file.NAME} "
    f"of {' or '.join(folders)}; pass a number, or first predict a file with "
    f"answers"
  )


def _one_line(text):
  return " ".join(text.split()) or "(no answer)"
