"""`bert.run_classifier` is the module `run_classifier` at the root."""

import sys

import run_classifier

sys.modules[__name__] = run_classifier
