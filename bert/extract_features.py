"""`bert.extract_features` is the module `extract_features` at the root."""

import sys

import extract_features

sys.modules[__name__] = extract_features
