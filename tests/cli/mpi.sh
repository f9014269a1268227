# The command under mpirun: the bits of threads with our ring, equal to rounding with MPI's own sums; a rank that is
# killed, stopped or told something else ends the run soon, says who it was, and costs no checkpoint.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/../comm/mpi/launch.bash"

launcher "$sotto" || exit 77
mpirun=(timeout -k 5 60 "${launch[@]}")
tiny+=(--data.cache=cache --optim.warmup=5)
train=("$sotto" train "${tiny[@]}")

# ends_with TEXT COMMAND...: as fails_with, within 30 seconds; launchers give signals and codes of their own.
ends_with() {
    local text=$1 begin=$SECONDS
    shift
    ! "$@" >out 2>&1 || die "should have failed: $*"
    [ $((SECONDS - begin)) -le 30 ] || { cat out >&2; die "took $((SECONDS - begin)) s to end: $*"; }
    grep -qF -- "$text" out || { cat out >&2; die "no '$text' from: $*"; }
}

# Equal bits, threads and ranks, whatever the method, also on two nodes; MPI's sums differ in the last place.
declare -A states
for mesh in 1x4 2x2 1x4.two; do
    for method in ddp zero1 fsdp; do
        run=("${train[@]}" --steps=6 --strategy.preset=$method --strategy.mesh=${mesh%.two})
        [ $mesh != 1x4.two ] || run+=(--nodes=2)
        succeeds "${run[@]}" --workers=4 --out=threads.$mesh.$method
        want=$(state)
        [ -n "$want" ] || die "no state hash"
        succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.$mesh.$method
        says 'workers: 4 MPI ranks'
        says "^cluster: $([ $mesh = 1x4.two ] && echo 2 nodes x 2 || echo 1 node x 4) workers$"
        [ "$(state)" = "$want" ] || die "$method $mesh: $(state) under MPI, on threads $want"
        states[$mesh.$method]=$want
        [ $mesh = 1x4 ] || continue
        succeeds "${mpirun[@]}" -n 4 "${run[@]}" --comm.collectives=native --out=native.$method
        near "$(value loss native.$method)" "$(value loss threads.$mesh.$method)" 1e-6
        near "$(value eval_loss native.$method)" "$(value eval_loss threads.$mesh.$method)" 1e-6
    done
done

# Vectors of a device by NCCL, of which the build has a fake: the same bits, on one node and on two.
fake=$(dirname "$sotto")/fake
for run in 1x4.two.fsdp 2x2.zero1; do
    two=$([[ $run != *two* ]] || echo --nodes=2)
    succeeds env SOTTO_APART_DELAY=100 LD_LIBRARY_PATH="$fake" "${mpirun[@]}" -n 4 "${train[@]}" --steps=6 --strategy.preset=${run##*.} \
        --strategy.mesh=${run%%.*} $two --device=apart --comm.nccl=on --out=nccl.$run
    [ "$(state)" = "${states[$run]}" ] || die "$run: $(state) by NCCL, on threads ${states[$run]}"
done
fails_with 'comm.nccl = on is for ranks of MPI' "${train[@]}" --steps=1 --comm.nccl=on --out=none
for device in cpu cpu:baseline; do
    ends_with "comm.nccl = on carries vectors of GPUs, and train.device = $device" "${mpirun[@]}" -n 2 "${train[@]}" --steps=1 \
        --comm.nccl=on --device=$device --out=none
done

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

for method in zero1 fsdp; do
    [ "${states[1x4.two.$method]}" = "${states[1x4.two.ddp]}" ] || die "$method on two nodes: other bits than ddp"
done
[ "${states[1x4.two.ddp]}" != "${states[1x4.ddp]}" ] || die "two nodes sum in the order of one"
for method in demo random striding every; do # what groups exchange themselves
    run=("${train[@]}" --steps=6 --strategy.preset=$method --strategy.shard=fsdp --strategy.mesh=2x2 --sign=before)
    succeeds "${run[@]}" --workers=4 --out=threads.$method
    want=$(state)
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.$method
    [ "$(state)" = "$want" ] || die "$method: $(state) under MPI, on threads $want"
done
for prune in 0 0.5; do # rounded on the wire
    run=("${train[@]}" --steps=6 --strategy=diloco --H=2 --shard=zero1 --mesh=2x2 --dtype=bf16 --prune=$prune)
    succeeds "${run[@]}" --workers=4 --out=threads.bf16.$prune
    want=$(state)
    succeeds "${run[@]}" --workers=4 --time=virtual --worker.step=1ms --out=virtual.bf16.$prune
    [ "$(state)" = "$want" ] || die "bf16, prune $prune: $(state) in virtual time, on threads $want"
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.bf16.$prune
    [ "$(state)" = "$want" ] || die "bf16, prune $prune: $(state) under MPI, on threads $want"
done
# Checkpoints by time, by the clock of rank 0: all ranks make them, they move no bit, and the run goes on from any of them.
while read -r saved options <&3; do # mpirun reads what comes in
    run=("${train[@]}" --steps=6 --keep=0 $options)
    succeeds "${run[@]}" --workers=4 --out=threads.timed.${saved//,/-}
    want=$(state) out=ring.timed.${saved//,/-}
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --save_minutes=1e-9 --out=$out
    [ "$(state)" = "$want" ] || die "saved by time, $options: $(state) under MPI, without on threads $want"
    [ "$(ls $out/checkpoints | sed 's/^step-0*//' | paste -sd,)" = "$saved" ] || die "$options: saved at $(ls $out/checkpoints)"
    for folder in $(ls $out/checkpoints | sed 1d); do
        rm -r "$out/checkpoints/$folder"
    done
    succeeds "${mpirun[@]}" -n 4 "$sotto" train --resume $out
    says "^resuming from $out/checkpoints/step-0*${saved%%,*}\$"
    [ "$(state)" = "$want" ] || die "from a checkpoint by time, $options: $(state), want $want"
done 3<<'end'
1,2,3,4,5,6 --strategy.preset=fsdp
4,6 --shard=zero1 --mesh=2x2 --replicate=co2 --tau=2
2,4,6 --mesh=4x1 --strategy=diloco --H=2
end
# Placements of one schedule, and one worker alone; stopped in the middle of it and taken up by another.
for rule in v2 v1; do
    run=("${train[@]}" --strategy.preset=cdp --cdp.rule=$rule --model.tied=no --optim.schedule=constant --save_every=2)
    succeeds "${run[@]}" --steps=6 --cdp.placement=single --cdp.stages=4 --out=single.$rule
    want=$(state)
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=2 --cdp.placement=pp --out=cyclic.$rule
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=4 --cdp.placement=zero --out=cyclic.$rule --resume
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=6 --cdp.placement=dp --out=cyclic.$rule --resume
    [ "$(state)" = "$want" ] || die "cdp $rule: $(state) under MPI, alone $want"
    succeeds "${run[@]}" --steps=6 --cdp.placement=mp --workers=3 --out=threads.mp.$rule # adds up in its own order
    want=$(state)
    succeeds "${mpirun[@]}" -n 3 "${run[@]}" --steps=6 --cdp.placement=mp --out=mp.$rule
    [ "$(state)" = "$want" ] || die "cdp mp $rule: $(state) under MPI, on threads $want"
done
ends_with 'train.nodes = 3, but train.workers = 2' "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --nodes=3

# differ TEXT OPTIONS...: rank 2 has these options too.
differ() {
    local text=$1
    shift
    ends_with "$text" "${mpirun[@]}" -n 2 "${train[@]}" --out=differ : -n 1 "${train[@]}" --out=differ "$@"
    [ ! -e differ/checkpoints ] || die "ranks that differ trained: $*"
}

# What only a launcher can get wrong: a message, and the end of all ranks, also where one alone is wrong. (Open MPI
# would give the others a second to die.)
export OMPI_MCA_odls_base_sigkill_timeout=0
ends_with 'train.time = virtual simulates a cluster in one process, not under MPI' \
    "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --time=virtual
ends_with 'train.workers = 3, but MPI started 2 ranks' "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --workers=3
ends_with "modelled links ([link]) are for workers of one process" "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --link.inter=1GB/s
# What is wrong on all ranks is said once, and as what it is.
once() {
    local text=$1
    shift
    ends_with "sotto: $text" "${mpirun[@]}" -n 2 "${train[@]}" --out=refused "$@"
    [ "$(grep -cF -- "$text" out)" = 1 ] || { cat out >&2; die "not said once: $text"; }
}
once "command line: unknown key 'bogus'" --bogus=1
once "rank 0: cannot open missing.txt" --data.format=text --data.train=missing.txt
differ "rank 2: train.workers = 2, but MPI started 3 ranks" --workers=2
differ "steps = ten: want an integer" --steps=ten
differ "the configuration differs: rank 2 has 'train = missing.txt'" --data.format=text --data.train=missing.txt
differ "collectives differ: rank 2 has native, rank 0 has ring" --comm.collectives=native
unset OMPI_MCA_odls_base_sigkill_timeout

# Ranks that were told different things: named at the first exchange.
differ "the configuration differs: rank 2 has 'lr = 0.5', rank 0 has 'lr = 0.001'" --optim.lr=0.5
differ "the configuration differs: rank 2 has 'preset = fsdp', rank 0 has 'preset = '" --strategy.preset=fsdp

# Ranks that see different files under the same names, as on machines without a shared disk: rank 0 alone needs the folder of
# the run and that of the model to start from, and a copy that is older is passed over. The same bits as with one folder.
cat >apart <<'EOF'
#!/bin/sh
cd "$SCRATCH/apart${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"
EOF
chmod +x apart
export SCRATCH=$scratch
while read -r name options <&3; do
    mkdir -p apart0 apart1
    run=("${train[@]}" --optim.schedule=constant --save_every=2 $options)
    succeeds "${mpirun[@]}" -n 2 ./apart "${run[@]}" --steps=4 --out=$name
    cp -r apart0/$name one.$name
    succeeds "${mpirun[@]}" -n 2 "$sotto" train --resume one.$name --steps=6
    want=$(state)
    ! grep -q 'rank 0 has sent' out || { cat out >&2; die "$name: sent to a rank that has it"; }
    if [ $name = diloco ]; then # older on the one, damaged on the other
        mkdir -p apart1/diloco/checkpoints
        cp -r apart0/diloco/checkpoints/step-00000002 apart1/diloco/checkpoints/step-00000004
        cp -r apart0/diloco/checkpoints/step-00000004 apart0/diloco/checkpoints/step-00000009
        truncate -s -1 apart0/diloco/checkpoints/step-00000009/state.safetensors
    fi
    succeeds "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume $name --steps=6
    says "^resuming from $name/checkpoints/step-00000004\$"
    says '^rank 0 has sent its parameters \(0.1 MB\) to 1 of 2 ranks$'
    [ "$(state)" = "$want" ] || die "$name, rank 0 alone has the folder: $(state), want $want"
done 3<<'end'
zero1 --strategy.preset=zero1
diloco --strategy=diloco --H=2
cdp --strategy=cdp
end
[ ! -e apart1/zero1 ] || die "rank 1 has a folder"
succeeds "${mpirun[@]}" -n 2 ./apart "${train[@]}" --strategy=async-diloco --H=2 --steps=4 --out=groups
want=$(state)
succeeds "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume groups
[ "$(state)" = "$want" ] || die "async-diloco, rank 0 alone has the folder: $(state), want $want"
tune=("${train[@]}" --data.vocab=0 --init=one.zero1 --steps=2)
succeeds "${tune[@]}" --workers=2 --out=tuned
want=$(state)
mv one.zero1 apart0
seq 2000 >apart0/only.txt
succeeds "${mpirun[@]}" -n 2 ./apart "${tune[@]}" --out=tuned
[ "$(state)" = "$want" ] || die "rank 0 alone has the model to start from: $(state), want $want"
ends_with "rank 1: cannot open only.txt: No such file" "${mpirun[@]}" -n 2 ./apart "${train[@]}" --steps=1 --data.format=text \
    --data.train=only.txt --out=missing
! grep -q 'asked to stop' out || { cat out >&2; die "the end of a job is taken for a stop"; }
ends_with "--resume none: there is no such folder" "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume none

# A loss that is no number.
ends_with 'step ' "${mpirun[@]}" -n 2 "${train[@]}" --out=nan --steps=100 --save_every=1 --optim.kind=sgd --optim.lr=900 \
    --optim.schedule=constant
says 'rank [01]: step [0-9]*: the (loss|gradient)'
says "^to go on with a tenth of the learning rate: ${launch[0]}.* -n 2 $sotto train --resume nan --optim.lr=90\$"
[ -n "$(ls nan/checkpoints)" ] || die "no checkpoint before the loss was none"
if [ $open_mpi = yes ]; then # as they were bound
    OMPI_MCA_hwloc_base_binding_policy=none ends_with 'step ' "${mpirun[@]}" -n 2 "${train[@]}" --out=unbound --steps=100 --save_every=1 \
        --optim.kind=sgd --optim.lr=900 --optim.schedule=constant
    says "^to go on .*: ${launch[0]}.* --(prte)?mca odls_base_sigkill_timeout 60 --bind-to none .*-n 2 $sotto train --resume unbound "
    # Whose command cannot be read: a launcher of another name, as on a machine without ranks, and tasks of srun, by the
    # environment that it makes.
    ln -s "${launch[0]}" starter
    lost=("${train[@]}" --steps=100 --save_every=1 --optim.kind=sgd --optim.lr=900 --optim.schedule=constant)
    ends_with 'step ' timeout -k 5 60 ./starter "${launch[@]:1}" -n 2 "${lost[@]}" --out=other
    says "^to go on .*: mpirun .*-n 2 $sotto train --resume other .*  # with the same -H or --hostfile\$"
    ends_with 'step ' "${mpirun[@]}" -n 2 env -u OMPI_COMM_WORLD_SIZE SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 "${lost[@]}" \
        --out=tasks
    says "^to go on .*: srun -N 2 -n 2 $sotto train --resume tasks "
fi

# ranks OUT: the processes that train there, by rank.
ranks() {
    local process rank
    for process in $(pgrep -f -x -- ".*/sotto train .*--out=$scratch/$1( .*)?"); do
        rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p')
        [ -z "$rank" ] || echo "$rank $process"
    done | sort -n | cut -d' ' -f2
}

# background OUT OPTIONS...: trains in the background until there is a checkpoint; the launcher is $pid.
background() {
    local out=$1
    shift
    "${mpirun[@]}" -n 4 "${train[@]}" --steps=100000 --out="$scratch/$out" "$@" >out 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        [ -z "$(ls "$out/checkpoints" 2>/dev/null)" ] || break
        sleep 0.1
    done
    [ "$(ranks "$out" | wc -l)" = 4 ] || { cat out >&2; die "not four ranks: $(ranks "$out")"; }
}

# seconds_to_end
seconds_to_end() {
    local begin=$SECONDS
    wait $pid
    code=$?
    [ $((SECONDS - begin)) -le 30 ] || die "took $((SECONDS - begin)) s to end"
    [ $code != 0 ] || die "exit 0"
    [ $code != 124 ] || die "the run had to be killed"
}

# A rank that comes late: the others say that MPI does not start, and wait for it.
"${mpirun[@]}" -n 2 bash -c 'if [ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 ]; then
    for _ in $(seq 300); do
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
    says "^sotto: rank 2 is gone, and the run cannot go on without it; the last checkpoint is $scratch/killed/checkpoints/step-"
    says "^to go on: ${launch[0]}.* -n 4 $sotto train --resume $scratch/killed\$"
    ! grep -q 'asked to stop' out || { cat out >&2; die "the end of a job is taken for a stop"; }
fi
sleep 0.5
[ -z "$(ranks killed)" ] || die "ranks are left: $(ranks killed)"
last=$(ls killed/checkpoints | tail -1)
for folder in killed/checkpoints/step-*; do
    succeeds "$sotto" sample "$folder" --tokens=1 --prompt=A --threads=1
done
succeeds "${mpirun[@]}" -n 2 "${train[@]}" --out=killed --resume --steps=$((10#${last#step-} + 2)) --strategy.preset=fsdp
says "resuming from killed/checkpoints/$last"

# Rounds that would take hours are abandoned when all ranks are asked to stop, which is said at once.
"${mpirun[@]}" -n 2 "${train[@]}" --steps=3 --accumulate=1000000 --strategy.preset=zero1 --out="$scratch/long" >out 2>&1 &
pid=$!
for _ in $(seq 200); do
    grep -q '^workers: 2 MPI ranks' out && break
    sleep 0.1
done
sleep 1
kill -TERM $(ranks long)
seconds_to_end
says '^SIGTERM, asked to stop: saving as soon as all workers can; there is no checkpoint yet$'
[ "$(ls long/checkpoints)" = step-00000000 ] || die "an abandoned round left $(ls long/checkpoints)"

# A launcher that leaves too little time is told of, with what would give more.
if [ $open_mpi = yes ]; then
    for seconds in 0 60; do
        OMPI_MCA_odls_base_sigkill_timeout=$seconds succeeds "${mpirun[@]}" -n 2 "${train[@]}" --steps=2 --out=grace.$seconds
        [ "$(grep -c '^warning: .* mpirun --mca odls_base_sigkill_timeout 60 leaves' out)" = $((seconds == 0)) ] ||
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
succeeds "${mpirun[@]}" -n 2 "$sotto" eval threads.1x4.ddp --data.format=stories --data.train=stories --batches=1 --threads=1
[ "$(grep -c '^loss ' out)" = 1 ] || { cat out >&2; die "evaluated twice"; }
says '^warning: sotto eval runs in one process: the other ranks do nothing$'

# Ctrl-C that reaches only one rank, and only the launcher: everybody saves and stops.
background stopped --save_every=2 --strategy.preset=fsdp
kill -INT "$(ranks stopped | sed -n 3p)"
seconds_to_end
says '^sotto: .*stopped at step [0-9]* of 100000; everything is saved in .*/stopped$'
[ "$(grep -c 'everything is saved' out)" = 1 ] || { cat out >&2; die "the end is told twice"; }
says "^to go on: ${launch[0]}.* -n 4 $sotto train --resume $scratch/stopped\$"
way=$(sed -n 's/^to go on: //p' out)
if [ $open_mpi = yes ]; then # MPICH's launcher does not pass it on
    export OMPI_MCA_odls_base_sigkill_timeout=2
    background launcher --save_every=64
    kill -INT "$(pgrep -P $pid)"
    seconds_to_end
    unset OMPI_MCA_odls_base_sigkill_timeout
    says "^SIGTERM, asked to stop: .*${launch[0]}.*-n 4 $sotto train --resume $scratch/launcher goes on from the last checkpoint\$"
    says '^sotto: .*stopped at step [0-9]* of 100000; everything is saved in .*/launcher$'
    says "^to go on: ${launch[0]}.* odls_base_sigkill_timeout 2 .*-n 4 $sotto train --resume $scratch/launcher\$" # as it was told
    last=$(ls launcher/checkpoints | tail -1)
    succeeds "$sotto" sample "launcher/checkpoints/$last" --tokens=1 --prompt=A --threads=1
fi
if [ $open_mpi = yes ]; then # as it stands there, also for root and with more ranks than cores
    last=$(ls stopped/checkpoints | tail -1)
    succeeds eval "timeout -k 5 60 $way --steps=$((10#${last#step-} + 1))"
fi
last=$(ls stopped/checkpoints | tail -1)
succeeds "${mpirun[@]}" -n 2 "$sotto" train --resume stopped --steps=$((10#${last#step-} + 1))
says '^changed: train.workers 4 -> 2$'
succeeds "${train[@]}" --workers=4 --out=stopped --resume --steps=$((10#${last#step-} + 2)) --strategy.preset=ddp
says "resuming from stopped/checkpoints/"
exit 0
