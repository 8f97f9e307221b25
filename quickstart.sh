#!/usr/bin/env bash
# Runs every stage of BERT on a small scale, from plain text to a classifier.
#
# Learns a vocabulary from sample_text.txt, creates pre-training data, trains a
# tiny model on it, and fine-tunes this model on sample_data. Downloads nothing
# but the packages of requirements.txt, which it installs into .venv. Set PYTHON
# to use a certain Python of version 3.10 to 3.13.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

source ./setup_venv.sh
setup_venv requirements.txt

output_dir=quickstart_output
model="$output_dir/model"
log="$output_dir/log.txt"
rm -rf "$output_dir"
mkdir -p "$model"
cp sample_data/bert_config.json "$model"

# Runs a command with one line on the terminal; its output goes to the log.
stage() {
  local title="$1" seconds=$SECONDS
  shift
  printf '%s ... ' "$title"
  if ! "$@" >>"$log" 2>&1; then
    echo "failed. The last lines of $PWD/$log:"
    tail -n 20 "$log"
    exit 1
  fi
  echo "$((SECONDS - seconds)) s"
}

stage "1. Learn a vocabulary from sample_text.txt" \
  "$venv_python" build_vocab.py \
  --input_file=sample_text.txt \
  --output_file="$model/vocab.txt" \
  --vocab_size=1000 \
  --num_unused=10 \
  --update_config="$model/bert_config.json"

stage "2. Create pre-training data: each sentence with 20 different masks" \
  "$venv_python" create_pretraining_data.py \
  --input_file=sample_text.txt \
  --output_file="$output_dir/text.tfrecord" \
  --vocab_file="$model/vocab.txt" \
  --next_sentence_prediction=false \
  --max_seq_length=32 \
  --max_predictions_per_seq=10 \
  --dupe_factor=20

stage "3. Pre-train: learn to predict masked words" \
  "$venv_python" run_pretraining.py \
  --input_file="$output_dir/text.tfrecord" \
  --do_train=true \
  --bert_config_file="$model/bert_config.json" \
  --vocab_file="$model/vocab.txt" \
  --max_seq_length=32 \
  --max_predictions_per_seq=10 \
  --train_batch_size=64 \
  --learning_rate=1e-3 \
  --num_train_steps=1000 \
  --num_warmup_steps=100 \
  --log_steps=50 \
  --output_dir="$output_dir/pretraining"

fill() {
  "$venv_python" fill_mask.py \
    --model_dir="$output_dir/pretraining" \
    --input_file="$output_dir/masked.txt" >"$output_dir/filled.txt"
}
echo "The cat sleeps under the [MASK]." >"$output_dir/masked.txt"
stage "4. Predict the word in place of [MASK]: The cat sleeps under the [MASK]." fill
cat "$output_dir/filled.txt"

stage "5. Fine-tune: is a sentence acceptable English?" \
  "$venv_python" run_classifier.py \
  --task_name=CoLA \
  --do_train=true \
  --do_eval=true \
  --do_predict=true \
  --data_dir=sample_data \
  --vocab_file="$output_dir/pretraining/vocab.txt" \
  --bert_config_file="$output_dir/pretraining/bert_config.json" \
  --init_checkpoint="$output_dir/pretraining" \
  --max_seq_length=32 \
  --train_batch_size=32 \
  --learning_rate=4e-4 \
  --num_train_epochs=40 \
  --log_steps=200 \
  --seed=1 \
  --output_dir="$output_dir/classifier"

cat <<END

Results on the 120 sentences of sample_data/dev.tsv:
$(cat "$output_dir/classifier/eval_results.txt")

$PWD/$output_dir contains
  model/             the vocabulary and the configuration of the model
  text.tfrecord      the pre-training data
  pretraining/       the pre-trained model: bert_model.ckpt.*, bert_config.json
                     and vocab.txt, in the format of a released model
  classifier/        the fine-tuned model, in the same format
    eval_results.txt   the results above; open report.html for more
    test_predictions.tsv
                       predictions for sample_data/test.tsv: the label (1 is
                       acceptable) and the probability of each label
  log.txt            the output of all commands
Ask the model about a sentence of your own, such as "The birds are quiet.":
  .venv/bin/python run_classifier.py --interactive \\
    --output_dir=$output_dir/classifier
Next, fine-tune a released BERT on your own data; see README.md.
To serve the model without TensorFlow, see docs/serving.md:
  .venv/bin/pip install -r requirements-export.txt -r requirements-serve.txt
  .venv/bin/python export_model.py --format=onnx \\
    --model_dir=$output_dir/classifier --output_dir=$output_dir/onnx
  .venv/bin/python serve.py --model_dir=$output_dir/onnx
END
