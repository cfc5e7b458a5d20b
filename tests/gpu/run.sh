#!/usr/bin/env bash
# On a machine with a CUDA device: builds, runs the GPU tests and the tests that need torch,
# measures, and leaves traces of a CUDA run in $OUT. Prints a short table.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-$(mktemp -d)}
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
$python -c 'import sys, torch; print(sys.version.split()[0], torch.__version__, torch.cuda.get_device_name())'
$python setup.py -q build_ext --inplace --build-temp /tmp/memprof-build 2>&1 | grep -E 'error|warning' | head
$python -m memprof env 2>&1 | head -60
echo "== gpu tests"
$python -m pytest -q -p no:cacheprovider -m gpu tests/gpu "$@" 2>&1 | tail -40
echo "== torch tests on this build"
$python -m pytest -q -p no:cacheprovider -x --deselect tests/test_torch_operators.py::test_same_operators_as_torch_profiler \
    tests/test_torch_memory.py tests/test_torch_operators.py tests/test_frames.py 2>&1 | tail -15
echo "== a CUDA run for the readers"
MEMPROF_CUPTI_DUMP="$OUT/cupti_raw.bin" $python tests/gpu/trace_run.py "$OUT" 2>&1 | tail -60
echo "== cost of a launch"
timeout 150 $python -m benchmarks.gpu_launch --rounds 20 2>&1 | grep -v USDT
echo "== cost"
timeout 200 $python -m benchmarks.steps --device cuda --rounds 9 --workload launch-bound --workload "transformer block" 2>&1 | grep -v USDT
