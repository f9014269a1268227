# Benches that lack a device or kernels say so in one line, and leave no process behind.
. "$(dirname "$0")/lib.bash"
folder=$(dirname "$sotto") scripts=$(dirname "$self")/../../bench
python3 -c 'import json, statistics' 2>/dev/null && [ -x "$folder/bench_step" ] && [ -x "$folder/bench_ops" ] ||
    { echo "skipped: takes the benches, and more of Python than python3-minimal has"; exit 77; }

one_line() {
    local text=$1
    shift
    fails_with "$text" "$@"
    [ "$(wc -l <out)" = 1 ] || { cat out >&2; die "more than a line: $*"; }
}
export CUDA_VISIBLE_DEVICES=
for _ in 1 2 3; do # whether it has ended when it is asked for a step
    one_line "bench_step: no device 'cuda'" timeout 300 python3 "$scripts/step.py" --sotto "$folder/bench_step" --device cuda
done
one_line "no kernels 'v9' on this machine" timeout 300 python3 "$scripts/products.py" --sotto "$folder/bench_ops" --kernels v9
exit 0
