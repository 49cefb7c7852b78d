#!/usr/bin/env bash
# usage: run.sh BUILD_DIR [unittest options]
# Makes a virtual environment in BUILD_DIR/python, installs client/python with BUILD_DIR's libengram.so the way a user does,
# and runs the tests of this folder in it. Exit 77 = the package index cannot be reached: the test is skipped.
set -euo pipefail
build=$(realpath "${1:?usage: run.sh BUILD_DIR [unittest options]}")
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$here/../../client/python
venv=$build/python
log=$build/python.log

install() {
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 "$@" >"$log" 2>&1 && return
  cat "$log" >&2
  if grep -qE 'Failed to establish a new connection|Temporary failure in name resolution|ConnectTimeout|ProxyError' "$log"; then
    echo "SKIPPED: the Python package index cannot be reached" >&2
    exit 77
  fi
  exit 1
}

[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
# What the tests compare with, then the package itself: always rebuilt, so that it is that of this build.
install 'safetensors>=0.8' 'grpcio>=1.60' 'protobuf>=5' 'numpy>=1.22'
ENGRAM_LIBRARY=$build/lib/libengram.so install --force-reinstall --no-deps "$package"
"$venv/bin/python" "$here/steps_test.py" "$build/bin"
exec "$venv/bin/python" "$here/engram_pool_test.py" "$build/bin" "$@"
