#!/usr/bin/env bash
# For a machine with a GPU, at most 8 minutes: what only a GPU can tell of the GPU path. Capture and replay of posting, waiting
# and delivering in CUDA graphs, both layers posted before either wait, bounded waits, bits equal to the CPU's, NaN survives.
#
# Run `deploy/dev/gpu-build` first, here or elsewhere: build-gpu/run is all that this needs, besides the driver. To run under
# compute-sanitizer as well, where it is installed: tests/gpu/run.sh --sanitize. Exit status 77: there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

test=build-gpu/run/engram_gpu_device_test
if [ ! -x "$test" ]; then
  timeout 240 deploy/dev/gpu-build
fi
export LD_LIBRARY_PATH=$PWD/build-gpu/run
date -u +'%Y-%m-%d %H:%M:%S UTC'
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader 2>/dev/null || true
timeout 150 "$test"
if [ "${1:-}" = --sanitize ]; then
  for tool in memcheck racecheck; do
    echo "compute-sanitizer $tool"
    timeout 40 compute-sanitizer --tool "$tool" --error-exitcode 1 "$test" quick
  done
fi
