"""bert/scripts/dry_run.py: predictions and remedies, by arithmetic."""

import pytest

from bert.scripts import dry_run


def make_plan(gigabytes, **changes):
  """A Plan whose rows take 100 MB each, and the rest 3 GB."""
  return dry_run.Estimate(
    **{
      "num_steps": 7200,
      "batch_size": 32,
      "num_devices": 1,
      "micro_batches": 1,
      "length": 128,
      "num_parameters": 100 * 10**6,
      "peaks": {4: 3400 * 10**6, 8: 3800 * 10**6},
      "limit": round(gigabytes * 10**9),
      **changes,
    }
  )


def test_memory_grows_with_the_rows_at_a_time():
  found = make_plan(9)
  assert found.predicted(1) == 6200 * 10**6
  # The sum of the gradients takes 400 MB.
  assert found.predicted(4) == 4200 * 10**6
  assert make_plan(9, num_devices=2).predicted(1) == 4600 * 10**6
  lines = found.lines()
  assert "each row       0.10 GB  (128 positions)" in lines
  assert "predicted peak 6.20 GB  (32 rows at a time)" in lines


@pytest.mark.parametrize(
  ("gigabytes", "changes", "end"),
  [
    (6.2, {}, "available      6.20 GB"),
    (
      6.1,
      {},
      "This batch does not fit. Pass --gradient_accumulation_steps=2 "
      "(5.00 GB) or --gradient_checkpointing.",
    ),
    (
      4.5,
      {"num_devices": 2},
      "This batch does not fit. Pass --gradient_accumulation_steps=2 "
      "(4.20 GB) or --gradient_checkpointing.",
    ),
    # One row would fit, but not beside the sum of the gradients.
    (3.3, {}, "This batch does not fit. Try --gradient_checkpointing, "),
    (3.1, {"peaks": {}}, "This batch does not fit. Try "),
  ],
)
def test_remedies_fit(gigabytes, changes, end):
  found = make_plan(gigabytes, **changes)
  assert found.lines()[-1].startswith(end)
  assert found.fits() == (gigabytes == 6.2)


def test_an_unknown_limit_is_no_limit():
  found = make_plan(0, limit=None)
  assert found.fits()
  lines = found.lines()
  assert lines[-1] == "available      unknown, so the batch may not fit"


def test_time_is_that_of_all_steps():
  lines = make_plan(9, seconds=(0.5, 9.0, 0.4), peak=5 * 10**9).lines()
  assert lines[-1].endswith("0.5 s a step, 1 h 00 min without evaluations")
  assert "measured peak  5.00 GB" in lines
