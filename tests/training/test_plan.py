"""bert/training/plan.py: predictions and remedies, by arithmetic."""

import dataclasses

import pytest

from bert.training import plan

# 0.8 * 125 MB for a row; the rest takes 400 + 800 + 1.5 * 400 + 1,320 MB.
MEMORY = plan.Memory(
  process=1170 * 10**6,
  weights=400 * 10**6,
  trained=400 * 10**6,
  row=125 * 10**6,
  rows=32,
)
FIXED = 3120 * 10**6


def make_plan(gigabytes, **changes):
  return plan.Plan(
    **{
      "num_steps": 7200,
      "batch_size": 32,
      "num_devices": 1,
      "micro_batches": 1,
      "length": 128,
      "memory": MEMORY,
      "checkpointed": dataclasses.replace(MEMORY, row=12.5 * 10**6),
      "limit": round(gigabytes * 10**9),
      **changes,
    }
  )


def test_memory_is_the_sum_of_its_parts():
  assert MEMORY.total == pytest.approx(FIXED + 32 * 100 * 10**6)
  accumulated = dataclasses.replace(MEMORY, rows=8, is_accumulated=True)
  assert accumulated.total == pytest.approx(FIXED + 1200 * 10**6)
  frozen = dataclasses.replace(MEMORY, trained=0)
  assert frozen.total == pytest.approx((400 + 3200 + 1320) * 10**6)


def test_largest_batch():
  assert MEMORY.largest_rows(FIXED + 10**9 + 1) == 10
  assert MEMORY.largest_rows(FIXED + 10**9 - 1) == 9
  assert MEMORY.largest_rows(10**9) == 0
  (line,) = [
    line
    for line in make_plan(4.13, num_devices=2).lines()
    if line.startswith("largest batch")
  ]
  assert line.split()[2:] == ["20", "rows"]


def test_what_fits_needs_no_remedy():
  assert make_plan(6.4).fits
  assert make_plan(6.4).remedies() == []


def test_an_unknown_limit_is_no_limit():
  found = make_plan(0, limit=None)
  assert found.fits
  lines = found.lines()
  assert lines[-1] == "available      unknown, so the batch may not fit"


def test_remedies_fit():
  # Sums of gradients take 400 MB; four rows are left, of 100 MB each.
  found = make_plan(3.94)
  assert not found.fits
  assert found.remedies() == [
    "--gradient_accumulation_steps=8 (3.92 GB)",
    "--gradient_checkpointing (3.44 GB)",
  ]
  # Half the rows on each of two devices.
  shared = dataclasses.replace(MEMORY, rows=16)
  halved = make_plan(3.94, num_devices=2, memory=shared)
  assert halved.remedies()[0] == "--gradient_accumulation_steps=4 (3.92 GB)"
  # 130 MB are left without sums, and none with them.
  assert make_plan(3.25).remedies() == []
  assert make_plan(3.25).lines()[-1].endswith("Pass a smaller model.")
  both = make_plan(
    3.6, checkpointed=dataclasses.replace(MEMORY, row=25 * 10**6)
  )
  assert both.remedies() == [
    "--gradient_checkpointing --gradient_accumulation_steps=8 (3.60 GB)"
  ]


def test_remedies_beside_given_flags():
  # Sums of the parts' gradients take 400 MB, more than the 300 MB of 3 rows.
  few = dataclasses.replace(MEMORY, rows=4)
  divided = dataclasses.replace(few, rows=2, is_accumulated=True)
  found = make_plan(
    3.52, batch_size=4, micro_batches=2, memory=divided, checkpointed=divided
  )
  assert divided.total == FIXED + 600 * 10**6 > found.limit
  assert found.remedies() == ["--gradient_accumulation_steps=1 (3.52 GB)"]


def test_time_is_that_of_all_steps():
  lines = make_plan(9, seconds=(0.5, 9.0, 0.4), peak=5 * 10**9).lines()
  assert lines[-1].endswith("0.5 s a step, 1 h 00 min without evaluations")
  assert "measured peak  5.00 GB" in lines
