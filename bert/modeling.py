"""`bert.modeling` is the module `modeling` at the root."""

import sys

import modeling

sys.modules[__name__] = modeling
