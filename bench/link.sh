#!/bin/bash
# link.sh SOTTO [PYTHON [REPEATS]]: tokens/s of two workers over a link of 100 Mbit/s, sotto's methods beside PyTorch's
# DistributedDataParallel. Two hosts made of network namespaces, one core each; 6 layers of width 384, 11.7 million
# parameters, 4 x 256 tokens a micro-batch and worker. Every contender runs once in each of REPEATS turns (default 3), so that
# the machine's noise hits all alike; then a table with median and spread. PYTHON must have torch (default python3),
# otherwise its rows are left out. `rate` sets another link (rate=1gbit), `only` runs contenders whose name has it.
python=$(command -v "${2:-python3}") repeats=${3:-3} limit=400
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tests/netns/lib.bash"

model=(--layers=6 --heads=6 --width=384)
train=("$sotto" train --data.train=stories --data.stories=3000 --data.vocab=2400 --data.cache="$scratch/cache" "${model[@]}"
       --positions=256 --batch=4 --threads=1 --eval_batches=1 --log_every=1000 --optim.lr=1e-3)
port=29500

# What runs a command on one core, by the rank that it is.
cat >pinned <<'END'
#!/bin/sh
exec taskset -c "${OMPI_COMM_WORLD_RANK:-$RANK}" "$@"
END
chmod +x pinned
[ "$(nproc)" -ge 2 ] || skip "two cores are needed, one a worker"

sotto_run() { # sotto_run OPTIONS...: prints tokens/s
    rm -rf run
    "${across[@]}" ./pinned "${train[@]}" "$@" --out=run >out 2>&1 || { tail -5 out >&2; return 1; }
    value tokens_per_s run
}

torch_run() { # torch_run OPTIONS...
    local other status=0
    port=$((port + 1))
    export GLOO_SOCKET_IFNAME=eth0
    RANK=1 timeout -k 5 $limit ./on_node 1 ./pinned "$python" "$here/peer_ddp.py" --rank=1 --master=10.231.7.1:$port "$@" >other 2>&1 &
    other=$!
    RANK=0 timeout -k 5 $limit ./on_node 0 ./pinned "$python" "$here/peer_ddp.py" --rank=0 --master=10.231.7.1:$port "$@" >out 2>&1 || status=1
    wait $other || status=1
    [ $status = 0 ] || { tail -3 out other >&2; return 1; }
    sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p' out
}

# A name, and what runs it: rounds enough for several exchanges, and whole outer rounds.
contenders=()
if [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null; then
    contenders+=("PyTorch DDP|torch_run"
                 "PyTorch DDP, bf16 hook|torch_run --hook=bf16"
                 "PyTorch DDP, bf16 hook, autocast|torch_run --hook=bf16 --mixed")
else
    echo "left out: PyTorch, which ${2:-python3} does not have"
fi
contenders+=("ddp|sotto_run --strategy=ddp --steps=6"
             "ddp, native collectives|sotto_run --strategy=ddp --comm.collectives=native --steps=4"
             "ddp, mixed|sotto_run --strategy=ddp --strategy.precision=mixed --steps=8"
             "acco|sotto_run --strategy=acco --steps=5"
             "co2, tau 8|sotto_run --strategy=co2 --tau=8 --steps=32"
             "diloco, H 20|sotto_run --strategy=diloco --H=20 --steps=40"
             "flexdemo, rate 1/32|sotto_run --strategy=flexdemo --mesh=2x1 --steps=24"
             "random, rate 1/32|sotto_run --strategy=random --steps=24")

echo "$(nproc) cores, ${rate:-100mbit}, $repeats turns; load $(cut -d' ' -f1 /proc/loadavg)"
"${train[@]}" --steps=0 --out=cached >out 2>&1 || { tail -5 out >&2; die "no data"; } # tokenized once
for turn in $(seq "$repeats"); do
    for c in "${contenders[@]}"; do
        name=${c%%|*}
        [[ $name == *"${only:-}"* ]] || continue
        speed=$(${c#*|}) || die "$name does not run"
        printf '%s\t%s\n' "$name" "$speed" >>speeds
        printf 'turn %d  %-34s %8.0f tokens/s\n' "$turn" "$name" "$speed"
    done
done
echo "load $(cut -d' ' -f1 /proc/loadavg)"
echo
echo "| | tokens/s, median | lowest .. highest |"
echo "|---|---|---|"
for c in "${contenders[@]}"; do
    name=${c%%|*}
    awk -F'\t' -v name="$name" '$1 == name { print $2 }' speeds | sort -g | awk -v name="$name" '
        { v[NR] = $1 }
        END { if (NR) printf "| %s | %.0f | %.0f .. %.0f |\n", name, (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2, v[1], v[NR] }'
done
exit 0
