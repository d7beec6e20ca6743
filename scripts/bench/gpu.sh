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

cd "$(dirname "$0")/../.."
case ${1:-} in
  # Only the files that have GPU tests: the others may import packages that are not installed.
  tests) mapfile -t files < <(grep -rlE 'mark\.gpu' --include='*.py' tests)
    command=(-m pytest -v --durations=0 -m gpu -p no:cacheprovider "${files[@]}") ;;
  bench) command=(scripts/bench/gpu.py) ;;
  train) command=(-m transformer_mt.cli train experiment=quickstart train.compile=true) ;;
  -h | --help) exec sed -n '2,/^$/s/^# \{0,1\}//p' scripts/bench/gpu.sh ;;
  *) sed -n '2,/^$/s/^# \{0,1\}//p' scripts/bench/gpu.sh >&2; exit 2 ;;
esac
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec timeout -k 5 "${TIME_LIMIT:-540}" "${PYTHON:-python3}" "${command[@]}" "${@:2}"
