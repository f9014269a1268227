#!/bin/bash
# What ACCO's lane and its second reduction cost where there is nothing to hide: samples/s of acco against ddp in real
# time, workers as threads, no link modelled. Short runs of the two alternate, the first of a pair changing each time,
# so that the machine's noise hits both alike. Prints each pair, then the median ratio and its quartiles; and the same of
# samples a second of processor time, which other people's load disturbs less.
#
# Usage: bench/overhead.sh [SOTTO [PAIRS [ROUNDS [DATA]]]]      default: build/release/sotto 10 40, made-up stories
#
# An update is 2 micro-batches a worker for both. The first fifth of the rounds warms up and is not counted.
set -eu
sotto=${1:-build/release/sotto} pairs=${2:-10} rounds=${3:-40} data=${4:-stories}
[ -x "$sotto" ] || { echo "$0: no command $sotto (give its path)" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

rate() { # METHOD ACCUMULATE -> samples/s, samples a second of processor time
    rm -rf "$tmp/run"
    local TIMEFORMAT='%U %S'
    { time "$sotto" train --out="$tmp/run" --workers=2 --strategy="$1" --accumulate="$2" --steps="$rounds" --batch=8 --seq=128 \
        --data.train="$data" --data.vocab=2048 --data.cache="$tmp" --log_every=$(((rounds + 4) / 5)) --eval_batches=1 \
        --data.stories=2000 >"$tmp/log" 2>&1; } 2>"$tmp/cpu" || { cat "$tmp/log" >&2; return 1; }
    awk -v cpu="$(cat "$tmp/cpu")" '/"train\/samples"/ {
            match($0, /"train\/samples": [0-9]+/); n = substr($0, RSTART + 17, RLENGTH - 17)
            match($0, /"time\/seconds": [0-9.]+/); s = substr($0, RSTART + 16, RLENGTH - 16)
            if (!n0) { n0 = n; s0 = s }
         }
         END { split(cpu, c, " "); printf "%.3f %.3f", (n - n0) / (s - s0), n / (c[1] + c[2]) }' "$tmp/run/metrics.jsonl"
}

echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores; nano, batch 8 x 128, 2 workers, $rounds rounds a run"
rate ddp 2 >/dev/null # fills the cache of tokens
for ((i = 0; i < pairs; i++)); do
    if ((i % 2)); then
        acco=$(rate acco 1)
        ddp=$(rate ddp 2)
    else
        ddp=$(rate ddp 2)
        acco=$(rate acco 1)
    fi
    echo "$ddp $acco" | tee -a "$tmp/pairs" | awk '{
        printf "ddp %7.2f  acco %7.2f samples/s  ratio %.4f  processor %.4f\n", $1, $3, $3 / $1, $4 / $2 }'
done

quartiles() { # WHAT, numbers on standard input
    sort -n | awk -v what="$1" '
        function at(q,    x, i) {
            x = 1 + q * (NR - 1)
            i = int(x)
            return i < NR ? r[i] + (x - i) * (r[i + 1] - r[i]) : r[NR]
        }
        { r[NR] = $1 }
        END { printf "acco/ddp, %s: median %.4f (quartiles %.4f .. %.4f) of %d pairs\n", what, at(.5), at(.25), at(.75), NR }'
}
awk '{ print $3 / $1 }' "$tmp/pairs" | quartiles "samples/s"
awk '{ print $4 / $2 }' "$tmp/pairs" | quartiles "samples/s of processor time"
echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
