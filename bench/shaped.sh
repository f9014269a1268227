#!/bin/bash
# bench/shaped.sh [SOTTO [RUNS [OPTIONS...]]]: whether virtual time tells the truth. Trains with two threads whose link is
# slowed down in real time, and on the same cluster in virtual time, with the micro-batch as it was in the real run
# (ratio 1) and as a simulated run measures it before it starts (ratio 2, which wants idle cores to mean anything).
# RUNS times. Options go to all, e.g. --strategy.preset=zero1.
set -eu
sotto=$(readlink -f "${1:-build/sotto}")
runs=${2:-3}
shift $(($# < 2 ? $# : 2))
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

steps=12
train=("$sotto" train --data.train=stories --data.stories=300 --data.vocab=512 --data.cache=cache --layers=4 --width=128
       --heads=4 --positions=64 --batch=16 --steps=$steps --log_every=100 --eval_batches=1 --workers=2 --threads=2
       --nodes=2 --link.inter=25MB/s,1ms "$@")
value() {
    sed -n "s/^ \"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" "$2/report.json"
}
echo "${train[*]:1}"
"${train[@]}" --steps=1 --out=warm >/dev/null # makes the cache
for i in $(seq "$runs"); do
    "${train[@]}" --out="real.$i" >/dev/null
    step=$(awk -v c="$(value compute "real.$i")" -v n=$steps 'BEGIN { printf "%.6f", c / n }')
    "${train[@]}" --time=virtual --worker.step="${step}s" --out="same.$i" >/dev/null
    "${train[@]}" --time=virtual --out="measured.$i" >log
    measured=$(sed -n 's/^virtual time: a micro-batch takes \(.*\)s at speed 1$/\1/p' log)
    awk -v step="$step" -v measured="$measured" -v r="$(value seconds "real.$i")" -v s="$(value seconds "same.$i")" \
        -v m="$(value seconds "measured.$i")" -v rc="$(value wire "real.$i")" -v rx="$(value exposed "real.$i")" \
        -v sc="$(value wire "same.$i")" -v sx="$(value exposed "same.$i")" 'BEGIN {
        printf "real %.3f s (communication %.3f, exposed %.3f); virtual %.3f s (communication %.3f, exposed %.3f) with " \
               "micro-batches of %.1f ms: ratio %.3f; virtual %.3f s with %.1f ms: ratio %.3f\n", r, rc, rx, s, sc, sx,
               1000 * step, r / s, m, 1000 * measured, r / m }'
done
