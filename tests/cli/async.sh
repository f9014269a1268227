# Groups without common rounds whose order is time's, on threads and under mpirun: a run that was killed with SIGKILL, again
# and again, ends as one with its order of pushes that was not; every step of every data shard is trained once.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/../comm/mpi/launch.bash"

tiny+=(--data.cache=cache --optim.warmup=5)
train=("$sotto" train "${tiny[@]}" --strategy=async-diloco --H=3 --eval_every=15)

# once OUT SHARDS STEPS: pushes.tsv has every step of every data shard once, and as many samples were counted.
once() {
    awk -v shards="$2" -v steps="$3" '!/^#/ { for (i = 0; i < $2; i++) if (seen[$3, $4 + i]++) twice++; n += $2 }
        END { exit twice || n != shards * steps }' "$1/pushes.tsv" || die "$1: $(cat "$1/pushes.tsv")"
    [ "$(value samples "$1")" = $(($4 * $3 * 4)) ] || die "$1: $(value samples "$1") samples of $(($4 * $3 * 4))"
}

# ends_so OUT SHARDS STEPS COMMAND...: what OUT came to is what the command with its pushes does, without saves.
ends_so() {
    local out=$1 shards=$2 steps=$3 want
    shift 3
    want=$(state)
    [ -n "$want" ] || die "no state hash"
    once "$out" "$shards" "$steps" 4
    succeeds "$@" --steps="$steps" --out="$out.again" --async-diloco.replay="$out/pushes.tsv"
    [ "$(state)" = "$want" ] || die "$out: $(state) with its order of pushes, and it was $want"
    cmp "$out/model.safetensors" "$out.again/model.safetensors" || die "$out: another model with its order of pushes"
    cmp "$out/pushes.tsv" "$out.again/pushes.tsv" || die "$out: another order"
}

# Behind a checkpoint by so much, which is in the middle of tasks, or of the next save. Links slow the runs down.
cases=(ddp.4x1/save_every=5 zero1.2x2/save_every=5 zero1.4x1/save_minutes=1e-3)
for i in "${!cases[@]}"; do
    share_has $i 3 || continue
    case=${cases[i]}
    method=${case%/*}
    run=("${train[@]}" --workers=4 --shard=${method%.*} --mesh=${method#*.} --nodes=${method:0-3:1})
    out=killed.$method kills=0
    for delay in 0 0.03 0.07; do
        "${run[@]}" --steps=120 --"${case#*/}" --link.inter=1GB/s,10ms --out=$out --resume >out 2>&1 &
        pid=$!
        newer $out
        sleep $delay
        kill -9 $pid 2>/dev/null && [ ! -e $out/checkpoints/step-00000120 ] && kills=$((kills + 1))
        wait $pid 2>/dev/null
    done
    [ $kills -gt 0 ] || die "$case: nothing was killed before its end"
    succeeds "$sotto" train --resume $out
    ends_so $out ${method:0-3:1} 120 "${run[@]}"
done

launcher "$sotto" || exit 0
mpirun=(timeout -k 5 300 "${launch[@]}")

# ranks OUT: the processes that train there, by rank.
ranks() {
    local process rank
    for process in $(pgrep -f -x -- ".*/sotto train .*$scratch/$1( .*)?"); do
        rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p')
        [ -z "$rank" ] || echo "$rank $process"
    done | sort -n | cut -d' ' -f2
}

# pushes OUT: so far, as rank 0 has told.
pushes() { sed -n 's/.*"async\/pushes": *\([0-9]*\).*/\1/p' "$1/metrics.jsonl" 2>/dev/null | tail -1; }

# grows OUT COUNT: waits for so many pushes more; not for ever.
grows() {
    local before
    before=$(pushes "$1")
    for _ in $(seq 400); do
        [ "$(($(pushes "$1") - ${before:-0}))" -lt "$2" ] || return 0
        sleep 0.05
    done
    return 1
}

# holds_nobody OUT RANK TIMES: the others push while it is stopped. In the middle of a push it would be waited for: so it is tried
# more than once.
holds_nobody() {
    local process
    process=$(ranks "$1" | sed -n "$2p")
    for _ in $(seq "$3"); do
        kill -STOP "$process"
        grows "$1" 2 && return
        kill -CONT "$process"
        sleep 0.3
    done
    die "$1: $(pushes "$1") pushes, and no more while rank $2 is stopped"
}

# A rank that is stopped where it waits for its answer holds nobody up. It does so in a period of grace, which lasts while
# the server waits for another one, that was stopped before.
"${mpirun[@]}" -n 3 "${train[@]}" --steps=100000 --grace=0.4 --log_every=1 --out="$scratch/stopped" >out 2>&1 &
pid=$!
grows stopped 2 || { cat out >&2; die "no pushes"; }
holds_nobody stopped 2 5
holds_nobody stopped 3 2
for rank in 2 3; do
    kill -CONT "$(ranks stopped | sed -n ${rank}p)"
done
kill -INT "$(ranks stopped | sed -n 1p)"
wait $pid && { cat out >&2; die "a run that was asked to stop ended well"; }
says 'stopped at step [0-9]* of 100000; everything is saved in '

# One rank is held up for a while, so that the others push more, and one is killed, once that of the server; then all are
# asked to stop, and go on as they say.
methods=(ddp.4x1 fsdp.2x2)
for i in "${!methods[@]}"; do
    share_has $i 2 || continue
    method=${methods[i]}
    run=(--shard=${method%.*} --mesh=${method#*.} --nodes=2 --optim.schedule=constant)
    out=mpi.$method
    "${mpirun[@]}" -n 4 "${train[@]}" "${run[@]}" --steps=100000 --save_every=10 --out="$scratch/$out" >out 2>&1 &
    pid=$!
    newer $out
    kill -STOP "$(ranks $out | sed -n 4p)"
    sleep 0.3
    kill -CONT "$(ranks $out | sed -n 4p)"
    newer $out
    kill -9 "$(ranks $out | sed -n "$([ $method = ddp.4x1 ] && echo 3 || echo 1)p")"
    wait $pid && die "a run without a rank ended well"
    "${mpirun[@]}" -n 4 "$sotto" train --resume "$scratch/$out" >out 2>&1 &
    pid=$!
    newer $out
    kill -INT "$(ranks $out | sed -n 2p)"
    wait $pid && { cat out >&2; die "a run that was asked to stop ended well"; }
    says 'stopped at step [0-9]* of 100000; everything is saved in '
    way=$(sed -n 's/^to continue: //p' out)
    last=$(ls $out/checkpoints | tail -1)
    steps=$((10#${last#step-} + 10))
    [ $open_mpi = yes ] || way="${mpirun[*]} -n 4 $sotto train --resume $out"
    succeeds eval "timeout -k 5 300 $way --steps=$steps"
    says 'workers: 4 MPI ranks'
    ends_so $out ${method:0-3:1} $steps "${mpirun[@]}" -n 4 "${train[@]}" "${run[@]}"
done
exit 0
