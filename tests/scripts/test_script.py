"""What a script takes from the model that a training starts from."""

import json

import pytest
import task_folders

import run_classifier
import run_squad
from bert.commands import run_embeddings, run_ner
from bert.flags.values import parse
from bert.scripts import script
from bert.tasks.classification.task import ClassificationTask
from bert.tasks.squad.task import SquadTask
from bert.tasks.tagging.task import TaggingTask

OF_SQUAD = ("doc_stride", "max_query_length")


@pytest.fixture(scope="module")
def folders(tmp_path_factory, golden, goldens):
  return {
    name: task_folders.write(
      tmp_path_factory.mktemp(name or "none"), name, golden, goldens
    )
    for name in ("", "classification", "tagging", "squad")
  }


@pytest.mark.parametrize(
  ("main", "task", "given", "wanted"),
  [
    (run_ner, TaggingTask, {"init_checkpoint": "tagging"}, {32}),
    (run_ner, TaggingTask, {"init_checkpoint": "squad"}, {128}),
    (run_ner, TaggingTask, {"init_checkpoint": ""}, {128}),
    (run_ner, TaggingTask, {"init_checkpoint": "", "teacher": "tagging"}, {32}),
    (run_classifier, ClassificationTask, {"teacher": "classification"}, {32}),
    (run_squad, SquadTask, {"init_checkpoint": "squad"}, {32, 8}),
    (run_squad, SquadTask, {"init_checkpoint": "tagging"}, {384, 128, 64}),
  ],
)
def test_the_length_of_a_trained_model(folders, main, task, given, wanted):
  names = OF_SQUAD if task is SquadTask else ()
  paths = {flag: folders[name] for flag, name in given.items()}
  flags = parse(main.FLAGS, {"do_train": True, **paths})
  found = script.with_initial_defaults(flags, task, *names)
  assert {found[name] for name in ("max_seq_length", *names)} == wanted
  for changes in ({"max_seq_length": 48}, {"do_train": False}):
    flags = parse(main.FLAGS, {"do_train": True, **paths, **changes})
    found = script.with_initial_defaults(flags, task, *names)
    assert found.values == flags.values


@pytest.mark.parametrize(
  ("main", "given", "wanted"),
  [
    (run_classifier, {}, "cp1252"),
    (run_classifier, {"max_seq_length": 48}, "cp1252"),
    (run_classifier, {"encoding": "utf-8"}, "utf-8"),
    (run_embeddings, {}, "cp1252"),
    (run_ner, {}, None),  # It has no such flag.
  ],
)
def test_the_encoding_of_its_tables(tmp_path, main, given, wanted):
  record = {"flags": {"encoding": "cp1252"}}
  (tmp_path / "flags.json").write_text(json.dumps(record))
  given = {"init_checkpoint": str(tmp_path), **given}
  flags = parse(main.FLAGS, {"do_train": True, **given})
  found = script.with_initial_defaults(flags, ClassificationTask)
  assert found.get("encoding") == wanted
