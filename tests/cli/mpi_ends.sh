# A rank that is killed or asked to stop ends the run soon, is named, and costs no checkpoint.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# A rank that comes late: the others say that MPI does not start, and wait for it.
"${mpirun[@]}" -n 2 bash -c 'if [ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 ]; then
    for _ in $(seq 3000); do
        ! grep -q "MPI has not started in 2 s" late.out || break
        sleep 0.1
    done
fi
exec "$@"' - "${train[@]}" --steps=1 --comm.meet=2 --out=late >late.out 2>&1 || { cat late.out >&2; die "a late rank ends the run"; }
[ "$(grep -c '^warning: host .*: MPI has not started in 2 s: ranks are late, or cannot exchange messages\. ' late.out)" = 1 ] ||
    { cat late.out >&2; die "a late rank is not told of"; }

# kill -9 of one rank: all end, it is named, and whatever checkpoint is there is whole: the run goes on from it with
# fewer ranks and another method.
background killed --save_every=2 --strategy.preset=zero1
kill -9 "$(ranks killed | sed -n 3p)"
seconds_to_end
if [ $open_mpi = yes ]; then # MPICH's launcher kills the others
    says 'rank 2 .*signal 9'
    says "^sotto: rank 2 is gone, and the run cannot continue without it; the last checkpoint is $scratch/killed/checkpoints/step-"
    says "^to continue: ${launch[0]}.* -n 4 $sotto train --resume $scratch/killed\$"
    ! grep -q 'will stop' out || { cat out >&2; die "the end of a job is taken for a stop"; }
fi
for _ in {1..6000}; do # they may end after their launcher
    [ -n "$(ranks killed)" ] || break
    sleep 0.05
done
[ -z "$(ranks killed)" ] || die "ranks are left: $(ranks killed)"
last=$(ls killed/checkpoints | tail -1)
for folder in killed/checkpoints/step-*; do
    succeeds "$sotto" sample "$folder" --tokens=1 --prompt=A --threads=1
done
succeeds "${mpirun[@]}" -n 2 "${train[@]}" --out=killed --resume --steps=$((10#${last#step-} + 2)) --strategy.preset=fsdp
says "resuming from killed/checkpoints/$last"

# Rounds that would take minutes are abandoned when all ranks are asked to stop, which is said at once.
"${mpirun[@]}" -n 2 "${train[@]}" --steps=3 --accumulate=100000 --strategy.preset=zero1 --out="$scratch/long" >out 2>errors &
pid=$!
await wrote '^workers: 2 MPI ranks' out
sleep 0.3 # in the middle of a round
kill -TERM $(ranks long)
seconds_to_end
says '^SIGTERM, will stop: saving as soon as all workers can \(a second signal ends the run unsaved\); there is no checkpoint yet$'
[ "$(ls long/checkpoints)" = step-00000000 ] || die "an abandoned round left $(ls long/checkpoints)"

# A launcher that leaves too little time is told of, with what would give more.
if [ $open_mpi = yes ]; then
    for seconds in 0 60; do
        OMPI_MCA_odls_base_sigkill_timeout=$seconds succeeds "${mpirun[@]}" -n 2 "${train[@]}" --steps=2 --out=grace.$seconds
        [ "$(grep -c '^warning: .* mpirun --mca odls_base_sigkill_timeout [0-9]* leaves' out)" = $((seconds == 0)) ] ||
            { cat out >&2; die "the word about $seconds s"; }
    done
    # Groups stop where they exchange, or where the run ends, if that is sooner.
    OMPI_MCA_odls_base_sigkill_timeout=2 succeeds "${mpirun[@]}" -n 2 "${train[@]}" --steps=2 --strategy=diloco --H=1M --out=grace.H
    ! grep -q 'to stop and be saved' out || { cat out >&2; die "two rounds are said to take long"; }
    # Those of async-diloco stop in the middle of a task.
    OMPI_MCA_odls_base_sigkill_timeout=2 succeeds "${mpirun[@]}" -n 2 "${train[@]}" --steps=1M --seconds=0.2 --strategy=async-diloco --H=1M \
        --out=grace.async
    ! grep -q 'to stop and be saved' out || { cat out >&2; die "a round is said to take long"; }
fi

# What needs one process is done by rank 0 alone.
succeeds "${mpirun[@]}" -n 2 "$sotto" eval killed --data.format=stories --data.train=stories --batches=1 --threads=1
[ "$(grep -c '^loss ' out)" = 1 ] || { cat out >&2; die "evaluated twice"; }
says '^warning: sotto eval runs in one process: the other ranks do nothing$'
exit 0
