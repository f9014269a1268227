# Ranks of mpirun take their part of a device each.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# A rank takes its part of a device, not what all of them take of the machine.
succeeds env SOTTO_APART_MEMORY=2000000 "${mpirun[@]}" -n 2 "${train[@]}" --steps=2 --device=apart --dry_run --out=none
says '^memory: about [23].* MB on this machine.*; this process takes 1.[0-9] MB of its device; the device has 2 MB left$'
# Ranks that share a GPU take it together; those that a launcher gives one each do not.
shared=("${mpirun[@]}" -n 2 "${train[@]}" --steps=2 --device=apart)
succeeds env SOTTO_APART_MEMORY=8M SOTTO_APART_GPU=0 "${shared[@]}" --dry_run --out=none
says '; the 2 ranks that share this GPU take [2-4]\.[0-9] MB of it; the device has 8 MB left$'
ends_with ' on 2 workers. A smaller' env SOTTO_APART_MEMORY=2M SOTTO_APART_GPU=0 "${shared[@]}" --out=none
succeeds env SOTTO_APART_MEMORY=2M "${mpirun[@]}" -n 2 bash -c 'SOTTO_APART_GPU=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID} "$@"' - \
    "${train[@]}" --steps=2 --device=apart --dry_run --out=none
says '; this process takes 1.[0-9] MB of its device; the device has 2 MB left$'
exit 0
