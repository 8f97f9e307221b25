"""A trained tagger: finds entities in plain text.

tagger = Tagger("/tmp/ner_output")
tagger("Jim Henson was born in Greenville.")[0].type
"""

from collections.abc import Iterable

from bert import layers
from bert.errors import UserError
from bert.data import downloads, records
from bert.tasks import entities, tagged_rows, tagging, text_words
from bert.tasks.entities import FoundEntity
from bert.tasks.tagged_text import Sentence
from bert.training import checkpoints, model_folder
from bert.training.predictor import Predictor


class Tagger:
  """A trained tagger, loaded once.

  Args:
    model_dir: the `output_dir` of a finished training.
    batch_size: rows per batch.
    precision, runtime: see `predictor.Predictor`.

  Attributes:
    labels: the labels of words.
    scheme: how they mark entities, see `entities.find_scheme`, or None.
    tokenizer, reading: how it reads text; a FullTokenizer and a Reading.
    predictor: computes the labels.

  Raises:
    UserError: the folder does not hold a trained tagger.
  """

  def __init__(
    self,
    model_dir: str,
    batch_size: int = 32,
    precision: str | None = None,
    runtime: str = "tensorflow",
  ):
    model_dir = downloads.local_path(model_dir)
    self.labels, self.scheme, self.reading = tagging.read_assets(model_dir)
    model = model_folder.find_model(model_dir)
    self.tokenizer = model.tokenizer

    def compute(bert, features):
      logits = tagging.compute_logits(bert, len(self.labels), False)
      predicted = tagging.word_predictions(logits)
      return {**predicted, "marks": features["label_ids"]}

    names = ("labels", "probabilities", "marks")
    self.predictor = Predictor(
      model,
      compute,
      layers.output_shapes(model.config.hidden_size, len(self.labels)),
      optional=checkpoints.POOLER,
      spec=tagged_rows.feature_spec(self.reading.max_seq_length),
      output_axes=dict.fromkeys(names, (records.POSITION,)),
      batch_size=batch_size,
      precision=precision,
      runtime=runtime,
    )

  def __call__(self, text: str) -> list[FoundEntity]:
    """The entities in a text, in order; without a scheme, each labeled word.

    Raises:
      UserError: `text` is not a str.
    """
    return self.tag([text])[0]

  def tag(self, texts: Iterable[str]) -> list[list[FoundEntity]]:
    """The entities in each of several texts, computed in batches.

    Raises:
      UserError: `texts` is a str instead of a list, or an element is not a str.
    """
    if isinstance(texts, str):
      raise UserError("pass a list of texts, not a single text")
    texts = list(texts)
    for number, text in enumerate(texts, 1):
      if not isinstance(text, str):
        raise UserError(f"text {number} is {text!r}; pass texts as str")
    spans = list(map(text_words.split_text, texts))
    sentences = [
      Sentence("", [t[a:b] for a, b in s], None, [], number)
      for number, (t, s) in enumerate(zip(texts, spans, strict=True))
    ]
    groups = list(
      tagged_rows.make_rows(sentences, {}, self.tokenizer, self.reading)
    )
    outputs = self.predictor([row for group in groups for row in group])
    words = tagged_rows.by_sentence(outputs, map(len, groups))
    return [
      entities.found_entities(
        text,
        span,
        [self.labels[index] for index in found["labels"]],
        found["probabilities"],
        self.scheme,
      )
      for text, span, found in zip(texts, spans, words, strict=True)
    ]
