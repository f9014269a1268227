#!/bin/bash
# nccl.sh SUITE: messages of a rank to itself by the real NCCL on a GPU. Exits 77 without a GPU, NCCL or a launcher of MPI.
suite=${1:?usage: nccl.sh SUITE}
. "$(dirname "$0")/launch.bash"
launcher "$suite" || exit 77
NCCL_DEBUG=${NCCL_DEBUG:-VERSION} exec timeout 300 "${launch[@]}" -n 1 "$suite" self
