"""What users of the original import from its scripts: as they know it."""

import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest
import scripts
import task_runs

import modeling
import optimization
import run_classifier
import run_pretraining
import run_squad
import tokenization
from bert.models import checkpoints
from bert.training import estimator

SCRIPTS = (
  *("run_classifier", "run_squad", "run_pretraining"),
  *("create_pretraining_data", "extract_features"),
)

# The original's arguments, by script and function.
ARGUMENTS = {
  "run_classifier": """
    InputExample guid text_a text_b=None label=None
    InputFeatures input_ids input_mask segment_ids label_id is_real_example=True
    convert_single_example ex_index example label_list max_seq_length tokenizer
    convert_examples_to_features examples label_list max_seq_length tokenizer
    file_based_convert_examples_to_features examples label_list max_seq_length \
      tokenizer output_file
    file_based_input_fn_builder input_file seq_length is_training drop_remainder
    input_fn_builder features seq_length is_training drop_remainder
    create_model bert_config is_training input_ids input_mask segment_ids \
      labels num_labels use_one_hot_embeddings
    model_fn_builder bert_config num_labels init_checkpoint learning_rate \
      num_train_steps num_warmup_steps use_tpu use_one_hot_embeddings""",
  "run_squad": """
    SquadExample qas_id question_text doc_tokens orig_answer_text=None \
      start_position=None end_position=None is_impossible=False
    InputFeatures unique_id example_index doc_span_index tokens \
      token_to_orig_map token_is_max_context input_ids input_mask segment_ids \
      start_position=None end_position=None is_impossible=None
    RawResult unique_id start_logits end_logits
    read_squad_examples input_file is_training
    convert_examples_to_features examples tokenizer max_seq_length doc_stride \
      max_query_length is_training output_fn
    get_final_text pred_text orig_text do_lower_case
    input_fn_builder input_file seq_length is_training drop_remainder
    create_model bert_config is_training input_ids input_mask segment_ids \
      use_one_hot_embeddings
    model_fn_builder bert_config init_checkpoint learning_rate \
      num_train_steps num_warmup_steps use_tpu use_one_hot_embeddings""",
  "run_pretraining": """
    gather_indexes sequence_tensor positions
    get_masked_lm_output bert_config input_tensor output_weights positions \
      label_ids label_weights
    get_next_sentence_output bert_config input_tensor labels
    input_fn_builder input_files max_seq_length max_predictions_per_seq \
      is_training num_cpu_threads=4
    model_fn_builder bert_config init_checkpoint learning_rate \
      num_train_steps num_warmup_steps use_tpu use_one_hot_embeddings""",
  "create_pretraining_data": """
    TrainingInstance tokens segment_ids masked_lm_positions masked_lm_labels \
      is_random_next
    create_training_instances input_files tokenizer max_seq_length dupe_factor \
      short_seq_prob masked_lm_prob max_predictions_per_seq rng
    create_instances_from_document all_documents document_index \
      max_seq_length short_seq_prob masked_lm_prob max_predictions_per_seq \
      vocab_words rng
    create_masked_lm_predictions tokens masked_lm_prob \
      max_predictions_per_seq vocab_words rng
    truncate_seq_pair tokens_a tokens_b max_num_tokens rng
    write_instance_to_example_files instances tokenizer max_seq_length \
      max_predictions_per_seq output_files""",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_names_and_arguments_are_the_originals(script):
  module = importlib.import_module(script)
  assert module.modeling is modeling
  assert module.optimization is optimization
  assert module.tokenization is tokenization
  for line in ARGUMENTS.get(script, "").strip().splitlines():
    name, *wanted = line.split()
    found = [*inspect.signature(getattr(module, name)).parameters.values()]
    assert len(found) >= len(wanted), line
    for parameter, argument in zip(found, wanted, strict=False):
      name, _, default = argument.partition("=")
      assert parameter.name == name, line
      assert repr(parameter.default) == default or not default, line
    others = found[len(wanted) :]
    assert all(p.default is not p.empty for p in others), line


def test_scripts_are_imported_without_flags_and_tensorflow():
  program = (
    f"import sys; sys.path.insert(0, {str(scripts.ROOT)!r})\n"
    f"import {', '.join(SCRIPTS)}\n"
    "from absl import flags\n"
    "print('tensorflow.python' in sys.modules, 'task_name' in flags.FLAGS)"
  )
  command = [sys.executable, "-c", program]
  found = subprocess.run(command, capture_output=True, text=True, check=True)
  assert found.stdout.split() == ["False", "False"]


def _classifier(folder, config, start, steps):
  return (
    run_classifier.model_fn_builder(
      config, 2, start, 1e-3, steps, 1, False, False
    ),
    run_classifier.file_based_input_fn_builder(
      f"{folder}/train.tf_record", 48, True, True
    ),
  )


def _squad(folder, config, start, steps):
  return (
    run_squad.model_fn_builder(config, start, 1e-3, steps, 1, False, False),
    run_squad.input_fn_builder([f"{folder}/train.tf_record"], 96, True, True),
  )


def _pretraining(folder, config, start, steps):
  return (
    run_pretraining.model_fn_builder(
      config, start, 1e-3, steps, 1, False, False
    ),
    run_pretraining.input_fn_builder(
      [f"{folder.parent}/default.tfrecord"], 64, 10, True
    ),
  )


@pytest.mark.parametrize(
  ("kind", "build"),
  [
    ("classification", _classifier),
    ("squad", _squad),
    ("fill_mask", _pretraining),
  ],
)
def test_a_training_by_the_functions_is_that_of_the_script(
  kind, build, tmp_path, goldens
):
  """The same loss, batches and updates leave the same weights."""
  (tmp_path / "files").mkdir()
  files = task_runs.make_files(tmp_path / "files", goldens)
  out = files / "out"
  module = {
    "classification": run_classifier,
    "squad": run_squad,
    "fill_mask": run_pretraining,
  }[kind]
  values = {
    "init_checkpoint": files / "model",
    "learning_rate": 1e-3,
    "max_seq_length": 48,
    **task_runs.RUNS[kind].write(files),
    "freeze_layers": None,
    "train_batch_size": 4,
    "output_dir": out,
  }
  if kind != "fill_mask":
    epochs = {"classification": 0.5, "squad": 1.5}[kind]
    values |= {"num_train_epochs": epochs, "warmup_proportion": 0.34}
  values = {name: v for name, v in values.items() if v is not None}
  module.run(do_train=True, **values)
  wanted = checkpoints.Checkpoint(checkpoints.latest_valid(str(out)).prefix)
  steps = int(wanted["global_step"])
  assert 2 < steps < 6
  config = modeling.BertConfig.from_json_file(
    str(files / "model/bert_config.json")
  )
  start = str(files / "model/bert_model.ckpt")
  model_fn, input_fn = build(out, config, start, steps)
  again = str(tmp_path / "again")
  model = estimator.Estimator(model_fn, estimator.RunConfig(again))
  model.train(input_fn, 4, steps)
  found = checkpoints.Checkpoint(checkpoints.latest_valid(again).prefix)
  assert found.shapes == wanted.shapes
  for name in wanted.shapes:
    np.testing.assert_array_equal(found[name], wanted[name], name)
