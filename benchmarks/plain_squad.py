"""SQuAD's windows and answers, implemented plainly: slow, easy to check."""

import math

import tokenization
from bert.data import sequences
from bert.tasks import squad


def plain_features(example, tokenizer, length, stride, max_query, is_training):
  """Yields the windows of one question by their definition.

  The paragraph is tokenized for each question, and each piece is looked up in
  all windows to find the one with most context.
  """
  query = tokenizer.tokenize(example.question_text)[:max_query]
  pieces = [
    (piece, word)
    for word, text in enumerate(example.doc_tokens)
    for piece in tokenizer.tokenize(text)
  ]
  room = length - len(query) - 3
  spans = []
  while pieces and (not spans or spans[-1][-1] < len(pieces) - 1):
    start = len(spans) * stride
    spans.append(range(start, min(start + room, len(pieces))))

  def score(place, span):
    context = min(place - span[0], span[-1] - place)
    return context + 0.01 * len(span)

  best = [
    max(
      (n for n, span in enumerate(spans) if place in span),
      key=lambda n, place=place: (score(place, spans[n]), -n),
    )
    for place in range(len(pieces))
  ]
  answer = None
  if is_training and not example.is_impossible:
    answer = _answer_places(example, pieces, tokenizer)
  for number, span in enumerate(spans):
    first = len(query) + 2
    tokens = ["[CLS]", *query, "[SEP]", *(pieces[i][0] for i in span), "[SEP]"]
    ids = [tokenizer.vocab[token] for token in tokens]
    where = [0, 0] if is_training else [None, None]
    if answer and answer[0] in span and answer[-1] in span:
      where = [first + span.index(i) for i in (answer[0], answer[-1])]
    segments = [0] * first + [1] * (len(span) + 1)
    yield squad.InputFeatures(
      squad.FIRST_UNIQUE_ID + number,
      0,
      number,
      tokens,
      {first + n: pieces[i][1] for n, i in enumerate(span)},
      {first + n: best[i] == number for n, i in enumerate(span)},
      sequences.padded(ids, length),
      sequences.padded([1] * len(tokens), length),
      sequences.padded(segments, length),
      *where,
      example.is_impossible,
    )


def _answer_places(example, pieces, tokenizer):
  """Indices of the answer's pieces, or of all pieces of its words."""
  words = range(example.start_position, example.end_position + 1)
  of_words = [i for i, piece in enumerate(pieces) if piece[1] in words]
  wanted = tokenizer.tokenize(example.orig_answer_text)
  spots = [
    of_words[i : i + len(wanted)]
    for i in range(len(of_words))
    if wanted and [pieces[j][0] for j in of_words[i:]][: len(wanted)] == wanted
  ]
  return (spots or [of_words])[0]


def plain_answers(example, windows, results, n_best_size, max_answer_length):
  """The n best (text, probability) of a question, as SQuAD 1.1 asks for."""
  spans = []
  for window, result in zip(windows, results, strict=True):
    ends = _best(result.end_logits, n_best_size)
    for start in _best(result.start_logits, n_best_size):
      for end in ends:
        is_allowed = (
          window.token_is_max_context.get(start, False)
          and end in window.token_to_orig_map
          and start <= end < start + max_answer_length
        )
        if is_allowed:
          score = float(result.start_logits[start])
          score += float(result.end_logits[end])
          spans.append((score, window, start, end))
  spans.sort(key=lambda span: -span[0])
  found = {}
  for score, window, start, end in spans:
    if len(found) == n_best_size:
      break
    found.setdefault(_span_text(example, window, start, end), score)
  total = sum(math.exp(score) for score in found.values())
  return [(text, math.exp(score) / total) for text, score in found.items()]


def _best(logits, count):
  return sorted(range(len(logits)), key=lambda i: -logits[i])[:count]


def _span_text(example, window, start, end):
  """The part of the paragraph that the pieces from start to end stand for."""
  words = window.token_to_orig_map
  text = " ".join(example.doc_tokens[words[start] : words[end] + 1])
  pieces = " ".join(window.tokens[start : end + 1])
  wanted = " ".join(pieces.replace(" ##", "").replace("##", "").split())
  tokens = " ".join(tokenization.BasicTokenizer().tokenize(text))
  first = tokens.find(wanted)
  if first < 0:
    return text
  in_text = [i for i, char in enumerate(text) if char != " "]
  in_tokens = [i for i, char in enumerate(tokens) if char != " "]
  if len(in_text) != len(in_tokens):
    return text
  last = in_tokens.index(first + len(wanted) - 1)
  return text[in_text[in_tokens.index(first)] : in_text[last] + 1]
