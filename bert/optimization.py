"""`bert.optimization` is the module `optimization` at the root."""

import sys

import optimization

sys.modules[__name__] = optimization
