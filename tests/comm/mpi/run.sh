#!/bin/bash
# run.sh SUITE: runs mpi_suite on 1 to 4 ranks with the mpirun of the MPI library it is linked to.
# Exits 77 without mpirun.
suite=${1:?usage: run.sh SUITE}
. "$(dirname "$0")/launch.bash"
launcher "$suite" || exit 77

# Seconds. The suite takes a few; but with more processes than cores, Open MPI yields at every poll of a message, and next
# to a dozen busy processes each yield is a turn of all of them: 3 ranks then took more than 300 s.
limit=600

# A rank that sleeps for seconds, in parallel with the next tests.
silent=$(mktemp)
trap 'kill $away 2>/dev/null; rm -f "$silent"' EXIT
timeout 300 "${launch[@]}" -n 4 "$suite" silent >"$silent" 2>&1 &
away=$!

for ranks in 1 2 3 4; do
    echo "== ${launch[*]} -n $ranks"
    timeout $limit "${launch[@]}" -n $ranks "$suite"
    code=$?
    [ $code != 124 ] || { echo "no end within $limit s on $ranks ranks"; exit 1; }
    [ $code = 0 ] || { echo "failed on $ranks ranks"; exit 1; }
done

echo "== several nodes"
timeout $limit "${launch[@]}" -n 6 "$suite" nodes || { echo "failed on several nodes"; exit 1; }

echo "== no NCCL"
none=$(mktemp -d)
: >"$none/libnccl.so.2" # which is no library, whatever this machine has
LD_LIBRARY_PATH=$none timeout $limit "${launch[@]}" -n 2 "$suite" no-nccl
code=$?
rm -r "$none"
[ $code = 0 ] || { echo "failed without NCCL"; exit 1; }

for wait in abort any; do
    echo "== a rank gives up ($wait)"
    begin=$SECONDS
    if output=$(timeout 300 "${launch[@]}" -n 3 "$suite" $wait 2>&1); then
        echo "a run with a failed rank succeeds"; exit 1
    fi
    [ $((SECONDS - begin)) -le 150 ] || { echo "the run took $((SECONDS - begin)) s to end"; exit 1; }
    grep -q "rank 2 (host $(uname -n)): the disk is full" <<<"$output" || { echo "no message: $output"; exit 1; }
done
echo "== all others end"
output=$(timeout 300 "${launch[@]}" -n 3 "$suite" ended 2>&1) || { echo "rank 0 is not told: $output"; exit 1; }
! grep -q 'has not answered' <<<"$output" || { echo "ranks are named: $output"; exit 1; }
echo "== a rank does not answer"
wait $away
code=$? output=$(cat "$silent")
[ $code = 0 ] || { echo "a rank that comes late ends the run: $output"; exit 1; }
grep -qE 'rank 2 \(host [^ ]*\) has not answered for [0-9.]* s, and [1-3] others* waits* for it' <<<"$output" || { echo "not named: $output"; exit 1; }
! grep -q -e 'rank [013] (host [^ ]*) has not' -e 'all [0-9]* ranks wait' <<<"$output" || { echo "others are named: $output"; exit 1; }
echo "== a fake NCCL"
export LD_LIBRARY_PATH=${2:?run.sh SUITE FOLDER-OF-FAKE}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for ranks in 2 3 4; do
    SOTTO_APART_DELAY=100 timeout $limit "${launch[@]}" -n $ranks "$suite" nccl || { echo "failed by NCCL on $ranks ranks"; exit 1; }
done
timeout $limit "${launch[@]}" -n 2 "$suite" gpus || { echo "failed with numbered GPUs"; exit 1; }
SOTTO_TEST_DEVICE=apart SOTTO_APART_DELAY=100 timeout $limit "${launch[@]}" -n 1 "$suite" self || { echo "failed by NCCL alone"; exit 1; }
echo "all passed"
