"""Curves are read back as they were written, whatever was killed."""

import os
import shutil
import tempfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
import tensorflow as tf

from bert.training import summaries


def _files(folder):
  return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


POINTS = st.lists(
  st.tuples(
    st.sampled_from(["loss", "learning rate", "dev/eval_accuracy"]),
    st.integers(0, 2**40),
    st.floats(width=32, allow_nan=False),
  ),
  max_size=12,
)


@hypothesis.settings(max_examples=10)
@hypothesis.given(parts=st.lists(POINTS, max_size=3))
def test_what_was_written_last_is_read(parts):
  expected = {}
  with tempfile.TemporaryDirectory() as folder:
    for points in parts:
      writer = summaries.Summaries(folder)
      for tag, step, value in points:
        writer.write(step, {tag: value})
        expected.setdefault(tag.replace(" ", "_"), {})[step] = value
    assert summaries.read_scalars(folder) == {
      tag: sorted(curve.items()) for tag, curve in expected.items()
    }


def test_files_of_other_programs(tmp_path):
  """Such as those of the original, and texts of a notebook."""
  value = tf.compat.v1.Summary.Value
  texts = tf.make_tensor_proto(["a", "b"])
  events = [
    tf.compat.v1.Event(step=step, summary=tf.compat.v1.Summary(value=[found]))
    for step, found in enumerate(
      [
        value(tag="loss", simple_value=0.5),
        value(tag="text", tensor=tf.make_tensor_proto("a")),
        value(tag="texts", tensor=texts),
        value(tag="loss", tensor=tf.make_tensor_proto(2)),
        value(tag="picture", image=tf.compat.v1.Summary.Image(height=1)),
      ]
    )
  ]
  with tf.io.TFRecordWriter(f"{tmp_path}/events.out.tfevents.1.host") as writer:
    for event in events:
      writer.write(event.SerializeToString())
  assert summaries.read_scalars(tmp_path) == {"loss": [(0, 0.5), (3, 2.0)]}


def test_numbers_of_any_type_are_on_disk_at_once(tmp_path):
  writer = summaries.Summaries(str(tmp_path))
  values = {"a": 1, "b": np.float64(0.5), "c": tf.constant(2.0).numpy()}
  writer.write(np.int64(3), values)
  assert summaries.read_scalars(tmp_path) == {
    "a": [(3, 1.0)],
    "b": [(3, 0.5)],
    "c": [(3, 2.0)],
  }
  writer.write(4, {"a": float("nan")})
  (_, (step, value)) = summaries.read_scalars(tmp_path)["a"]
  assert step == 4
  assert np.isnan(value)
  assert len(_files(tmp_path)) == 1


def test_a_remote_file_is_uploaded_now_and_then(tmp_path, monkeypatch):
  monkeypatch.setattr(summaries.files, "is_remote", lambda path: True)
  clock = [100.0]
  monkeypatch.setattr(summaries.time, "monotonic", lambda: clock[0])
  writer = summaries.Summaries(str(tmp_path))
  writer.flush()
  points = [(step, step / 2) for step in range(50)]
  for step, value in points:
    writer.write(step, {"loss": value})
  assert _files(tmp_path) == []
  writer.flush()
  assert summaries.read_scalars(tmp_path) == {"loss": points}
  # Two minutes after the last time, all that wait are written.
  for seconds, written in ((60, 50), (59, 50), (1, 53), (119, 53), (1, 55)):
    clock[0] += seconds
    points.append((len(points), 1.0))
    writer.write(len(points) - 1, {"loss": 1.0})
    assert summaries.read_scalars(tmp_path) == {"loss": points[:written]}


def test_a_record_that_was_cut_short_ends_its_file(tmp_path):
  writer = summaries.Summaries(str(tmp_path / "whole"))
  sizes = []
  for step in range(3):
    writer.write(step, {"loss": step})
    (name,) = _files(tmp_path / "whole")
    sizes.append((tmp_path / "whole" / name).stat().st_size)
  cut = tmp_path / "cut"
  for size in range(sizes[1], sizes[2], 7):
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(tmp_path / "whole", cut)
    os.truncate(cut / name, size)
    assert summaries.read_scalars(cut) == {"loss": [(0, 0.0), (1, 1.0)]}
  later = summaries.Summaries(str(cut))
  later.write(2, {"loss": 5})
  assert summaries.read_scalars(cut)["loss"] == [(0, 0.0), (1, 1.0), (2, 5.0)]


def test_tensorboard_reads_the_same(tmp_path):
  from tensorboard.backend.event_processing import event_accumulator

  writer = summaries.Summaries(str(tmp_path))
  writer.write(1, {"learning rate": 0.25, "dev/eval_accuracy": 0.5})
  writer.write(2, {"learning rate": 0.125})
  reader = event_accumulator.EventAccumulator(str(tmp_path))
  reader.Reload()
  curves = {
    tag: [
      (event.step, float(tf.make_ndarray(event.tensor_proto)))
      for event in reader.Tensors(tag)
    ]
    for tag in reader.Tags()["tensors"]
  }
  assert curves == summaries.read_scalars(tmp_path)
  plugin = reader.SummaryMetadata("learning_rate").plugin_data.plugin_name
  assert plugin == "scalars"


def test_compilation_and_evaluations_are_timed_apart(
  tmp_path, caplog, monkeypatch
):
  clock = [100.0]
  monkeypatch.setattr(summaries.time, "monotonic", lambda: clock[0])
  writer = summaries.Summaries(str(tmp_path))
  progress = summaries.Progress(0, 9, 8, writer)
  progress.log()  # There is nothing to say yet.
  assert progress.first_failure() is None

  def step(seconds):
    clock[0] += seconds
    progress.add({"loss": tf.constant([0.5])})
    progress.log()

  with caplog.at_level("INFO", logger="absl"):
    step(60)
    step(2)
    clock[0] += 1000  # An evaluation.
    progress.restart_clock()
    step(0.5)
  assert [record.getMessage() for record in caplog.records] == [
    "First step, with compilation: 60.0 seconds",
    "step 1/9: loss 0.5000",
    "step 2/9: loss 0.5000, 4.0 examples/s",
    "step 3/9: loss 0.5000, 16.0 examples/s",
  ]
  # A line has the mean of the losses, and the current learning rate.
  results = {"loss": [2.0, 6.0], "learning rate": [0.5, 1.5]}
  progress.add({name: tf.constant(x) for name, x in results.items()})
  clock[0] += 4
  progress.log()
  progress.close()
  assert summaries.read_scalars(tmp_path) == {
    "loss": [(1, 0.5), (2, 0.5), (3, 0.5), (5, 4.0)],
    "learning_rate": [(5, 1.5)],
    # That of a single first step is not known.
    "examples/s": [(2, 4.0), (3, 16.0), (5, 4.0)],
  }
