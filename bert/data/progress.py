"""Progress bars."""

from collections.abc import Iterable


def bar(iterable: Iterable | None = None, **kwargs):
  """A `tqdm` bar for work of more than two seconds, if stderr is a terminal."""
  import tqdm

  return tqdm.tqdm(iterable, disable=None, delay=2, leave=False, **kwargs)
