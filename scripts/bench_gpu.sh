#!/usr/bin/env bash
# All that a GPU should show, in one command of under ten minutes: the GPU tests, if there are any,
# then scripts/bench_gpu.py, which ends in tables (with OUT=FOLDER also there, and a profile).
#
#   PYTHON=python3 scripts/bench_gpu.sh [arguments of bench_gpu.py]       from any folder
#
# PYTHON is any that has torch >= 2.11 with CUDA, numpy, sentencepiece, filelock, PyYAML, pytest and
# omegaconf; the package itself need not be installed. The lent H200, which has no network, lacks
# omegaconf and what that needs: make wheels once, in the root of the checkout,
#
#   echo /.whl/ >>.git/info/exclude
#   python3 -m pip download -q --no-deps -d .whl omegaconf==2.3.1
#   python3 -m pip wheel -q --no-deps -w .whl antlr4-python3-runtime==4.9.3
#
# carry .whl, give it 600 seconds, and run there
#
#   python3 -m pip install -q --no-index --no-deps --no-compile --target /tmp/site .whl/*.whl &&
#     PYTHONPATH=/tmp/site scripts/bench_gpu.sh

set -uo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/.." || exit
python=${PYTHON:-python3}
seconds=${SECONDS_IN_ALL:-560}
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

everything() {
  local failed=0 gpu_tests
  # Only files that have such tests: the others may import what is not here.
  gpu_tests=$(grep -rlE 'mark\.gpu' --include='*.py' tests)
  if [[ -n $gpu_tests ]]; then
    # shellcheck disable=SC2086  # several files
    timeout -k 5 200 "$python" -m pytest -q -m gpu -p no:cacheprovider $gpu_tests || failed=1
  else
    echo "no GPU tests in tests/"
  fi
  # It ends by itself; the signals are for a GPU that hangs.
  timeout -k 5 $((seconds - SECONDS)) \
    "$python" scripts/bench_gpu.py --seconds $((seconds - SECONDS - 40)) "$@" || failed=1
  return $failed
}

if [[ -n ${OUT:-} ]]; then
  everything "$@" 2>&1 | tee "$OUT/bench_gpu.txt"
else
  everything "$@"
fi
