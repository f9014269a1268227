#!/bin/bash
# The checkpoints from which the experiments in experiments/diloco and experiments/co2 start, experiments/out/diloco-pretrained and
# experiments/out/diloco-pretrained-32, -96: 300 rounds of 8 workers. What is there already is not made again.
#
# Usage: experiments/diloco/pretrain.sh [SOTTO]     the command, sotto by default
set -eu
sotto=${1:-sotto}
cd "$(dirname "$0")/../.."
make() { # FOLDER [KEYS]
    local out=$1
    shift
    [ -e "$out/model.safetensors" ] || "$sotto" train experiments/diloco/pretrain.ini --out="$out" "$@"
}
make experiments/out/diloco-pretrained
make experiments/out/diloco-pretrained-32 --model.width=32 --data.vocab=0 --data.tokenizer=experiments/out/diloco-pretrained
make experiments/out/diloco-pretrained-96 --model.width=96 --model.layers=3 --data.vocab=0 --data.tokenizer=experiments/out/diloco-pretrained
