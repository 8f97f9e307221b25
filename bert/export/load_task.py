"""The TaskGraph of any trained model's folder."""

from bert.export.chooser_graph import ChooserGraph
from bert.export.squad_graph import ReaderGraph
from bert.export.tagger_graph import TaggerGraph
from bert.export.task_graph import ClassifierGraph, TaskGraph, VectorGraph
from bert.export.text_graph import GraphTokenizer
from bert.tasks.chooser import Chooser
from bert.tasks.classifier import Classifier
from bert.tasks.features import FeatureExtractor
from bert.tasks.find_task import find_task
from bert.tasks.squad_reader import Reader
from bert.tasks.tagger import Tagger


def load_task(
  model_dir: str,
  tokenizer: GraphTokenizer | None,
  pooling: str = "mean",
  normalize: bool = False,
  max_seq_length: int = 128,
) -> TaskGraph:
  """The model of the task that a folder was trained on, or of vectors.

  Args:
    model_dir: the folder.
    tokenizer: its GraphTokenizer; None if no text is read.
    pooling, normalize, max_seq_length: see `FeatureExtractor`; of a model
      without a task.

  Raises:
    UserError: the folder holds no model.
  """
  task = find_task(model_dir)
  if task == "multiple choice":
    return ChooserGraph(Chooser(model_dir), tokenizer)
  if task == "squad":
    return ReaderGraph(Reader(model_dir), tokenizer)
  if task == "tagging":
    return TaggerGraph(Tagger(model_dir), tokenizer)
  if task == "classification":
    return ClassifierGraph(Classifier(model_dir), tokenizer)
  layers = None if pooling == "pooled" else (-1,)
  extractor = FeatureExtractor(
    model_dir,
    layers,
    pooling,
    normalize=normalize,
    max_seq_length=max_seq_length,
  )
  return VectorGraph(extractor, tokenizer)
