# Makes .venv beside this file and installs a requirements file into it.
#
#   source setup_venv.sh
#   setup_venv requirements.txt
#   "$venv_python" run_classifier.py ...
#
# The variable PYTHON names the Python to make .venv from. Without it a .venv
# that works is kept, and else the first supported Python is taken.

venv_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/.venv"
venv_python="$venv_dir/bin/python"

# Prints the version of a Python that TensorFlow supports; else fails.
_supported_version() {
  "$1" -c 'import sys
if not (3, 10) <= sys.version_info < (3, 14): sys.exit(1)
print(*sys.version_info[:3])' 2>/dev/null
}

# Prints the first of these Pythons that is supported; else fails.
_first_supported() {
  local python
  for python; do
    if _supported_version "$python" >/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Succeeds if .venv is whole and of the version that PYTHON asks for, if any.
# Pip leaves packages half-installed when it is stopped, and takes them for
# installed later; so a file marks an install that did not end.
_is_venv_usable() {
  local version
  version="$(_supported_version "$venv_python")" &&
    [[ ! -e "$venv_dir/installing" ]] &&
    [[ -z "${PYTHON:-}" || "$(_supported_version "$PYTHON")" == "$version" ]] &&
    "$venv_python" -m pip --version >/dev/null 2>&1
}

# Succeeds if pip has added or removed a package since the mark. It downloads
# everything first, so without network .venv stays as it was.
_has_changed() {
  local found
  found="$(find "$venv_dir"/lib/*/site-packages -maxdepth 0 \
    -newer "$venv_dir/installing" 2>/dev/null)"
  [[ -n "$found" ]]
}

setup_venv() {
  local requirements="$1"
  local root stamp checksum python
  root="$(dirname "$venv_dir")"
  stamp="$venv_dir/installed-$requirements"
  # One of them may include others.
  checksum="$(cat "$root"/requirements*.txt | cksum)"

  if [[ -n "${PYTHON:-}" ]]; then
    _first_supported "$PYTHON" >/dev/null || {
      echo "error: PYTHON=$PYTHON is not a Python of version 3.10 to 3.13" >&2
      exit 1
    }
  fi
  if ! _is_venv_usable; then
    python="$(_first_supported "${PYTHON:-python3}" \
      python3.13 python3.12 python3.11 python3.10)" || {
      echo "error: no Python of version 3.10 to 3.13 found; install one, or" \
        "name one by PYTHON=/path/to/python3" >&2
      exit 1
    }
    echo "Creating $venv_dir with $python"
    "$python" -m venv --clear "$venv_dir" || return
  elif [[ -e "$stamp" && "$(<"$stamp")" == "$checksum" ]]; then
    return
  fi
  echo "Installing $requirements"
  touch "$venv_dir/installing"
  "$venv_python" -m pip install --quiet --disable-pip-version-check \
    -r "$root/$requirements" || {
    local status=$?
    _has_changed || rm "$venv_dir/installing"
    return "$status"
  }
  echo "$checksum" >"$stamp"
  rm "$venv_dir/installing"
}
