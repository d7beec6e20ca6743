#!/usr/bin/env bash
# Checks and measures all that needs a GPU, in calls of at most nine minutes each.
#
#   scripts/bench/gpu.sh tests                      the GPU tests, one line for each as it ends
#   scripts/bench/gpu.sh bench [arguments]          gpu.py, one line for each result as it comes
#   scripts/bench/gpu.sh train [KEY=VALUE ...]      mt-train on the built-in sample, compiled
#
# Works from any folder. Environment:
#   PYTHON      the Python to use (default: python3). It needs torch >= 2.11 with CUDA, numpy,
#               sentencepiece, safetensors, filelock, PyYAML, regex, tqdm, tabulate, pytest,
#               hypothesis, omegaconf and hydra-core, and for train sacrebleu, sacremoses and
#               huggingface_hub; the package itself need not be installed.
#   TIME_LIMIT  seconds of a call (default: 540)

set -euo pipefail

what=${1:-}
if [[ $what != tests && $what != bench && $what != train ]]; then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
  [[ $what == -h || $what == --help ]] || exit 2
  exit
fi
shift
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

if [[ $what == tests ]]; then
  # Only the files that have GPU tests: the others may import packages that are not installed.
  mapfile -t files < <(grep -rlE 'mark\.gpu' --include='*.py' tests)
  command=(-m pytest -v --durations=0 -m gpu -p no:cacheprovider "${files[@]}" "$@")
elif [[ $what == train ]]; then
  command=(-m transformer_mt.cli train experiment=quickstart train.compile=true "$@")
else
  command=(scripts/bench/gpu.py "$@")
fi
exec timeout -k 5 "${TIME_LIMIT:-540}" "$python" "${command[@]}"
