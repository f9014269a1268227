#!/bin/bash
# nccl.sh SUITE: one rank's messages to itself by the real NCCL on a GPU. Exits 77 where there is no GPU, no NCCL or no
# launcher of MPI's.
suite=${1:?usage: nccl.sh SUITE}
. "$(dirname "$0")/launch.bash"
launcher "$suite" || exit 77
NCCL_DEBUG=${NCCL_DEBUG:-VERSION} exec timeout 300 "${launch[@]}" -n 1 "$suite" self
