"""SQuAD's windows, implemented plainly: slow, easy to check."""

from bert.data import sequences
from bert.tasks.squad import data as squad


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
