# --dry_run: everything is checked and told, nothing is made, and the run that follows is the one that was told.
. "$(dirname "$0")/lib.bash"

run=("$sotto" train "${tiny[@]}" --out=new/run --steps=6 --workers=4 --strategy=diloco --H=2 --mesh=2x2 --shard=zero1
     --schedule=wsd --optim.warmup=2)
succeeds "${run[@]}" --dry_run
says '^model: 2 layers, width 32, 2 heads, vocabulary 300: '
says '^data: [0-9]+ tokens in 1 source; 4 x 32 tokens a micro-batch'
says '^device: cpu \([a-z0-9]+\)$'
says '^cluster: 1 node x 4 workers$'
says '^workers: 4 threads in 2 groups of 2, zero1 x diloco$'
says '^method: zero1 x diloco on a mesh of 2 x 2 .*, fp32$'
says '^diloco: H = 2, outer = nesterov, '
says '^optimizer: adamw, learning rate 0.001, wsd schedule, 2 rounds of warm-up, beta1 0.9, beta2 0.95, weight decay 0.1$'
says '^length: 6 rounds, each of 16 samples \(512 tokens\); [0-9.]+ times through the data$'
says '^wire: [0-9.]+ bytes a step and worker, all to its own node; groups exchange [0-9.]+ of each worker every 2 steps$'
says '^memory: about [0-9.]+ MB on this machine \(parameters [0-9.]+, .*activations [0-9.]+'
says '^folder: new/run, which would be made$'
[ ! -e new ] || die "a dry run made the folder"
cp out planned

# Without a mesh every worker of the node is a group, which a run that shards is warned of.
succeeds "${run[@]}" --dry_run --mesh=
says '^warning: zero1 x diloco: each worker is a group of its own and shares nothing, since all workers are on one node; '
succeeds "${run[@]}" --dry_run --mesh= --shard=ddp
! grep 'shares nothing' out || die "a method that shares nothing is warned of"
succeeds "${run[@]}" --dry_run # as it follows

# The run that follows has the header that was told.
succeeds "${run[@]}"
for line in model data device cluster workers; do
    [ "$(grep "^$line:" planned)" = "$(grep "^$line:" out)" ] || die "planned another $line: $(cat planned)"
done

# Resumed with other workers it has no one number of samples a round, and how often it goes through the data is left out.
succeeds "$sotto" train --resume new/run --steps=8 --dry_run
says '^length: 8 rounds, each of 16 samples \(512 tokens\); [0-9.]+ times through the data$'
succeeds "$sotto" train --resume new/run --steps=8 --workers=2 --mesh=1x2 --dry_run
says '^length: 8 rounds, each of 8 samples \(256 tokens\)$'

# What workers send is known to the byte; with async-diloco to a fourth, since the server's parameters come to all in the end,
# when the model is evaluated and saved.
sends() { # strategy and its options
    succeeds "$sotto" train "${tiny[@]}" --out=sends --steps=4 --workers=4 --nodes=2 --strategy="$@" --dry_run
    local each=$(sed -n 's/^wire: \(about \|\)\([0-9.]*\) bytes a step and worker.*/\2/p' out)
    succeeds "$sotto" train "${tiny[@]}" --out=sends --steps=4 --workers=4 --nodes=2 --strategy="$@"
    local bytes=$(sed -n 's/^ *"bytes": \([0-9]*\),$/\1/p' sends/report.json)
    awk -v each="$each" -v bytes="$bytes" -v off="$off" \
        'BEGIN { d = 4 * each - bytes; off *= off < 1 ? bytes : 1; exit !(each > 0 && d < off && d > -off) }' ||
        die "$*: planned 4 x $each bytes, sent $bytes"
    rm -r sends
}
cases=0
while read -r off method options; do
    cases=$((cases + 1))
    share_has $cases 4 || continue
    [[ $method != async-diloco ]] || options+=" --time=virtual --worker.step=1ms" # by the clock a worker of a busy machine may
    sends $method $options                                                        # take a few of the others' steps
done <<'end'
1 ddp
1 fsdp --mesh=2x2 --precision=mixed --clip=1
1 acco
0.25 async-diloco --H=2
1 demo --rate=1/7
1 random --rate=1/7 --sign=before
1 cdp --kind=sgd
1 diloco --H=2
1 every --every.n=2
1 flexdemo --mesh=2x2 --rate=1/7
1 co2 --tau=2 --mesh=2x2 --shard=zero1
1 striding --rate=1/7 --dtype=bf16
1 diloco --H=2 --dtype=bf16
0.25 async-diloco --H=9 --mesh=2x2 --shard=zero1 --dtype=bf16
end
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --strategy=diloco --prune=0.5 --dry_run
says '^wire: about [0-9.]+ bytes'
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --strategy=co2 --tau=auto --dry_run
says '^wire: known when the run has measured how often groups meet$'
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --strategy=async-diloco --steps=6 --H=2 --dry_run
says '^wire: about [0-9.]+ bytes a step and worker, all to its own node; a push and its answer are [0-9.]+ of each worker every 2 steps$'
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=4 --mesh=2x2 --shard=acco --replicate=async-diloco --dry_run
says '^wire: up to the speed of the groups'

# What would be warned of is warned of; a method's own optimizer is told as it holds.
for dry in --dry_run ''; do
    succeeds "$sotto" train "${tiny[@]}" --out=rare$dry --workers=2 --steps=2 --strategy=every --every.n=5 $dry
    says '^warning: every.n = 5 is more than the 2 steps of this run: its groups train without an exchange'
    succeeds "$sotto" train "${tiny[@]}" --out=far$dry --workers=2 --steps=2 --strategy=striding --rate=1/100000 $dry
    says '^warning: striding.rate = 1/100000 of the [0-9]+ elements that a worker owns: of 100000 steps [0-9]+ exchange nothing$'
    succeeds "$sotto" train "${tiny[@]}" --out=late$dry --workers=2 --steps=2 --strategy=co2 --tau=2 $dry
    says '^warning: co2 with adamw and optim.beta1 = 0.9: averages are applied a round late'
    [ "$(grep -c '^warning' out)" = 1 ] || die "a warning that is not said once: $(cat out)"
done
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=4 --mesh=2x2 --shard=zero1 --steps=2 --replicate=striding --rate=1/20000 --phase=fixed --dry_run
says '^warning: striding.rate = 1/20000 .*: only the first element is ever exchanged$'
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --steps=2 --strategy=demo --base=decoupled-adamw --dry_run
says '^optimizer: adamw, .*, beta1 0.9, beta2 0.999, weight decay 0.01$'
succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --steps=2 --strategy=striding --rate=1/100 --dry_run
says '^optimizer: sgd, .*, momentum 0, weight decay 0$'
! grep -q '^warning' out || die "a warning without a reason: $(cat out)"
# Not where nothing is late, or nothing computed.
for calm in --optim.beta1=0 --optim.kind=sgd --workers=1 '--oracle=null --null.parameters=1k --time=virtual --worker.step=1ms'; do
    succeeds "$sotto" train "${tiny[@]}" --out=sends --workers=2 --steps=2 --strategy=co2 --tau=2 $calm --dry_run
    ! grep -q '^warning' out || die "a warning without a reason: $(cat out)"
done

# Beside a run that is there it says what would happen, and changes nothing, not even times.
find new -exec stat -c '%n %Y %s' {} + | sort >before
fails_with "already holds a run of 6 steps" "${run[@]}" --dry_run
succeeds "${run[@]}" --dry_run --resume --steps=9
says '^resuming from new/run/checkpoints/step-00000006'
says '^folder: new/run, whose run would be continued$'
find new -exec stat -c '%n %Y %s' {} + | sort >after
cmp before after || die "a dry run changed the folder"

# What the run would be refused for, the plan is refused for.
fails_with "No such file" "$sotto" train --dry_run --data.train=missing.txt --out=other
fails_with "out of range" "${run[@]}" --dry_run --lr=-1
for dry in true false; do
    fails_with "sotto: train.out is empty, and names the folder of the run" "$sotto" train "${tiny[@]}" --dry_run=$dry --out=
done

# A run of no steps, which takes no time at all in virtual time, has numbers all the same.
for dry in true false; do
    succeeds "$sotto" train "${tiny[@]}" --dry_run=$dry --out=nothing --steps=0 --workers=2 --time=virtual --worker.step=1ms
    ! grep -qiw -- '-\{0,1\}nan' out || die "of no steps: $(cat out)"
done
rm -r nothing
fails_with "no device 'gpu'" "${run[@]}" --dry_run --device=gpu

# A run on a GPU is planned where there is none, and refused.
CUDA_VISIBLE_DEVICES='' succeeds "$sotto" train "${tiny[@]}" --dry_run --device=cuda --out=other
says '^device: cuda \(there is none on this machine: planned only\)$'
says '^memory: about [0-9.]+ MB on such a machine \(parameters .* activations .* scratch [0-9.]+.*\); this process takes [0-9.]+ MB of its device'
CUDA_VISIBLE_DEVICES='' fails_with "set worker.step" "$sotto" train "${tiny[@]}" --dry_run --device=cuda \
    --workers=2 --time=virtual --out=other
CUDA_VISIBLE_DEVICES='' fails_with '; --device=cpu needs no GPU, and continues a run that began on a GPU' \
    "$sotto" train "${tiny[@]}" --device=cuda --out=other
fails_with "device 'cuda" "${run[@]}" --dry_run --device=cuda:1
says "device 'cuda:1': .* CUDA_VISIBLE_DEVICES=1 sotto .* --device=cuda$|no device 'cuda' in this build"
fails_with "no kernels 'v9' on this machine, which has" "${run[@]}" --dry_run --device=cpu:v9
fails_with "device 'reference' has no kernels to choose from" "${run[@]}" --dry_run --device=reference:v4
fails_with "of their own" "$sotto" train "${tiny[@]}" --dry_run --workers=2 --time=virtual --worker.step=1ms --pin=true --out=other
fails_with "cannot open no-counts" "$sotto" train "${tiny[@]}" --dry_run --workers=2 --strategy=acco --replay=no-counts --out=other
[ ! -e other ] || die "a refused dry run made the folder"

# OpenMP's variables, which bind the first thread to one core, leave workers all of them.
if [ "$(nproc)" -ge 2 ]; then
    for set in OMP_PROC_BIND=true OMP_PLACES=cores 'OMP_PROC_BIND=close GOMP_SPINCOUNT=300'; do
        succeeds env $set "$sotto" train "${tiny[@]}" --dry_run --workers=2 --pin=true --out=other
    done
fi

# A simulated cluster, a budget in seconds, a method whose rounds depend on timing.
succeeds "$sotto" train "${tiny[@]}" --dry_run --workers=4 --time=virtual --worker.step=20ms --link.inter=100Mbit/s,5ms \
    --nodes=4 --worker.speed=1,0.5 --strategy=acco --seconds=9 --out=sim
says '^cluster: 4 nodes x 1 worker; inside no limit; between 100Mbit/s,5ms, 1 adapter a node; speeds 1,0.5$'
says '^length: 9 s$'
says '^virtual time: a micro-batch takes 20ms'
succeeds "$sotto" train --dry_run --oracle=null --time=virtual --workers=8 --null.parameters=7G --worker.step=1s --out=sim --steps=5
says '^null oracle: 7000.00 million parameters'
[ ! -e sim ] || die "a dry run made the folder"

# A bare key is that of the one section that has it.
succeeds "$sotto" train "${tiny[@]}" --dry_run --activations=bf16 --out=bare
grep -o 'activations [0-9.]*' out >half
succeeds "$sotto" train "${tiny[@]}" --dry_run --activations=fp32 --out=bare
! grep -qxF "$(cat half)" <(grep -o 'activations [0-9.]*' out) || die "activations are $(cat half) MB in fp32 and in bf16"
exit 0
