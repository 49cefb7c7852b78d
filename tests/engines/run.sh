#!/usr/bin/env bash
# usage: run.sh BUILD_DIR
# The engines' address functions against ours, with the wheels in BUILD_DIR/engines (or $ENGRAM_ENGINE_WHEELS) and the
# NumPy of tests/python's environment. Exit 77 = skipped: no wheel or no NumPy is there; the test fetches neither.
set -euo pipefail
build=$(realpath "${1:?usage: run.sh BUILD_DIR}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$build/python/bin/python
[ -x "$python" ] || python=python3
exec "$python" "$here/engines_test.py" "${ENGRAM_ENGINE_WHEELS:-$build/engines}"
