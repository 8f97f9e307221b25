"""Classifiers in Hugging Face's format: the output layer does all scaling."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert.models import huggingface_config

if TYPE_CHECKING:
  from bert.tasks.classification.task import ClassifierSettings

# Our kinds of labels -> Hugging Face's names.
PROBLEM_TYPES = {
  "classification": "single_label_classification",
  "multilabel": "multi_label_classification",
  "regression": "regression",
}

# Minimum number of float32 steps per deviation.
_LEAST_STEPS = 10_000


def config_fields(settings: ClassifierSettings) -> dict:
  """The fields of config.json that describe the labels."""
  labels = huggingface_config.label_fields(settings.labels or ["LABEL_0"])
  return {**labels, "problem_type": PROBLEM_TYPES[settings.kind]}


def fold(
  settings: ClassifierSettings, weights: dict[str, np.ndarray]
) -> ClassifierSettings:
  """Moves temperatures, and the scale of numbers, into the output layer.

  Changes the weights in place, and returns the remaining settings.
  """
  if settings.temperatures:
    factors = np.float32(1) / np.float32(settings.temperatures)
    weights["output_bias"] = weights["output_bias"] * factors
    factors = factors[:, np.newaxis]
    weights["output_weights"] = weights["output_weights"] * factors
  if settings.kind == "regression":
    _warn_of_lost_digits(settings)
    scale = np.float32(settings.deviation)
    weights["output_weights"] = weights["output_weights"] * scale
    bias = weights["output_bias"] * scale + np.float32(settings.mean)
    weights["output_bias"] = bias
  return dataclasses.replace(settings, mean=0.0, deviation=1.0, temperatures=())


def _warn_of_lost_digits(settings):
  """Warns if float32 holds few digits of numbers beside their mean."""
  step = np.spacing(np.float32(abs(settings.mean))).item()
  if step * _LEAST_STEPS > settings.deviation:
    logging.warning(
      "The numbers of the training set are %.3g with a deviation of %.3g. In "
      "Hugging Face's format they are float32, in steps of %.2g; the model in "
      "its own format, which adds the mean last, is more exact",
      settings.mean,
      settings.deviation,
      step,
    )
