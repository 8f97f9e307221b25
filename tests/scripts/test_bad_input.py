"""run_classifier.py: what is wrong with flags and files is one line.

What holds for every script alike is tested here only.
"""

import json
import shutil

import mistakes
import pytest
import scripts
import tiny_task

# Good flags for a table of one's own, and for what needs a trained model.
CUSTOM = "--task_name=custom --data_dir= --train_file=FILES/good.tsv"
USE = "--do_train= --output_dir=FILES/trained"

FLAGS = """
--learning_rat=1
  learning_rat ... learning_rate
--seed=one
  --seed=one ... int
--precision=float8
  --precision=float8 ... <float32|bfloat16|float16|int8>
--do_train= --do_eval --dry_run
  --dry_run ... --do_train
--use_tpu --tpu_name=my-tpu
  --tpu_name=my-tpu ... machine of the TPU ... --tpu_name=local
--use_tpu --master=grpc://10.0.0.2:8470
  --master=grpc://10.0.0.2:8470 ... machine of the TPU with --master=local
--distribution_strategy=multi_worker
  --distribution_strategy=multi_worker ... TF_CONFIG ... set it
--distribution_strategy=tpu
  has no TPU ( ... ); omit --use_tpu and --distribution_strategy=tpu
--output_dir=~/out
  --output_dir=~/out ... --output_dir=$HOME/out, or --output_dir ~/out
CUSTOM --train_file=/dev/null --num_seeds=2
  --train_file=/dev/null ... cannot be read twice; save its content
--gradient_accumulation_steps=3
  --train_batch_size=8 ... --gradient_accumulation_steps=3 ... multiple of 3
--train_batch_size=99
  --num_train_epochs=2.0 ... --train_batch_size=99; pass --train_batch_size=40
--freeze_layers=2
  --freeze_layers=2 ... 1 layers ... lower
--max_seq_length=129
  --max_seq_length=129 ... 128 positions ... bert_config.json ... lower
--do_train=
  nothing to do ... pass --do_train
--task_name=MRPCC
  --task_name=MRPCC ... cola ... custom ... xnli ... did you mean 'mrpc'?
--task_name=MRPC,RTEE
  --task_name=RTEE ... did you mean 'rte'?
--task_name=
  --task_name
--data_dir=
  --data_dir
--task_name=XNLI --xnli_language=nl
  --xnli_language=nl ... <ar|bg|de| ... zh
--train_file=rows.tsv
  --train_file ... --task_name=custom ... omit it
CUSTOM --regression --multilabel
  --regression and --multilabel cannot both be given ... omit one
--keep_best=bleu
  --keep_best=bleu ... accuracy, f1, loss
CUSTOM --label_column=number --regression --class_weights=balanced
  --class_weights=balanced ... labels
CUSTOM --label_column=number --regression --few_shot
  --few_shot and --regression cannot both be given ... omit one
CUSTOM --few_shot --init_checkpoint=
  --init_checkpoint ... a model of vectors, such as hf://
CUSTOM --few_shot --init_checkpoint=FILES/trained
  --init_checkpoint=FILES/trained ... (classification) ... a model of vectors
CUSTOM --label_column=number --regression --calibrate --do_eval
  custom has no labels
"""

MODELS = """
--do_train= --do_predict --init_checkpoint=FILES/trained --do_lower_case=False
  False contradicts FILES/trained/bert_config.json ... True; pass that
--do_train= --do_predict --init_checkpoint=FILES/trained --vocab_file=OTHER
  with another vocabulary ... pass --vocab_file=FILES/trained/vocab.txt
--do_train= --do_eval --vocab_file= --bert_config_file= --init_checkpoint=
  no trained model in --output_dir= ... add --do_train, or pass
--output_dir=FILES/trained --max_seq_length=47 --dry_run
  --max_seq_length=47: the training in FILES/trained began with 48
--vocab_file=FILES/model/bert_config.json
  bert_config.json has no WordPiece vocabulary
--bert_config_file=FILES/few_words.json
  vocab.txt has 1001 entries ... vocab_size=99 ... few_words.json ... pass
--bert_config_file=nowhere
  --bert_config_file=nowhere ... pass the path
--bert_config_file=FILES/cut.json
  FILES/cut.json is not a valid ... line 2 ... pass the bert_config.json
--bert_config_file=FILES/heads.json
  hidden_size=32 ... num_attention_heads=5 ... heads.json
--bert_config_file=FILES/cased.json --do_lower_case
  --do_lower_case=True contradicts ... cased.json ... pass
--init_checkpoint=FILES/cased_L-12_H-768_A-12/bert_model.ckpt --do_lower_case
  --do_lower_case=True ... cased_L-12_H-768_A-12 ... --do_lower_case=False
--init_checkpoint=FILES/modle --vocab_file=
  no checkpoint FILES/modle: there is no file FILES/modle.index, and no folder
--init_checkpoint=uncased_L-12_H-768_A-1
  no checkpoint uncased_L-12_H-768_A-1 ... mean 'uncased_L-12_H-768_A-12'?
--init_checkpoint=FILES/empty
  FILES/empty/bert_model.ckpt ... pass the
--init_checkpoint=FILES/cut.ckpt
  FILES/cut.ckpt is damaged or incomplete ... copy or download
--bert_config_file=FILES/wide.json
  FILES/model/bert_model.ckpt ... word_embeddings ... [1001, 32] ... [1001, 64]
--bert_config_file=FILES/deep.json
  lacks bert/encoder/layer_2/attention/self/query/kernel ... 15 more
--spm_model_file=FILES/model/vocab.txt
  vocab.txt is not a SentencePiece model
"""

OUTPUTS = """
--output_dir=
  --output_dir
--output_dir=FILES/model/vocab.txt
  --output_dir=FILES/model/vocab.txt ... not a writable folder ... pass
--output_dir=FILES/trained --bert_config_file=FILES/wide.json --init_checkpoint=
  holds another model (classification:  ... [1001, 32] ... [1001, 64] ... pass
CUSTOM --output_dir=FILES/trained
  has the labels 0, 1 (classification) ... --task_name=custom ... bad, good
CUSTOM --label_column=number --regression --output_dir=FILES/trained
  has the labels 0, 1 ... but --task_name=custom has numbers (regression)
--task_name=RTE --do_train= --do_eval --init_checkpoint=FILES/trained
  has the labels 0, 1 (classification) ... --task_name=RTE has the labels ent
--do_eval --compare_to=FILES/model
  FILES/model does not hold a trained model (classification) ... pass the
--do_eval --compare_to=FILES/nowhere
  FILES/nowhere does not exist ... pass the --output_dir
--output_dir=FILES/model
  --output_dir=FILES/model holds a model ... overwrite ... pass another
--output_dir=FILES/damaged_best --keep_best=loss
  FILES/damaged_best/best.json is damaged ... make it anew
--output_dir=FILES/damaged_flags
  FILES/damaged_flags/flags.json is damaged ... copy it again
--predict_file=FILES/good.tsv --do_train=
  FILES/out does not exist ... pass the --output_dir
--interactive --output_dir=FILES/empty --do_train=
  FILES/empty does not hold a trained model ... pass the
--predict_file=-
  --predict_file and --do_train cannot both be given ... omit one
USE --predict_file=- --interactive
  --predict_file and --interactive cannot both be given ... omit one
USE --predict_file=FILES/header.csv
  header.csv would be read as lines of text ... --test_file
USE --predict_file=nowhere
  --predict_file=nowhere ... pass the path
USE --predict_file=FILES/one_text.txt
  FILES/one_text.txt:1 ... two texts
"""

DATA = """
--data_dir=nowhere
  --data_dir=nowhere: no such folder; check the path
--data_dir=FILES/bad_label
  FILES/bad_label/train.tsv:42 ... '7' ... '0', '1'
--data_dir=FILES/no_rows
  FILES/no_rows/train.tsv ... no examples
--task_name=MRPC,RTE --data_dir=FILES/two_tasks
  FILES/two_tasks/RTE/train.tsv:3 ... 'maybe' ... entailment
--task_name=MNLI,AX --data_dir=FILES/two_tasks --do_predict
  FILES/two_tasks/AX ... diagnostic.tsv ... pass
--task_name=AX --data_dir=FILES/two_tasks/MNLI
  --task_name=AX ... MNLI ... pass --do_predict
CUSTOM --train_file=
  --train_file is required
CUSTOM --do_predict
  --test_file is required; pass the file
CUSTOM --train_file=FILES/nowhere.csv
  FILES/nowhere.csv: no such file ... check the path
CUSTOM --label_column=lable
  --label_column=lable ... 'text', 'label' ... did you mean 'label'?
CUSTOM --encoding=cp125
  --encoding=cp125 must be an encoding of text in Python, such as cp1252
CUSTOM --dev_file=FILES/bad_label.tsv --do_eval
  bad_label.tsv:3: label 'god' ... 'bad', 'good' ... did you mean 'good'?
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory, goldens):
  """What the tables name."""
  folder = tmp_path_factory.mktemp("files")
  tiny_task.make_files(folder, goldens)
  (folder / "empty").mkdir()
  _make_model_files(folder)
  _make_checkpoints(folder)
  _make_data(folder)
  _make_trained(folder)
  return folder


def _make_model_files(folder):
  words = (folder / "model" / "vocab.txt").read_text("utf-8").splitlines()
  words[500:502] = words[501], words[500]
  tiny_task.write_lines(folder / "other_words.txt", words)
  fields = json.loads((folder / "model" / "bert_config.json").read_text())
  for name, changes in {
    "few_words": {"vocab_size": 99},
    "heads": {"num_attention_heads": 5},
    "cased": {"do_lower_case": False},
    "wide": {"hidden_size": 64},
    "deep": {"num_hidden_layers": 3},
  }.items():
    (folder / f"{name}.json").write_text(json.dumps({**fields, **changes}))
  (folder / "cut.json").write_text('{\n"vocab_size": 1001,')


def _make_checkpoints(folder):
  (folder / "cased_L-12_H-768_A-12").mkdir()
  for path in (folder / "model").glob("bert_model.ckpt.*"):
    shutil.copy(path, folder / "cased_L-12_H-768_A-12")
    content = path.read_bytes()
    if "data" in path.name:
      content = content[: len(content) // 2]
    (folder / path.name.replace("bert_model", "cut")).write_bytes(content)


def _make_data(folder):
  shutil.copytree(folder / "data", folder / "bad_label")
  with open(folder / "bad_label" / "train.tsv", "a") as writer:
    writer.write("7\t1\t2\ta\tb\n")
  header = b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
  (folder / "no_rows").mkdir()
  (folder / "no_rows" / "train.tsv").write_bytes(header)
  two = folder / "two_tasks"
  shutil.copytree(folder / "data", two / "MRPC")
  for name in ("RTE", "MNLI", "AX"):
    (two / name).mkdir()
  rows = ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment"]
  tiny_task.write_lines(two / "RTE" / "train.tsv", [*rows, "1\ta\tb\tmaybe"])
  row = "\t".join([*"01234567", "He ate .", "He slept .", "neutral"])
  for name in ("train", "test_matched", "test_mismatched"):
    tiny_task.write_lines(two / "MNLI" / f"{name}.tsv", [row] * 30)
  rows = [f"he {i}\t{x}\t{i}" for i in range(20) for x in ("good", "bad")]
  for name, lines in {
    "good.tsv": ["text\tlabel\tnumber", *rows],
    "bad_label.tsv": ["text\tlabel", "a\tgood", "b\tgod"],
    "header.csv": ["text,label"],
    "one_text.txt": ["a b"],
  }.items():
    tiny_task.write_lines(folder / name, lines)


def _make_trained(folder):
  """Trains, and makes damaged copies."""
  command = tiny_task.flags(folder, folder / "trained", num_train_epochs=0.25)
  scripts.fork("run_classifier.py", *command, "--do_train")
  for name in ("flags", "best"):
    copy = shutil.copytree(folder / "trained", folder / f"damaged_{name}")
    (copy / f"{name}.json").write_text("{")


@mistakes.each_of(FLAGS, MODELS, OUTPUTS, DATA)
def test_a_mistake_is_one_line(files, mistake):
  mistakes.check(
    mistake,
    "run_classifier.py",
    files,
    [*tiny_task.flags(files, files / "out"), "--do_train"],
    CUSTOM=CUSTOM,
    USE=USE,
    OTHER=files / "other_words.txt",
    FILES=files,
  )


# Commands that end with an error after the flags are checked: script, flags,
# and the warnings.
UNUSED = [
  (
    "run_classifier.py --do_eval --output_dir=nowhere --task_name=custom "
    "--dev_file=nowhere.csv --train_file=a.csv --test_file=b.csv "
    "--dev_fraction=0.5 --xnli_language=de --class_weights=balanced "
    "--keep_best=loss --early_stopping_patience=2 --eval_steps=3 --tpu_name=t",
    [
      "--eval_steps=3, --keep_best=loss, --early_stopping_patience=2, "
      "--class_weights=balanced are not used; add --do_train",
      "--tpu_name=t is not used; omit it, or add --use_tpu",
      "--xnli_language=de is not used; pass --task_name=XNLI",
      "--test_file=b.csv is not used; add --do_predict",
      "--dev_fraction=0.5 is not used; omit --dev_file",
    ],
  ),
  (
    "run_classifier.py --do_train --output_dir=nowhere --data_dir=nowhere "
    "--task_name=XNLI --xnli_language=de --class_weights=balanced "
    "--keep_best=loss --eval_steps=3 --vocab_file=nowhere",
    [],
  ),
  (
    "run_classifier.py --predict_file=- --output_dir=nowhere --task_name=MRPC "
    "--data_dir=d --train_file=a.csv --text_b_column=other --regression",
    [
      "--task_name=MRPC, --data_dir=d, --train_file=a.csv, "
      "--text_b_column=other, --regression=True are not used; omit them"
    ],
  ),
  (
    "run_squad.py --do_predict --output_dir=nowhere --predict_file=nowhere "
    "--train_file=a.json",
    ["--train_file=a.json is not used; add --do_train"],
  ),
  *(
    (
      f"run_{script}.py --do_train --output_dir=nowhere --{used}=nowhere "
      f"--{flag}=a",
      [f"--{flag}=a is not used; add {actions} or --eval_steps"],
    )
    for script, used, flag, actions in (
      ("ner", "train_file", "dev_file", "--do_eval"),
      ("squad", "train_file", "predict_file", "--do_predict, --do_eval"),
      ("pretraining", "input_file", "eval_input_file", "--do_eval"),
    )
  ),
  (
    "run_squad.py --interactive --output_dir=nowhere --predict_file=a.json",
    ["--predict_file=a.json is not used; omit it"],
  ),
  (
    "run_pretraining.py --do_eval --output_dir=nowhere --input_file=a "
    "--eval_input_file=nowhere --eval_steps=2",
    [
      "--eval_steps=2 is not used; add --do_train",
      "--input_file=a is not used; add --do_train",
    ],
  ),
  ("run_pretraining.py --do_eval --output_dir=nowhere --input_file=a", []),
  (
    "extract_features.py --input_file=FILES/one_text.txt --output_file=- "
    "--init_checkpoint=nowhere --tpu_name=t --master=m --num_tpu_cores=8",
    ["--tpu_name=t, --master=m are not used; omit them, or add --use_tpu"],
  ),
]


@pytest.mark.parametrize(("command", "warnings"), UNUSED)
def test_flags_that_are_not_used_are_named(files, command, warnings):
  script, *flags = command.replace("FILES", str(files)).split(" ")
  _, log = scripts.fork(script, *flags, status=2)
  *lines, error = log.splitlines()
  assert error.startswith("error: ")
  assert [line.partition("warning: ")[2] for line in lines] == warnings


def test_a_fault_of_the_program_keeps_its_traceback(tmp_path):
  script = tmp_path / "faulty.py"
  script.write_text(
    "from bert.scripts import startup\n\n"
    "def main(flags):\n"
    "  raise ValueError('not the fault of the user')\n\n"
    "run, command = startup.script(main, {})\n"
    "command()\n"
  )
  _, log = scripts.fork(script, status=1)
  assert "This is a bug in the program, or in your code" in log
  assert "Traceback (most recent call last)" in log
  assert "ValueError: not the fault of the user" in log
  assert "error: " not in log


SPACE = "No space left on device"
AGAIN = "; free some space and run the same command again"


@pytest.mark.parametrize(
  ("fault", "line"),
  [
    ("OSError(28, 'No space left on device')", f"[Errno 28] {SPACE}{AGAIN}"),
    (f"tf.errors.ResourceExhaustedError(None, None, '{SPACE}')", SPACE + AGAIN),
    # A message that names the remedy is not changed.
    (f"UserError('{SPACE}; free some space')", f"{SPACE}; free some space"),
    (
      "tf.errors.ResourceExhaustedError(None, None, '{{function_node a}} OOM "
      "when allocating tensor with shape[8,9] [Op:MatMul] name: ')",
      "OOM when allocating tensor with shape[8,9]; lower the batch size or "
      "--max_seq_length",
    ),
  ],
)
def test_a_full_device_is_one_line_with_a_remedy(tmp_path, fault, line):
  script = tmp_path / "full.py"
  script.write_text(
    "import tensorflow as tf\n"
    "from bert.errors import UserError\n"
    "from bert.scripts import startup\n\n"
    "def main(flags):\n"
    f"  raise {fault}\n\n"
    "run, command = startup.script(main, {})\n"
    "command()\n"
  )
  _, log = scripts.fork(script, status=2)
  assert log == f"error: {line}\n"
