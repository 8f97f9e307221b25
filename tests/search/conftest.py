"""What the tests of search share."""

import pytest
import task_folders

from bert.engine import loaded_model


@pytest.fixture(scope="module")
def model(tmp_path_factory, golden, goldens):
  """A release, which gives vectors."""
  folder = tmp_path_factory.mktemp("release")
  return loaded_model.load(task_folders.write(folder, "", golden, goldens))
