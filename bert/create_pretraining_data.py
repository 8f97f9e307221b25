"""`bert.create_pretraining_data` is the module of that name at the root."""

import sys

import create_pretraining_data

sys.modules[__name__] = create_pretraining_data
