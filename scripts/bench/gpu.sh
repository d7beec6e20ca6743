#!/usr/bin/env bash
# Checks and measures all that needs a GPU, in about ten minutes: runs the GPU tests, then gpu.py.
#
#   scripts/bench/gpu.sh [arguments of gpu.py]     for example: scripts/bench/gpu.sh --only ours
#
# Works from any folder. Environment:
#   PYTHON      the Python to use (default: python3). It needs torch >= 2.11 with CUDA, numpy,
#               sentencepiece, safetensors, filelock, PyYAML, regex, tqdm, tabulate, pytest,
#               hypothesis and omegaconf; the package itself need not be installed.
#   TIME_LIMIT  seconds for everything (default: 560)

set -uo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi
cd "$(dirname "$0")/../.." || exit
python=${PYTHON:-python3}
time_limit=${TIME_LIMIT:-560}
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

failed=0
# Only the files that have GPU tests: the others may import packages that are not installed.
mapfile -t gpu_tests < <(grep -rlE 'mark\.gpu' --include='*.py' tests)
timeout -k 5 200 "$python" -m pytest -q -m gpu -p no:cacheprovider "${gpu_tests[@]}" || failed=1
# gpu.py keeps to its time; timeout is for a GPU that hangs.
timeout -k 5 $((time_limit - SECONDS)) \
  "$python" scripts/bench/gpu.py --seconds $((time_limit - SECONDS - 40)) "$@" || failed=1
exit $failed
