"""`bert.run_pretraining` is the module `run_pretraining` at the root."""

import sys

import run_pretraining

sys.modules[__name__] = run_pretraining
