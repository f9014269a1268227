#!/bin/bash
# Seconds of a training step in steady state, of ddp and of cyclic data parallelism's dp, on links of several bandwidths, in
# virtual time: a model of 40 million parameters in fp32, of which a worker computes a micro-batch in 0.8 s. ddp is cut into 1, 2,
# 4 or as many stages as there are workers, whichever is fastest. Less than a minute.
#
# Usage: experiments/cdp/step-time.sh [WORKERS [LATENCY [SOTTO]]]     4, 10us and sotto by default
set -eu
workers=${1:-4} latency=${2:-10us} sotto=$(command -v "${3:-sotto}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

total() { # STEPS BANDWIDTH OPTION...
    local steps=$1 link=$2,$latency
    shift 2
    rm -rf "$scratch/run"
    "$sotto" train --oracle=null --null.parameters=40M --time=virtual --worker.step=800ms --workers="$workers" --nodes="$workers" \
        --link.inter="$link" --clip=0 --eval_every=0 --save_every=0 --steps="$steps" --out="$scratch/run" "$@" >/dev/null
    sed -n 's/^ "seconds": \([-0-9.e+]*\),\{0,1\}$/\1/p' "$scratch/run/report.json"
}

step() { # the first steps fill the pipeline
    awk -v a="$(total 6 "$@")" -v b="$(total 16 "$@")" 'BEGIN { printf " %.3f |", (b - a) / 10 }'
}

ddp() {
    for stages in 1 2 4 "$workers"; do
        step "$1" --strategy=ddp --stages=$stages
        echo
    done | sort -n | head -1 | tr -d '\n'
}

echo "| $workers workers, $latency | ddp | sync | v1 | v2 |"
echo "|---|---:|---:|---:|---:|"
for link in 4GB/s 1GB/s 600MB/s 400MB/s 200MB/s 100MB/s 50MB/s; do
    printf '| %s |' "$link"
    ddp $link
    for rule in sync v1 v2; do
        step $link --strategy=cdp --cdp.rule=$rule --stages="$workers"
    done
    echo
done
