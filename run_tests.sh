#!/usr/bin/env bash
# Checks the style and runs the tests; arguments are passed on to pytest.
#
# The packages of requirements-dev.txt go into .venv. The variable PYTHON names
# the Python to use, of version 3.10 to 3.13.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

source ./setup_venv.sh
setup_venv requirements-dev.txt

"$venv_python" -m ruff check .
"$venv_python" -m ruff format --check .
# Each process would otherwise compile all modules and tests again.
unset PYTHONDONTWRITEBYTECODE
# A file stays on one process, which builds its fixtures once. In the order of
# their paths, no long file comes last. Tests wait for their own commands, so
# three processes keep two cores busy.
exec "$venv_python" -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@"
