#!/usr/bin/env bash
# mt-train by torchrun, on every GPU of one machine or of several.
#
#   scripts/torchrun.sh run_dir=runs/base                                    # on one machine
#   MT_NODES=2 MT_MEET=node1:29400 scripts/torchrun.sh run_dir=runs/base     # on each of two
#
# MT_MEET is where the machines find each other: a name and a free port of one of them. On one machine
# plain mt-train does the same and knows more: which failures are worth a new start.
#
#   MT_PROCESSES=auto    workers on this machine; auto: one for each GPU, or for each CPU core
#   MT_RESTARTS=3        how often torchrun starts all workers anew when one fails
#   MT_RUN_ID=mt-train   to tell apart two runs that meet at one place
#   MT_ADDRESS=          of this machine, where its name does not lead the others to it; on the one
#                        that MT_MEET names, the same as there
#
# No file system need be shared: the first machine writes run_dir, and each keeps a cache_dir of its
# own, where the data is prepared again. Machines with several networks may need
# GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, the name of the interface that joins them.

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
    echo "scripts/torchrun.sh: error: no $program in PATH: activate the environment first" >&2
    exit 1
  fi
done

if ((nodes > 1)) && [[ -n ${MT_ADDRESS:-} ]]; then
  is_host=0 # torchrun would ask for the addresses of this machine's name
  if [[ ${meet%:*} == "$MT_ADDRESS" ]]; then is_host=1; fi
  set -- --local-addr="$MT_ADDRESS" --rdzv-conf="is_host=$is_host" "$(command -v mt-train)" "$@"
else
  set -- "$(command -v mt-train)" "$@"
fi

exec torchrun \
  --nnodes="$nodes" \
  --nproc-per-node="${MT_PROCESSES:-auto}" \
  --max-restarts="${MT_RESTARTS:-3}" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$meet" \
  --rdzv-id="${MT_RUN_ID:-mt-train}" \
  "$@"
