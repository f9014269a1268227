#!/bin/bash
# The checkpoints from which the experiments in experiments/diloco and experiments/co2 start, experiments/out/diloco-pretrained and
# experiments/out/diloco-pretrained-32, -96: 300 rounds of 8 workers. What is there already is not made again. Each is compared with
# experiments/SHA256.
#
# 300 rounds at a learning rate of 1e-2 make losses that are 0.02 apart of sums that differ in their last bits, and each kind of
# kernels rounds in a way of its own. So where the processor has AVX2 the kernels are v3's, whatever else it has.
#
# Usage: experiments/diloco/pretrain.sh [SOTTO]     the command, sotto by default
set -eu
sotto=${1:-sotto}
cd "$(dirname "$0")/../.."
. experiments/hashes.bash
kernels=()
case $("$sotto" info) in
    *"cpu (amx"* | *"cpu (v4"* | *"cpu (v3"*) kernels=(--device=cpu:v3) ;;
esac
make() { # FOLDER [KEYS]
    local out=$1
    shift
    [ -e "$out/model.safetensors" ] || "$sotto" train experiments/diloco/pretrain.ini --out="$out" "${kernels[@]}" "$@"
    echo "$out/model.safetensors: $(compare_hash "$out/model.safetensors")"
}
make experiments/out/diloco-pretrained
make experiments/out/diloco-pretrained-32 --model.width=32 --data.vocab=0 --data.tokenizer=experiments/out/diloco-pretrained
make experiments/out/diloco-pretrained-96 --model.width=96 --model.layers=3 --data.vocab=0 --data.tokenizer=experiments/out/diloco-pretrained
