#!/usr/bin/env bash
# For a machine with a GPU, at most 8 minutes: what only a GPU can tell of the GPU path. Capture and replay of posting, waiting
# and delivering in CUDA graphs, both layers posted before either wait, bounded waits, bits equal to the CPU's, NaN survives; what a
# doorbell and a delivery take.
#
# Needs the driver (of CUDA 13) and the folder build-gpu/run, neither compiler nor network: `deploy/dev/gpu-build` makes the
# folder, there or on another x86-64 machine, from where it is carried over. --sanitize: under compute-sanitizer as well, where
# that is installed. Each check has a process and a time limit of its own, so that one that fails hides no other.
# Exit status: 0 all passed, 1 some failed, 77 there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

test=build-gpu/run/engram_gpu_device_test
if [ ! -x "$test" ]; then
  echo "tests/gpu/run.sh: $test is not there: run deploy/dev/gpu-build, or carry build-gpu/run over from where it was run" >&2
  exit 1
fi
export LD_LIBRARY_PATH=$PWD/build-gpu/run
date -u +'%Y-%m-%d %H:%M:%S UTC'
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader 2>/dev/null || true

failed=()
# judge NAME SECONDS COMMAND...
judge() {
  local name=$1 seconds=$2 status=0
  timeout -k 5 "$seconds" "${@:3}" || status=$?
  case $status in
    0) return ;;
    77) exit 77 ;;
    124 | 137) echo "FAILED $name: not over after $seconds s" ;;
    *) echo "FAILED $name: exit status $status" ;;
  esac
  failed+=("$name")
}
for name in $("$test" list); do
  judge "$name" 40 "$test" "$name"
done
if [ "${1:-}" = --sanitize ]; then
  for tool in memcheck racecheck; do
    judge "compute-sanitizer $tool" 40 compute-sanitizer --tool "$tool" --error-exitcode 1 "$test" quick
  done
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "${#failed[@]} failed: ${failed[*]}"
  exit 1
fi
echo "all of it passed"
