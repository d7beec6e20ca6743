# shellcheck shell=bash
# Functions shared by the scripts: messages, and the Python environment in .venv.
# Compatible with the bash 3.2 of macOS.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
log=$venv/install.log
# One line that describes the content of .venv. It is "unfinished" during an installation, so that an
# interrupted one is not mistaken for a complete one.
state=$venv/installed
script=scripts/$(basename "$0")

# Modules are compiled when they are first imported, as most never are, not by pip when it installs.
unset PYTHONDONTWRITEBYTECODE

torch_version=${MT_TORCH_VERSION:-2.13.0}
torch_index=${MT_TORCH_INDEX:-}
torch_cpu_index=https://download.pytorch.org/whl/cpu
torch_build=default
if [[ $(uname -s) == Linux && ! -e /dev/nvidia0 ]] && ! command -v nvidia-smi >/dev/null; then
  torch_build=cpu # the default build for Linux includes gigabytes of CUDA
fi

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$script: error: $*"
  exit 1
}

# Prints the comment at the top of the running script.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# Prints the path of the first Python >= 3.11 that can make virtual environments.
find_python() {
  local candidates=(python3.13 python3.12 python3.11 python3) candidate without_venv=''
  if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    # Try it: pyenv has shims for inactive versions, which fail.
    case $("$candidate" -c '
import sys
if sys.version_info >= (3, 11):
    from importlib.util import find_spec
    print("good" if find_spec("venv") and find_spec("ensurepip") else "no venv")
' 2>/dev/null) in
      good) command -v "$candidate" && return ;;
      'no venv') without_venv=${without_venv:-$candidate} ;;
    esac
  done
  if [[ -n $without_venv ]]; then
    die "$without_venv has no venv module (Debian, Ubuntu: apt install ${without_venv##*/}-venv)"
  elif [[ -n ${PYTHON:-} ]]; then
    die "PYTHON=$PYTHON is not a working Python 3.11 or newer"
  fi
  die "no Python 3.11 or newer among ${candidates[*]}; install one," \
    "or name it: PYTHON=/path/to/python3 $script"
}

venv_works() {
  "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Whether .venv is up to date: $1 is the content (run or dev), $2 everything else it depends on.
venv_is_current() {
  local have=''
  if [[ -f $state ]]; then have=$(<"$state"); fi
  [[ $have == "$1 $2" || $have == "dev $2" ]] && venv_works
}

# Prevents two scripts from installing at the same time, until unlock_venv or the end of this one.
lock_venv() {
  exec 9<"$root/pyproject.toml"
  "$1" -c '
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("      waiting for another script that is installing into .venv", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError:
    pass  # a file system without locks
'
}

unlock_venv() { exec 9<&-; }

set_state() {
  printf '%s\n' "$*" >"$state.new"
  mv "$state.new" "$state"
}

need_disk() {
  local need=2500 free
  if [[ $torch_build == default && $(uname -s) == Linux ]]; then need=10000; fi
  free=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1024) }')
  ((free >= need)) || die "not enough disk space for .venv: $need MB needed, $free MB free in $root"
}

# Replaces the script by a Python program of scripts/recipes, in the environment that has mt-train on
# PATH, or else in .venv, which it creates. $1: the program; the rest are its arguments.
run_recipe() {
  local python
  if command -v mt-train >/dev/null; then
    python=$(dirname "$(readlink -f "$(command -v mt-train)")")/python # uv tool and pipx make links
  else
    case " ${*:2} " in
      *' --help '* | *' -h '*)
        sed -n '1s/^"""//; /^"""$/q; s/\\\\/\\/; p' "$root/scripts/recipes/$1" # its docstring
        return
        ;;
    esac
    say "Python environment in .venv"
    prepare_venv run
    python=$venv/bin/python
  fi
  exec "$python" "$root/scripts/recipes/$1" "${@:2}"
}

# pip with the tested versions; prints a dot per package, and writes pip's output to the log.
pip_install() {
  local line status=0
  printf '      ' >&2
  PIP_RETRIES=${PIP_RETRIES:-2} "$venv/bin/python" -m pip --no-input --disable-pip-version-check \
    install --no-compile --progress-bar off --constraint "$root/scripts/constraints.txt" "$@" 2>&1 |
    tee -a "$log" | while IFS= read -r line; do
    case $line in Collecting* | Processing*) printf . >&2 ;; esac
  done || status=$?
  say
  return "$status"
}

pip_failed() {
  local reason
  reason=$(grep -iE '^ *error: ' "$log" | tail -n 1 | sed 's/^ *[^ ]* *//' || true)
  if grep -q 'Retrying (' "$log"; then reason="no connection to the package index; $reason"; fi
  die "pip could not install the packages (${reason:-it was stopped}); its output is in $log"
}

reachable() {
  "$venv/bin/python" - "$1" <<'EOF' 2>/dev/null
import os, sys, threading, urllib.request
limit = threading.Timer(10, os._exit, [1])  # urlopen's timeout does not cover name resolution
limit.daemon = True
limit.start()
urllib.request.urlopen(sys.argv[1], timeout=5).close()
EOF
}

install_torch() {
  if [[ -n $torch_index ]]; then
    pip_install "torch==$torch_version" --extra-index-url "$torch_index"
  elif [[ $torch_build == default ]]; then
    pip_install "torch==$torch_version"
  elif reachable "$torch_cpu_index/torch/"; then
    pip_install "torch==$torch_version+cpu" --extra-index-url "$torch_cpu_index"
  elif ! pip_install "torch==$torch_version+cpu"; then # a configured mirror may have it
    say "      no CPU build of torch $torch_version found; trying the build with CUDA (several GB)." \
      "Set MT_TORCH_INDEX=URL to use a different index"
    pip_install "torch==$torch_version"
  fi
}

# Installs the project (editable) with its tested dependencies into .venv. $1: run, or dev to add the
# dependency group dev. Does nothing if .venv is up to date; a broken or incomplete one is recreated.
prepare_venv() {
  local content=$1 base files python group=()
  base="torch=$torch_version/$torch_build/$torch_index in $root" # if this changes, .venv is recreated
  files=$(cat "$root/pyproject.toml" "$root/scripts/constraints.txt" | cksum)
  if venv_is_current "$content" "$base, files $files"; then
    say "      .venv is up to date"
    return
  fi

  if venv_works; then python=$venv/bin/python; else python=$(find_python); fi
  lock_venv "$python"
  if venv_is_current "$content" "$base, files $files"; then # another script has created it meanwhile
    unlock_venv
    return
  fi
  if venv_works && { [[ ! -e $state ]] || grep -qF " $base, " "$state"; }; then
    say "      bringing .venv up to date (pip's output: .venv/install.log)"
    set_state unfinished
    : >"$log"
  else
    need_disk
    python=$(find_python)
    say "      creating .venv with $("$python" --version) and the $torch_build build of torch" \
      "$torch_version (pip's output: .venv/install.log)"
    rm -rf "${venv:?}/bin" "$venv" # bin first: without it, a partly removed .venv does not work
    mkdir "$venv"
    set_state unfinished
    "$python" -m venv "$venv" >"$log" 2>&1 || die "$python -m venv failed; see $log"
  fi
  # The pip of older Pythons resolves at half the speed. The build backend is installed once: a build in
  # isolation would resolve and install it each time.
  pip_install --upgrade pip hatchling editables || pip_failed
  install_torch || pip_failed
  if [[ $content == dev ]]; then group=(--group "$root/pyproject.toml:dev"); fi
  pip_install --no-build-isolation --editable "$root" ${group[@]+"${group[@]}"} || pip_failed
  "$venv/bin/python" -c 'import torch' >>"$log" 2>&1 ||
    die "torch is installed but cannot be imported; see the end of $log"
  set_state "$content $base, files $files"
  unlock_venv
}
