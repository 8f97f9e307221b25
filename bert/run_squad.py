"""`bert.run_squad` is the module `run_squad` at the root."""

import sys

import run_squad

sys.modules[__name__] = run_squad
