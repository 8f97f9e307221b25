"""Answers that are parts of a text: the model of SQuAD, and its use in Python.

    reader = Reader("/tmp/squad_base")
    reader("Who built it?", "The tower was built by Eiffel's company.")[0].text

A folder that training has filled says all that a Reader needs to know.
"""

import collections
import dataclasses
import functools
import glob
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import checkpoints
import estimator
import inputs
import modeling
import optimization
import squad
import squad_answers
import squad_report
import tokenization
import variables

# What a folder says of the model in it, beside `bert_config.json`, and of how
# sure it must be that there is no answer.
SETTINGS_NAME = "squad.json"
THRESHOLD_NAME = "null_threshold.json"

# Candidates that are kept of each question's, once their file is written.
_KEPT_CANDIDATES = 5


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
      raise ValueError(
        f"--max_query_length={self.max_query_length} is less than 1; raise it"
      )
    room = self.max_seq_length - self.max_query_length - 3
    if room < 2:
      raise ValueError(
        f"--max_seq_length={self.max_seq_length} leaves no room for text "
        f"beside --max_query_length={self.max_query_length} and 3 special "
        f"tokens; raise the one or lower the other"
      )
    if not 0 < self.doc_stride < room:
      raise ValueError(
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
  found = _read_json(path)
  if found is None:
    return None
  wanted = dataclasses.asdict(ReadingSettings())
  if {k: type(v) for k, v in found.items()} != {
    k: type(v) for k, v in wanted.items()
  }:
    raise ValueError(
      f"{path} is damaged; train again, or copy it again from where the "
      f"model was trained"
    )
  return ReadingSettings(**found)


def write_threshold(model_dir: str, threshold: float) -> None:
  """Stores the threshold that was found best for a folder's model."""
  content = json.dumps({"null_score_diff_threshold": threshold}, indent=2)
  checkpoints.write_file(
    os.path.join(model_dir, THRESHOLD_NAME), content + "\n"
  )


def read_threshold(model_dir: str) -> float:
  """What `write_threshold` stored in a folder.

  Raises:
    ValueError: nothing, or the file is damaged.
  """
  path = os.path.join(model_dir, THRESHOLD_NAME)
  found = _read_json(path)
  if found is None:
    raise ValueError(
      f"--null_score_diff_threshold=auto: there is no {path}; answer a file "
      f"with answers first, which writes it, or pass a number"
    )
  threshold = found.get("null_score_diff_threshold")
  if type(threshold) not in (int, float):
    raise ValueError(f"{path} is damaged; answer a file with answers again")
  return threshold


def _read_json(path):
  """The dict that a JSON file holds; None if there is no such file."""
  if not tf.io.gfile.exists(path):
    return None
  with tf.io.gfile.GFile(path, "rb") as reader:
    content = reader.read()
  try:
    found = json.loads(content)
  except ValueError:
    found = None
  return found if isinstance(found, dict) else {}


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
  for logits, positions in (
    (start_logits, start_positions),
    (end_logits, end_positions),
  ):
    if input_mask is not None:
      logits += (1.0 - tf.cast(input_mask, tf.float32)) * modeling.MASKED_SCORE
    losses.append(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(positions, tf.int32), logits=logits
      )
    )
  return tf.reduce_mean(tf.stack(losses))


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
      *(features[name] for name in inputs.SEQUENCES),
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
    outputs = (features["unique_ids"], *logits)
    names = squad_answers.RawResult._fields
    return estimator.EstimatorSpec(
      mode, predictions=dict(zip(names, outputs, strict=True))
    )

  return model_fn


class Answered(NamedTuple):
  """A question and what the model says.

  Attributes:
    example: the question.
    answer: the answer, with the first of its candidates and those that it may
      come to.
    place: (start, end) of `best_text` in the context, in characters, or None.
    right_probability: the probability of all candidates that are right; None
      if no right answer is known.
  """

  example: squad.SquadExample
  answer: squad_answers.Answer
  place: tuple[int, int] | None
  right_probability: float | None

  def prediction(self, threshold: float) -> str:
    """The answer; "" where the odds of no answer are above the threshold."""
    odds = self.answer.null_odds
    is_null = odds is not None and odds > threshold
    return "" if is_null else self.answer.best_text


def has_answers(
  examples: Sequence[squad.SquadExample], version_2_with_negative: bool
) -> bool:
  """Whether all questions can be scored."""
  if version_2_with_negative:
    # A question without an answer counts, but not a whole file of them.
    return any(e.answers or e.is_impossible for e in examples)
  return all(e.answers for e in examples)


def right_answers(example: squad.SquadExample) -> Sequence[str]:
  """The reference answers; none if the text has no answer."""
  return () if example.is_impossible else example.answers


def answer_questions(
  examples: Iterable[squad.SquadExample],
  features: Iterable[squad.InputFeatures],
  results: Iterable[squad_answers.RawResult],
  settings: squad_answers.DecodingSettings,
  write: Callable[[str, squad_answers.Answer], object] | None = None,
) -> Iterator[Answered]:
  """Yields each question's answer, see `squad_answers.answer_all`.

  Args:
    examples: the questions.
    features: their windows, in the same order.
    results: the logits of the windows.
    settings: how they are decoded.
    write: called with the id and the whole answer of each, or None.
  """
  windows = collections.defaultdict(list)
  logits = {}

  def noted_features():
    for feature in features:
      windows[feature.example_index].append(feature)
      yield feature

  def noted_results():
    for result in results:
      logits[result.unique_id] = result
      yield result

  answers = squad_answers.answer_all(
    examples, noted_features(), noted_results(), settings
  )
  for index, (example, answer) in enumerate(answers):
    if write:
      write(example.qas_id, answer)
    mine = [
      (window, logits.pop(window.unique_id))
      for window in windows.pop(index, ())
    ]
    yield Answered(
      example,
      answer._replace(nbest=_kept(answer)),
      _place(example, mine, answer),
      _right_probability(example, answer, settings),
    )


def _kept(answer):
  """The candidates that are still needed when all questions are answered."""
  return [
    candidate
    for rank, candidate in enumerate(answer.nbest)
    if rank < _KEPT_CANDIDATES or candidate.text in ("", answer.best_text)
  ]


def _right_probability(example, answer, settings):
  references = right_answers(example)
  if not (references or settings.version_2_with_negative):
    return None
  normalized = set(map(squad_answers.normalize_answer, references or [""]))
  return sum(
    candidate.probability
    for candidate in answer.nbest
    if squad_answers.normalize_answer(candidate.text) in normalized
  )


def _place(example, windows, answer):
  """Where in the context the best text stands, which may hold it twice.

  Args:
    example: the question.
    windows: pairs of a window and its logits.
    answer: the answer.
  """
  best = next((c for c in answer.nbest if c.text == answer.best_text), None)
  paragraph = example.paragraph
  for window, result in windows if best else ():
    words = window.token_to_orig_map
    first, last = (
      [words[p] for p in np.flatnonzero(logits == wanted) if p in words]
      for logits, wanted in (
        (result.start_logits, best.start_logit),
        (result.end_logits, best.end_logit),
      )
    )
    if first and last:
      begin = paragraph.char_starts[first[0]]
      end = paragraph.char_starts[last[0]] + len(paragraph.doc_tokens[last[0]])
      found = paragraph.context.find(best.text, begin, end)
      # The original's words have one blank between them, whatever there was.
      return (found, found + len(best.text)) if found >= 0 else (begin, end)
  return None


def best_threshold(answered: Sequence[Answered]) -> float:
  """The threshold with the best F1, see `squad_answers.best_threshold`."""
  return squad_answers.best_threshold(
    {a.example.qas_id: right_answers(a.example) for a in answered},
    {a.example.qas_id: a.answer.best_text for a in answered},
    {a.example.qas_id: a.answer.null_odds for a in answered},
  )


def evaluate(
  answered: Sequence[Answered], predictions: Mapping[str, str]
) -> dict[str, float]:
  """Exact match and F1 by the rules of SQuAD, in percent.

  Of SQuAD 2.0, `exact` and `f1` are of the predictions as they are; the rest is
  as the official script says it, given the odds.

  Args:
    answered: the questions.
    predictions: from their ids to texts.
  """
  references = {a.example.qas_id: right_answers(a.example) for a in answered}
  odds = {a.example.qas_id: a.answer.null_odds for a in answered}
  if None in odds.values():
    return squad_answers.evaluate_v1(references, predictions)
  return squad_answers.evaluate_v2(
    references, predictions, odds, na_threshold=math.inf
  )


def on_the_page(
  answered: Answered, prediction: str
) -> squad_report.AnsweredQuestion:
  """A question as `squad_report.write_page` takes it.

  Args:
    answered: the question.
    prediction: its answer.
  """
  example, answer = answered.example, answered.answer
  golds = list(dict.fromkeys(right_answers(example)))
  context = example.paragraph.context
  probabilities = {c.text: c.probability for c in answer.nbest}
  right = answered.right_probability
  return squad_report.AnsweredQuestion(
    qas_id=example.qas_id,
    title=example.paragraph.title,
    question=example.question_text,
    context=context,
    prediction=prediction,
    prediction_span=answered.place if prediction else None,
    golds=[(text, _only_place(context, text)) for text in golds],
    exact=max(squad_answers.exact_match(prediction, g) for g in golds or [""]),
    f1=max(squad_answers.f1(prediction, g) for g in golds or [""]),
    probability=probabilities.get(prediction, 0.0),
    loss=-math.log(right) if right else math.inf,
    null_odds=answer.null_odds,
    nbest=[(c.text, c.probability) for c in answer.nbest],
  )


def _only_place(context, text):
  """Where a text stands; None if that is nowhere, or in several places."""
  return context.find(text) if context.count(text) == 1 else None


class Reader:
  """A trained model, loaded once, that answers questions on texts.

  Args:
    model: the `output_dir` of a finished training, or the prefix of a
      checkpoint.
    bert_config: its BertConfig; the one beside it when None.
    tokenizer: its FullTokenizer; by the vocabulary beside it when None.
    settings: its ReadingSettings; those beside it, or else the original's,
      when None.
    decoding: other fields of `squad_answers.DecodingSettings`.
    exact_answer_text: whether answers are given character by character.
    batch_size: most windows that are computed at a time.
    precision: "float32" or "bfloat16".

  Attributes:
    settings: its ReadingSettings.
    decoding: its DecodingSettings.

  Raises:
    ValueError: there is no such model.
  """

  def __init__(
    self,
    model: str,
    bert_config: modeling.BertConfig | None = None,
    tokenizer: tokenization.FullTokenizer | None = None,
    settings: ReadingSettings | None = None,
    decoding: Mapping | None = None,
    exact_answer_text: bool = False,
    batch_size: int = 8,
    precision: str = "float32",
  ):
    prefix, folder = _release(model)
    self._config = bert_config or _load_config(folder)
    self._tokenizer = tokenizer or _load_tokenizer(folder, self._config)
    self.settings = settings or read_settings(folder) or ReadingSettings()
    self.settings.check()
    exact_text = functools.partial(squad.exact_text, tokenizer=self._tokenizer)
    self.decoding = squad_answers.DecodingSettings(
      do_lower_case=self._tokenizer.basic_tokenizer.do_lower_case,
      version_2_with_negative=self.settings.version_2_with_negative,
      exact_text=exact_text if exact_answer_text else None,
      **(decoding or {}),
    )
    self._batch_size = batch_size
    self._precision = precision
    weights = checkpoints.Checkpoint(prefix, weights_only=True)
    checkpoints.audit(
      weights,
      {**modeling.variable_shapes(self._config), **head_shapes(self._config)},
    )
    limit = self._config.max_position_embeddings
    if self.settings.max_seq_length > limit:
      raise ValueError(
        f"--max_seq_length={self.settings.max_seq_length} is more than the "
        f"{limit} positions of {model}; lower it"
      )
    self._store = variables.VariableStore(initial_values=weights)
    ids = tf.TensorSpec([None, None], tf.int32)
    self._logits = tf.function(
      self._compute_logits, input_signature=[ids] * 3, autograph=False
    )

  def __call__(
    self, question: str, context: str
  ) -> list[squad_answers.Candidate]:
    """The n best answers that stand in a text, the best first.

    A candidate "" says that the text does not answer the question.

    Raises:
      ValueError: question or text has no words.
    """
    return self.answer(question, context).nbest

  def answer(self, question: str, context: str) -> squad_answers.Answer:
    """As `__call__`, with the answer that the settings decide for."""
    paragraph = squad.Paragraph.of(context)
    example = squad.SquadExample(
      "", question, paragraph.doc_tokens, paragraph=paragraph
    )
    windows = list(self.settings.features([example], self._tokenizer, False))
    if not (windows and self._tokenizer.tokenize(question)):
      raise ValueError("question and text must have words; pass some")
    results = self._run(windows)
    return squad_answers.answer_question(
      example, windows, results, self.decoding
    )

  def _run(self, windows):
    """RawResults of windows, computed in order of length."""
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].tokens))
    results = [None] * len(windows)
    for start in range(0, len(order), self._batch_size):
      chosen = order[start : start + self._batch_size]
      longest = len(windows[chosen[-1]].tokens)
      batch = [
        np.array(
          [getattr(windows[i], name)[:longest] for i in chosen], np.int32
        )
        for name in inputs.SEQUENCES
      ]
      logits = [part.numpy() for part in self._logits(*batch)]
      for i, *row in zip(chosen, *logits, strict=True):
        results[i] = squad_answers.RawResult(windows[i].unique_id, *row)
    return results

  def _compute_logits(self, input_ids, input_mask, segment_ids):
    with self._store:
      return create_model(
        self._config,
        False,
        input_ids,
        input_mask,
        segment_ids,
        False,
        self._precision,
      )


def is_release(model_dir: str) -> bool:
  """Whether a folder is what a training on SQuAD leaves at its end."""
  needed = (
    SETTINGS_NAME,
    "bert_config.json",
    f"{checkpoints.RELEASE_NAME}.index",
  )
  return all(tf.io.gfile.exists(os.path.join(model_dir, n)) for n in needed)


def _release(model):
  """The prefix of a model's checkpoint, and its folder."""
  if is_release(model):
    return os.path.join(model, checkpoints.RELEASE_NAME), model
  prefix = checkpoints.find_checkpoint(model)
  return prefix, os.path.dirname(prefix) or "."


def _load_config(folder):
  path = os.path.join(folder, "bert_config.json")
  if not tf.io.gfile.exists(path):
    raise ValueError(
      f"{folder} has no bert_config.json; pass the --output_dir of a training "
      f"that has ended, or --bert_config_file"
    )
  return modeling.BertConfig.from_json_file(path)


def _load_tokenizer(folder, bert_config):
  """The tokenizer of a release: by vocab.txt, or by a SentencePiece model."""
  do_lower_case = getattr(bert_config, "do_lower_case", True)
  vocab_file = os.path.join(folder, "vocab.txt")
  if tf.io.gfile.exists(vocab_file):
    return tokenization.FullTokenizer(vocab_file, do_lower_case)
  found = tf.io.gfile.glob(os.path.join(glob.escape(folder), "*.model"))
  if len(found) == 1:
    return tokenization.FullTokenizer(None, do_lower_case, found[0])
  raise ValueError(
    f"{folder} has no vocab.txt, nor one SentencePiece model; pass --vocab_file"
  )


def converse(
  reader: Reader,
  shown: int,
  read: Callable[[str], str] = input,
  write: Callable[[str], object] = print,
) -> None:
  """Asks for a text, then for questions on it, until there are no more.

  An empty question asks for another text.

  Args:
    reader: a Reader.
    shown: how many candidates to show of each answer.
    read: from a prompt to a line; raises EOFError at the end.
    write: shows a line.
  """
  context = None
  while True:
    try:
      line = read("context file> " if context is None else "question> ").strip()
    except EOFError:
      return
    try:
      if context is None:
        context = _read_text(line) if line else None
      elif not line:
        context = None
      else:
        write(_described(reader.answer(line, context), shown))
    except ValueError as error:
      write(f"error: {error}")


def _read_text(path):
  """A text file's content, unless it has no words."""
  if tf.io.gfile.isdir(path) or not tf.io.gfile.exists(path):
    raise ValueError(f"there is no file {path}; type the path of a text")
  with tf.io.gfile.GFile(path, "rb") as file:
    text = inputs.decode_utf8(path, file.read())
  if not text.strip():
    raise ValueError(f"{path} is empty; type the path of another")
  return text


def _described(answer, shown):
  """An answer in words, then its candidates with their probabilities."""
  lines = [_shown(answer.text)]
  lines += [f"  {c.probability:6.1%}  {_shown(c.text)}" for c in answer.nbest]
  return "\n".join(lines[: shown + 1])


def _shown(text):
  return " ".join(text.split()) or "(no answer)"
