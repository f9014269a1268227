# Many workers in one process: the method, the mesh, the clock and the links change nothing in what is learnt; a run
# that was killed or stopped goes on with the same or with other workers; what cannot work is said.
. "$(dirname "$0")/lib.bash"

tiny+=(--data.cache=cache --optim.warmup=5)
train=("$sotto" train "${tiny[@]}")

# Equal bits: all methods and meshes on threads, in virtual time whatever the cluster, and with links slowed down.
# Sums are made inside nodes first, so groups that are a node each (2x2) add the same; one node of four does not.
cluster=(--time=virtual --worker.step=10ms --nodes=2 --worker.speed=1,0.5 --worker.jitter=0.2
         --link.intra=1GB/s,10us --link.inter=100Mbit/s,1ms)
cases=0
for precision in fp32 mixed; do
    want=''
    for mesh in 1x4 2x2 4x1; do
        for method in ddp zero1 fsdp; do
            for where in threads cluster; do
                extra=(--nodes=2)
                [ $where = threads ] || extra=("${cluster[@]}")
                [ $where = cluster ] || [ $precision.$mesh = fp32.1x4 ] || [ $precision.$mesh = fp32.2x2 ] || continue
                cases=$((cases + 1))
                [ $mesh.$method.$where = 1x4.ddp.cluster ] || share_has $cases 3 || continue
                name=$precision.$mesh.$method.$where
                succeeds "${train[@]}" --steps=6 --workers=4 --strategy.precision=$precision --strategy.preset=$method \
                    --strategy.mesh=$mesh --out="$name" "${extra[@]}"
                want=${want:-$(state)}
                [ -n "$want" ] && [ "$(state)" = "$want" ] || die "$name: $(state), want $want"
            done
        done
    done
    succeeds "${train[@]}" --steps=6 --workers=4 --strategy.precision=$precision --out=$precision.one
    [ -n "$want" ] && [ "$(state)" != "$want" ] || die "$precision: sums in two orders, yet equal bits: the test sees nothing"
    near "$(value eval_loss $precision.one)" "$(value eval_loss $precision.1x4.ddp.cluster)" 1e-3
done

# Nor do threads change the bits: of more than eight, which also keep what fewer compute again and add to gradients
# elsewhere. Small norms are one thread's.
kinds=('fp32 gpt2' 'mixed llama' 'fp32 olmo2')
for i in "${!kinds[@]}"; do
    share_has $i 3 || continue
    read -r precision arch <<<"${kinds[i]}"
    want=''
    for threads in 1 3 9; do
        succeeds "${train[@]}" --steps=3 --arch=$arch --width=96 --heads=3 --batch=16 --threads=$threads \
            --strategy.precision=$precision --out=$precision.$arch.$threads
        want=${want:-$(state)}
        [ -n "$want" ] && [ "$(state)" = "$want" ] || die "${kinds[i]}, $threads threads: $(state), want $want"
    done
done

# Nor links.
succeeds "${train[@]}" --steps=6 --workers=4 --out=shaped --nodes=2 --link.intra=1GB/s --link.inter=1GB/s,1ms
fp32=$(state)
succeeds "${train[@]}" --steps=6 --workers=4 --nodes=2 --out=unshaped
[ "$fp32" = "$(state)" ] || die "slowed links change the bits: $fp32, $(state)"
succeeds "${train[@]}" --steps=6 --workers=4 --out=plain --strategy.preset=fsdp

# What it cost: a table for people, numbers for programs, and metrics along the way.
says '^worker  *seconds  *compute  *update  *wire  *wait-peer  *wait-wire  *MB inside  *MB between  *memory MB$'
says '^memory of the largest worker \(peak, MB\): parameters .* gradients .* optimizer .* communication '
says '; the wire took [0-9.e-]+ s, [0-9.e-]+ s of it hidden'
[ "$(value workers plain) $(value steps plain) $(value samples plain)" = "4 6 96" ] || die "report.json: $(cat plain/report.json)"
[ "$(value bytes_between plain)" = 0 ] && [ "$(value bytes_inside plain)" -gt 0 ] || die "bytes of one node"
[ "$(value bytes_between shaped)" -gt 0 ] || die "bytes between nodes"
grep -q '"comm/inside": [1-9]' plain/metrics.jsonl || die "no bytes in the metrics"

# Methods that compute while they communicate tell where that cannot be: with more workers than half the cores. That there
# are fewer cores than threads is said of all. A dry run says the same.
crowd=$(($(nproc) + 1))
for run in acco.real=1 dpu.real=1 zero1.real=0 acco.virtual=0; do
    method=${run%%.*} clock=${run#*.}
    for dry in true false; do
        succeeds "${train[@]}" --steps=2 --workers=$crowd --strategy.preset="$method" --time="${clock%=*}" --out="crowd.$run" --dry_run=$dry
        [ "$(grep -c "^warning: $crowd workers on .*: this method needs two each;" out)" = "${run#*=}" ] ||
            { cat out >&2; die "$run, dry_run = $dry: the word about cores"; }
        said=$(grep -cx "threads: $crowd share [0-9]* cores\{0,1\}" out)
        [ "$said" = "$([ "${clock%=*}" = real ] && echo 1 || echo 0)" ] || { cat out >&2; die "$run, dry_run = $dry: threads"; }
    done
done

# Nothing is hidden where nothing is sent; and that groups will not meet is said at the start.
succeeds "${train[@]}" --steps=3 --workers=2 --out=apart --strategy=local-sgd --tau=9
says 'local.tau = 9 is more than the 3 steps of this run: its groups train without an exchange'
says '; nothing was sent$'
grep -q '"overlap": null' apart/report.json || die "something is hidden: $(cat apart/report.json)"

# Killed behind a checkpoint, then resumed. The links slow the run down, so that the moment is in its middle. A round is
# 8 micro-batches however many workers share them: with as many workers as before the bits are those of a run that was
# never killed. With others, and in fsdp, which sums over workers after each micro-batch, only the order of sums differs:
# 2e-8 in the last loss, where ten rounds on other data make 1e-4.
round=("${train[@]}" --steps=30 --save_every=5 --strategy.preset=zero1)
slow=(--link.intra=1GB/s,2ms)
succeeds "${round[@]}" --workers=4 --accumulate=2 --out=whole
want=$(state)
"${round[@]}" --workers=4 --accumulate=2 --out=killed --link.intra=1GB/s,4ms >killed.log 2>&1 &
pid=$!
await [ -e killed/checkpoints/step-00000010 ]
kill -9 $pid 2>/dev/null || { cat killed.log >&2; die "the run ended before it was killed"; }
wait $pid 2>/dev/null
[ ! -e killed/checkpoints/step-00000030 ] || die "the run was killed too late"

# goes_on NAME OPTIONS...
goes_on() {
    local name=$1
    shift
    cp -r killed "$name"
    succeeds "${round[@]}" --resume --out="$name" --link.intra= "$@"
    says '^resuming from .*/checkpoints/step-0000[0-9]+$'
    near "$(value eval_loss "$name")" "$(value eval_loss whole)" 1e-6
    [ "$(grep -o '"step": [0-9]*, "train' whole/metrics.jsonl)" = "$(grep -o '"step": [0-9]*, "train' "$name/metrics.jsonl")" ] ||
        die "$name: other steps in the metrics"
}
same_bits() {
    goes_on "$@"
    [ "$(state)" = "$want" ] || die "$1: $(state), want $want"
}
cases=0
while read -r how name options; do
    cases=$((cases + 1))
    [ "$name" = same ] || share_has $cases 3 || continue
    $how $name $options </dev/null
done <<'end'
same_bits same --workers=4 --accumulate=2
goes_on to-fsdp --workers=4 --accumulate=2 --strategy.preset=fsdp
same_bits to-ddp --workers=4 --accumulate=2 --strategy.preset=ddp
same_bits to-virtual --workers=4 --accumulate=2 --time=virtual --worker.step=1ms
goes_on fewer --workers=2 --accumulate=4
goes_on more --workers=8 --accumulate=1
goes_on fewer-fsdp --workers=2 --accumulate=4 --strategy.preset=fsdp
goes_on pairs --workers=4 --accumulate=2 --strategy.mesh=2x2
goes_on alone --workers=1 --accumulate=8 --strategy.preset=ddp
end

# Methods that overlap, killed at whatever half-round they are in, again and again: with the counts of a run that was
# never killed they end with its bits.
overlapping=(dpu acco-wp acco)
for i in "${!overlapping[@]}"; do
    share_has $i 3 || continue
    method=${overlapping[i]}
    ahead=("${train[@]}" --steps=20 --save_every=1 --workers=4 --strategy=$method)
    succeeds "${ahead[@]}" --out=whole-$method
    want=$(state)
    ahead+=(--replay=whole-$method/counts.tsv --out=killed-$method --resume)
    kills=0
    for pause in 0 0.01 0.02 0.03 0.04; do # after a checkpoint
        "${ahead[@]}" "${slow[@]}" >killed.log 2>&1 &
        pid=$!
        newer killed-$method
        sleep $pause
        kill -9 $pid 2>/dev/null && [ ! -e killed-$method/report.json ] && kills=$((kills + 1))
        wait $pid 2>/dev/null
    done
    [ $kills -gt 0 ] || die "$method was never killed"
    succeeds "${ahead[@]}" --link.intra=
    [ "$(state)" = "$want" ] || die "$method killed five times: $(state), want $want"
done

# Ctrl-C: the round is finished by everybody, all is saved, and the rest of the run gives the bits of one in a piece.
whole=("${round[@]}" --save_every=0 --workers=4 --accumulate=2 --strategy.preset=fsdp)
succeeds "${whole[@]}" --out=whole-fsdp
want=$(state)
"${whole[@]}" --out=stopped --link.intra=1GB/s,20ms --log_every=1 >out 2>&1 & # would take 10 s: no shell is so late
pid=$!
await wrote 'step 2/' out
kill -INT $pid
wait $pid
code=$?; [ $code = 130 ] || { tail -20 out >&2; die "exit code $code of an interrupted run"; }
says 'stopped at step [0-9]* of 30; everything is saved in stopped'
says "^to continue: $sotto train"
[ "$(ls stopped/checkpoints | wc -l)" = 1 ] || die "not one checkpoint after Ctrl-C: $(ls -A stopped/checkpoints)"
succeeds "${whole[@]}" --out=stopped --resume --link.intra=
[ "$(state)" = "$want" ] || die "stopped and resumed: $(state), want $want"

# Options: one message each, before anything is written.
refused() {
    local text=$1
    shift
    fails_with "$text" "${train[@]}" --steps=2 --workers=4 --out=refused "$@"
    [ "$(wc -l <out)" = 1 ] || { cat out >&2; die "more than a message"; }
    [ ! -e refused ] || die "a refused run left a folder: $*"
}
refused 'strategy.mesh = 3x2 needs 6 workers, there are 4' --strategy.mesh=3x2
refused 'strategy.mesh = 4: want RxS' --strategy.mesh=4
refused 'strategy.mesh = 0x4: want RxS' --strategy.mesh=0x4
refused "strategy.preset = zero2: no such method; did you mean 'zero1'?" --strategy.preset=zero2
refused 'worker.speed = 1,1,1,1,1 names more than 4 workers' --time=virtual --worker.speed=1,1,1,1,1
refused 'worker.speed = 1,0: want numbers from 0.001 to 1000' --time=virtual --worker.speed=1,0
refused 'worker.speed = 1,1e300: want numbers from 0.001 to 1000' --time=virtual --worker.speed=1,1e300
refused 'worker.step = 1e300: want at most 100000 s' --time=virtual --worker.step=1e300
refused 'worker.speed = 1, ends with a comma' --time=virtual --worker.speed=1,
refused 'worker.speed is for train.time = virtual' --worker.speed=1,0.5
refused 'worker.jitter is for train.time = virtual' --worker.jitter=0.1
refused 'worker.step is for train.time = virtual' --worker.step=10ms
refused "key 'tau' belongs to $(owners tau), which are not chosen" --tau=3
refused 'null.parameters is for train.oracle = null' --null.parameters=1000
refused 'null.activation_bytes is for train.oracle = null' --activation_bytes=1000
refused "unknown key 'async-diloco.eval_seconds': did you mean 'train.eval_seconds'?" --async-diloco.eval_seconds=5
refused "unknown key 'async-diloco.save_seconds': did you mean 'train.save_minutes'?" --async-diloco.save_seconds=5
refused "unknown key 'learning-rate': did you mean 'optim.lr'?" --learning-rate=1e-3
refused "unknown key 'batch_size': did you mean 'train.batch'?" --batch_size=8
refused "unknown key 'epochs': did you mean 'train.tokens'?" --epochs=3
refused "unknown key 'epoch'" --epoch=3
refused 'worker.step = 10parsec: want a time such as 50ms' --time=virtual --worker.step=10parsec
refused "link.inter: link 'fast': want BANDWIDTH,LATENCY such as" --link.inter=fast
refused "link.intra: link '100Mbit': want BANDWIDTH,LATENCY such as" --time=virtual --link.intra=100Mbit

# What a checkpoint says of its run takes another method, or the same again.
succeeds "${train[@]}" --workers=2 --strategy=slowmo --tau=2 --steps=4 --out=given
hash=$(sed -n 's/.*(state \(.*\))$/\1/p' out)
succeeds "$sotto" train given/checkpoints/step-00000004/sotto.ini --out=given-again
says "\(state $hash\)"
succeeds "$sotto" train given/checkpoints/step-00000004/sotto.ini --strategy=zero1 --slowmo.tau=12 --out=given-other
says '^workers: 2 .*zero1$'
# A key without its section is the method's that the run has; one of another method is refused.
succeeds "$sotto" train --tau=3 --resume given --steps=6
says '^changed: slowmo.tau 2 -> 3$'
fails_with "key 'drop' belongs to $(owners drop), which " "$sotto" train --resume given --steps=8 --drop=0.1
succeeds "$sotto" train --resume given --steps=8 --H=3 --strategy=diloco
says '^workers: 2 .*ddp x diloco$'
# What a worker sends in a step for 125,000 of 4 million elements, and the 80 bytes of what all count: with random
# 2(R-1)/R of the values, or R-1 times their signs, with demo R-1 times the values with 6 bits for each place, in whole
# words for each of two messages, of four of the eight stages.
sends() { # sends GROUPS BYTES OPTIONS...
    local groups=$1 want=$2
    rm -rf sends
    succeeds "$sotto" train --oracle=null --null.parameters=4M --workers=$groups --mesh=${groups}x1 --time=virtual --worker.step=1ms \
        --steps=3 --out=sends "${@:3}"
    grep -q "\"bytes\": $((3 * (want + 80 * (groups - 1))))," sends/report.json ||
        die "$groups groups, ${*:3}: $(grep '"bytes"' sends/report.json), not 3 x $want"
}
sends 2 500000 --strategy=random
sends 4 750000 --strategy=random
sends 4 375000 --strategy=striding --dtype=bf16
sends 4 93750 --strategy=random --sign=before
sends 2 593752 --strategy=demo --shape=flat
sends 4 1781256 --strategy=demo --shape=flat
sends 2 593760 --strategy=demo --shape=flat --message=0
# Of all elements, and 56 bytes of what groups count: half of them with bf16.
sends 4 $((24000000 - 72)) --strategy=diloco --H=1
sends 4 $((12000000 - 72)) --strategy=diloco --H=1 --dtype=bf16

# A loss that is no number: the worker and the step are named, the last good checkpoint stays.
fails_with 'step ' "${train[@]}" --workers=4 --strategy.preset=fsdp --out=nan --steps=100 --save_every=1 \
    --optim.kind=sgd --optim.lr=900 --optim.schedule=constant
says '^sotto: worker [0-3]: step [0-9]*: '
last=$(sed -n 's/^the last good checkpoint is //p' out)
[ -s "$last/model.safetensors" ] && [ -s "$last/state.safetensors" ] || die "no checkpoint in '$last'"

# Groups without common rounds can do without one; the first, which is slow here, has the server.
fails_with 'worker 0: group 0, step 4: the loss of micro-batch 3 is ' "${train[@]}" --workers=3 --out=lost --steps=80 \
    --strategy=async-diloco --H=40 --lost=drop --optim.lr=1000 --optim.warmup=0 --optim.weight_decay=1000 \
    --time=virtual --worker.step=10ms --worker.speed=0.1,1,1
says '^warning: group 1, step 4: the loss of micro-batch 3 is .*; the other groups continue without this group$'
says '^warning: group 2, step 4: '
# Evaluations by one group, saves by all, and both due at once.
succeeds "${train[@]}" --workers=4 --out=free --steps=24 --keep=9 --strategy=async-diloco --H=4 --eval_every=8 --save_every=7 \
    --time=virtual --worker.step=10ms --worker.speed=1,0.5,0.21,0.33 --nodes=4 --link.inter=10Mbit/s,1ms
[ "$(ls free/checkpoints | wc -l)" -ge 3 ] && [ "$(grep -c -v '^#' free/pushes.tsv)" = 24 ] || die "24 pushes, 3 saves"
hash=$(state)
succeeds "$sotto" train --resume free # nothing is left to do
[ "$(state)" = "$hash" ] || die "$(state), and it was $hash"
for killed in 1 2; do # before the last save, and before the one before: history, place and samples of every group survive
    rm -r $(ls -d free/checkpoints/* | tail -$killed)
    step=$(ls free/checkpoints | tail -1)
    succeeds "$sotto" train --resume free
    [ "$(state)" = "$hash" ] || die "from $step: $(state), and it was $hash"
done
succeeds "$sotto" train --resume free --steps=30 # groups that had left come back
[ "$(grep -c -v '^#' free/pushes.tsv)" -gt 28 ] || die "$(cat free/pushes.tsv)"
# What a checkpoint refuses is no way to go on from it.
fails_with 'has 4 groups, and this run has 2' "$sotto" train --resume free --tokens=99999 --workers=2 --nodes=2 --worker.speed=1
says '^changed: train.steps 30 -> not said$'
says '^to continue: [^ ]*sotto train --resume free$'
# Another outer optimizer begins without momentum.
succeeds "$sotto" train --resume free --steps=31 --outer=nesterov
says "^the run continues with a momentum of 0: the checkpoint has another async-diloco.outer, or N\$"
exit 0
