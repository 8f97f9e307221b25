"""`bert.tokenization` is the module `tokenization` at the root."""

import sys

import tokenization

sys.modules[__name__] = tokenization
