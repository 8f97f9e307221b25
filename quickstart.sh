#!/usr/bin/env bash
# Trains a tiny model from scratch on sample_data, evaluates it and predicts.
#
# Needs no download but the packages of requirements.txt, which go into .venv.
# The variable PYTHON names the Python to use, of version 3.10 to 3.13.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

source ./setup_venv.sh
setup_venv requirements.txt

output_dir=quickstart_output
rm -rf "$output_dir"
"$venv_python" run_classifier.py \
  --task_name=CoLA \
  --do_train=true \
  --do_eval=true \
  --do_predict=true \
  --data_dir=sample_data \
  --vocab_file=sample_data/vocab.txt \
  --bert_config_file=sample_data/bert_config.json \
  --max_seq_length=32 \
  --train_batch_size=32 \
  --learning_rate=7e-4 \
  --num_train_epochs=80 \
  --log_steps=200 \
  --seed=1 \
  --output_dir="$output_dir"

cat <<END

On the 120 sentences of sample_data/dev.tsv:
$(cat "$output_dir/eval_results.txt")

$PWD/$output_dir holds
  bert_model.ckpt.*  the trained model, with bert_config.json and vocab.txt
  eval_results.txt   the numbers above; report.html shows them and more
  test_predictions.tsv
                     a line for each sentence of sample_data/test.tsv: 1 for
                     acceptable or 0, and the probability of each
Ask it about a sentence of yours, such as "The birds are quiet.":
  .venv/bin/python run_classifier.py --interactive --output_dir=$output_dir
Next: fine-tune a released BERT on data of your own; README.md shows how.
END
