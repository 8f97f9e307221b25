"""convert_checkpoint.py and download.py as commands; models in both formats."""

import json
import shutil

import mistakes
import pytest
import scripts


@pytest.fixture(scope="module")
def models(tmp_path_factory, goldens):
  """ours/, a release, and theirs/, converted."""
  base = tmp_path_factory.mktemp("models")
  shutil.copytree(goldens / "model", base / "ours")
  shutil.copy(goldens / "vocab.txt", base / "ours")
  config = base / "ours" / "bert_config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps({**fields, "num_hidden_layers": 1}))
  scripts.fork(
    *("convert_checkpoint.py", "--to=huggingface"),
    *(f"--model_dir={base}/ours", f"--output_dir={base}/theirs"),
  )
  (base / "text.txt").write_text("the city ||| he ate\nunaffable\n")
  (base / "empty").mkdir()
  (base / "pickle").mkdir()
  (base / "pickle" / "pytorch_model.bin").touch()
  shutil.copytree(base / "theirs", base / "gpt2")
  config = base / "gpt2" / "config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps({**fields, "model_type": "gpt2"}))
  shutil.copytree(base / "theirs", base / "cut")
  weights = base / "cut" / "model.safetensors"
  weights.write_bytes(weights.read_bytes()[:5000])
  return base


def test_a_folder_of_theirs_is_a_model_to_every_script(models):
  """With its vocabulary and its configuration."""
  written = {}
  ours = models / "ours"
  for name, flags in {
    "ours": [
      f"--init_checkpoint={ours / 'bert_model.ckpt'}",
      f"--vocab_file={ours / 'vocab.txt'}",
      f"--bert_config_file={ours / 'bert_config.json'}",
    ],
    "theirs": [f"--init_checkpoint={models / 'theirs'}"],
    "file": [
      f"--init_checkpoint={models / 'theirs/model.safetensors'}",
      f"--vocab_file={models / 'theirs/tokenizer.json'}",
      f"--bert_config_file={models / 'theirs/config.json'}",
    ],
  }.items():
    output = models / f"{name}.jsonl"
    scripts.fork(
      "extract_features.py",
      *flags,
      f"--input_file={models / 'text.txt'}",
      f"--output_file={output}",
    )
    written[name] = output.read_bytes()
  assert len(written["ours"].splitlines()) == 2
  assert written["theirs"] == written["ours"]
  assert written["file"] == written["ours"]


def test_a_training_starts_from_their_folder(models, goldens, tmp_path):
  """And leaves a model folder of its own."""
  table = tmp_path / "rows.tsv"
  table.write_text("text\tlabel\n" + "he\tgood\nshe\tbad\n" * 4)
  _, log = scripts.fork(
    "run_classifier.py",
    "--task_name=custom",
    "--do_train",
    f"--train_file={table}",
    f"--init_checkpoint={models / 'theirs'}",
    "--max_seq_length=8",
    "--train_batch_size=4",
    "--num_train_epochs=1",
    f"--output_dir={tmp_path / 'out'}",
  )
  assert "loaded 23 variables; 2 initialized" in log
  vocab = (tmp_path / "out" / "vocab.txt").read_bytes()
  assert vocab == (goldens / "vocab.txt").read_bytes()
  record = json.loads((tmp_path / "out" / "flags.json").read_text())
  found = record["flags"]["vocab_file"]
  assert found == str(models / "theirs" / "vocab.txt")
  assert len(record["data"]["init_checkpoint"]) == 64


MISTAKES = """
CONVERT --to=huggingface
  --model_dir is required
CONVERT --model_dir=FILES/ours
  --to is required
CONVERT --to=torch --model_dir=FILES/ours
  --to=torch ... huggingface
CONVERT --to=huggingface --model_dir=FILES/empty
  no checkpoint FILES/empty ... pass
CONVERT --to=tensorflow --model_dir=FILES/pickle
  FILES/pickle/pytorch_model.bin is a pickle ... python -c
CONVERT --to=tensorflow --model_dir=FILES/gpt2
  config.json: model_type='gpt2' is not supported ... bert or distilbert or rob
CONVERT --to=tensorflow --model_dir=FILES/ours --keep_layers=0,3
  the model has 1 layer  ... pass some of 0 to 0, in ascending order
CONVERT --to=tensorflow --model_dir=FILES/ours --keep_vocabulary=none.txt
  no file matches none.txt
CONVERT --to=tensorflow --model_dir=FILES/cut
  FILES/cut/model.safetensors is damaged ... again
CONVERT --to=tensorflow --model_dir=hf://org/name --offline
  hf://org/name is not in the cache ... omit --offline
CONVERT --to=tensorflow --model_dir=FILES/theirs --output_dir=FILES/ours
  FILES/ours is not an empty folder; pass the path of a new one
EXTRACT --init_checkpoint=FILES/theirs --do_lower_case=false
  --do_lower_case=False contradicts FILES/theirs/config.json ... pass that
EXTRACT --init_checkpoint=wwm_cased_L-24_H-1024_A-16 --offline
  wwm_cased_L-24_H-1024_A-16 does not exist ... omit --offline
download.py
  a complete command is required; pass squad, or glue TASK
download.py data
  --command=data ... glue|squad|model
download.py glue
  a complete command is required; pass squad, or glue TASK
download.py squad MRPC
  a complete command is required; pass squad, or glue TASK
download.py glue MPRC
  the task 'MPRC' is not one of ... did you mean 'MRPC'?
download.py --output_dir=OUT glue MPRC
  the task 'MPRC' is not one of
download.py --offline=true squad --output_dir=FILES/text.txt
  not a writable folder
download.py --command=glue --names=MPRC --output_dir OUT
  the task 'MPRC' is not one of
download.py squad --output_dir=OUT --offline
  --offline ... omit --offline
download.py squad --output_dir=gs://a/b
  --output_dir=gs://a/b: the folder is remote; pass a local one
download.py model bert_base
  'bert_base' is neither hf://
"""


@mistakes.each_of(MISTAKES)
def test_a_mistake_is_one_line(models, mistake):
  extract = f"extract_features.py --input_file={models}/text.txt"
  names = {
    "CONVERT": f"convert_checkpoint.py --output_dir={models}/out",
    "EXTRACT": f"{extract} --output_file={models}/out",
    "FILES": models,
    "OUT": models / "out",
  }
  mistakes.check(mistake, None, models, cwd=models, **names)


# A disk that becomes full while a large file is written.
FULL = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
  ("target", "source"), [("huggingface", "ours"), ("tensorflow", "theirs")]
)
def test_a_failed_conversion_can_be_repeated(models, tmp_path, target, source):
  """The weights are larger than the limit; other files are written before."""
  full, folder = tmp_path / "full.py", tmp_path / "folder"
  full.write_text(FULL)
  folder.mkdir()
  command = [
    scripts.ROOT / "convert_checkpoint.py",
    f"--to={target}",
    f"--model_dir={models / source}",
    f"--output_dir={folder / 'out'}",
  ]
  *_, line = scripts.fork(full, *command, status=2)[1].splitlines()
  assert "File too large" in line
  assert str(folder) in line
  assert list(folder.iterdir()) == []
  scripts.fork(*command)
  assert list((folder / "out").iterdir())
