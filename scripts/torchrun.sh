#!/usr/bin/env bash
# Runs mt-train with torchrun, on every GPU of one machine or of several.
#
#   scripts/torchrun.sh run_dir=runs/base                                    # on one machine
#   MT_NODES=2 MT_MEET=node1:29400 scripts/torchrun.sh run_dir=runs/base     # on each of two
#
# MT_MEET is the rendezvous: the name and a free port of one of the machines. On one machine use plain
# mt-train instead, which also knows which failures are worth a restart.
#
#   MT_PROCESSES=auto    workers on this machine; auto: one per GPU, or per CPU core without GPUs
#   MT_RESTARTS=3        how often torchrun restarts all workers when one fails
#   MT_RUN_ID=mt-train   distinguishes runs that use the same rendezvous
#   MT_ADDRESS=          address of this machine, if the others cannot resolve its name; on the
#                        machine of MT_MEET, the same as there
#
# No shared file system is needed: the first machine writes run_dir, and each machine prepares the
# data in its own cache_dir. Machines with several networks may need GLOO_SOCKET_IFNAME and
# NCCL_SOCKET_IFNAME, the name of the interface that connects them.

set -euo pipefail

nodes=${MT_NODES:-1}
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi
if ! [[ $nodes =~ ^[1-9][0-9]*$ ]]; then
  echo "scripts/torchrun.sh: error: MT_NODES=$nodes is not a number of machines" >&2
  exit 2
fi
meet=${MT_MEET:-localhost:0}
if ((nodes > 1)) && [[ -z ${MT_MEET:-} ]]; then
  echo "scripts/torchrun.sh: error: MT_NODES=$nodes needs MT_MEET=HOST:PORT, the same on all of them" >&2
  exit 2
fi
for program in torchrun mt-train; do
  if ! command -v "$program" >/dev/null; then
    echo "scripts/torchrun.sh: error: $program is not on PATH; activate the environment first" >&2
    exit 1
  fi
done

if ((nodes > 1)) && [[ -n ${MT_ADDRESS:-} ]]; then
  is_host=0 # torchrun would resolve the name of this machine
  if [[ ${meet%:*} == "$MT_ADDRESS" ]]; then is_host=1; fi
  set -- --local-addr="$MT_ADDRESS" --rdzv-conf="is_host=$is_host" "$(command -v mt-train)" "$@"
else
  set -- "$(command -v mt-train)" "$@"
fi

# Otherwise restarted workers would meet in the store of the failed ones.
if ((nodes > 1)); then export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; fi

exec torchrun \
  --nnodes="$nodes" \
  --nproc-per-node="${MT_PROCESSES:-auto}" \
  --max-restarts="${MT_RESTARTS:-3}" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$meet" \
  --rdzv-id="${MT_RUN_ID:-mt-train}" \
  "$@"
