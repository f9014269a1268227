#!/bin/bash
# run.sh SUITE: runs mpi_suite on 1 to 4 ranks with the mpirun of the MPI library it is linked to.
# Exits 77 where there is none.
suite=${1:?usage: run.sh SUITE}
case $(ldd "$suite") in
*libmpich*) launchers="mpiexec.mpich mpiexec.hydra" ;;
*libmpi.so*) launchers="mpirun.openmpi mpirun" ;;
*) echo "$suite is not linked to MPI"; exit 77 ;;
esac
for name in $launchers; do
    launch=$(command -v "$name") && break
done
[ -n "$launch" ] || { echo "no $launchers"; exit 77; }

# More ranks than cores, perhaps as root in a container: both need saying to Open MPI.
if "$launch" --version 2>&1 | grep -q -e 'Open MPI' -e OpenRTE; then
    launch="$launch --oversubscribe"
    [ "$(id -u)" -ne 0 ] || launch="$launch --allow-run-as-root"
fi

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} # MPI libraries keep what they allocate

for ranks in 1 2 3 4; do
    echo "== $launch -n $ranks"
    timeout 240 $launch -n $ranks "$suite" || { echo "failed on $ranks ranks"; exit 1; }
done

echo "== a rank gives up"
begin=$SECONDS
if output=$(timeout 60 $launch -n 3 "$suite" abort 2>&1); then
    echo "a run with a failed rank succeeds"; exit 1
fi
[ $((SECONDS - begin)) -le 10 ] || { echo "the run took $((SECONDS - begin)) s to end"; exit 1; }
grep -q 'worker 2: the disk is full' <<<"$output" || { echo "no message: $output"; exit 1; }
echo "all passed"
