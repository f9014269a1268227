#!/bin/bash
# netns.sh SOTTO [ROUNDS]: two hosts joined by 100 Mbit/s, made of network namespaces, under Open MPI: ddp, zero1 and acco
# one after another ROUNDS times (default 3). acco computes more an update where its exchange outlasts a micro-batch:
# `steps` are the updates of ddp and zero1, `acco_steps` those of acco, to be set so that the samples are equal. A line
# each: seconds, samples, what of the time was waiting, the held-out loss.
rounds=${2:-3} limit=300
. "$(dirname "$0")/../tests/netns/lib.bash"

# 1.2 million parameters: with micro-batches of about a second, communication would fit beside computing.
common=(--data.train=stories --data.stories=3000 --data.vocab=1024 --data.cache=cache --layers=6 --width=128 --heads=4
        --positions=128 --batch=${batch:-8} --threads=1 --eval_batches=8 --optim.lr=1e-3 --optim.warmup=4
        --log_every=1)
one() { # one NAME ROUND OPTIONS...
    local name=$1 run=$1-$2
    shift 2
    succeeds "${across[@]}" "$sotto" train "${common[@]}" "$@" --out="$run"
    awk -v name="$name" -v seconds="$(value seconds "$run")" -v samples="$(value samples "$run")" \
        -v exposed="$(value exposed "$run")" -v compute="$(value compute "$run")" -v loss="$(value eval_loss "$run")" \
        -v bytes="$(value bytes "$run")" 'BEGIN {
        printf "%-6s %7.2f s  %5d samples  %6.2f samples/s  computing %6.2f s  waiting %6.2f s (%4.1f%%)  %6.1f MB  loss %.4f\n",
               name, seconds, samples, samples / seconds, compute, exposed, 100 * exposed / seconds, bytes / 1e6, loss }'
}
for round in $(seq "$rounds"); do
    one ddp "$round" --strategy=ddp --strategy.accumulate=2 --steps=${steps:-12}
    one zero1 "$round" --strategy=zero1 --strategy.accumulate=2 --steps=${steps:-12}
    one acco "$round" --strategy=acco --strategy.accumulate=1 --steps=${acco_steps:-${steps:-12}}
done
