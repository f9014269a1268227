#!/bin/bash
# Figure 4 of the paper: activations of a worker over a training step of ResNet-50 and ViT-B/16 on images of 224 x 224, one a
# micro-batch, with plain and with cyclic data parallelism, 4, 8 and 32 stages and micro-batches. Twice: added up from one
# micro-batch's curve as in the paper, and measured with all of them under way in one worker (cdp.placement = single).
# Prints the table and draws docs/results/cdp/figure4.svg with gnuplot. 4.5 minutes of processor time, 5 GB of memory.
#
# Usage: experiments/cdp/figure4.sh [FOLDER [SOTTO]]     docs/results/cdp and sotto by default
set -eu
. "$(dirname "$0")/../figures.bash"
sotto=${2:-sotto}
draw_from - "${1:-docs/results/cdp}"

mkdir -p "$work/images/a" "$work/images/b"
for class in a b; do # what they show does not matter here
    { printf 'P6\n224 224\n255\n'; yes $class | head -c $((3 * 224 * 224)); } >"$work/images/$class/image.ppm"
done

train() { # MODEL OPTION... ; its trace
    local model=$1
    shift
    "$sotto" train --model="$model" --data.train="$work/images" --data.holdout=0 --out="$work/run" --batch=1 --optim.kind=sgd \
        --trace=true "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
    tail -n +2 "$work/run/trace-0.tsv"
    rm -r "$work/run"
}

# One micro-batch: time from 0 to 1 and MB in use behind every layer's forward and backward. Time is in proportion to the work,
# a backward being twice a forward, as virtual time has it.
one() { # MODEL STAGES
    train "$1" --steps=2 --stages="$2" --time=virtual --worker.step=1s |
        awk 'BEGIN { print 0, 0 } { if ($3 == 0) begin = $2; else print $2 - begin, $6 / 1e6 }'
}

# N workers that begin 1/N of a step behind each other: time and MB a worker.
added() { # N <CURVE
    awk -v n="$1" '
        { t[NR] = $1; m[NR] = $2 }
        function at(x, i) {
            for (i = 2; i < NR && t[i] < x; i++);
            return m[i - 1] + (m[i] - m[i - 1]) * (x - t[i - 1]) / (t[i] - t[i - 1])
        }
        END { for (g = 0; g <= 960; g++) {
            for (sum = i = 0; i < n; i++) { x = g / 960 + i / n; sum += at(x > 1 ? x - 1 : x) }
            print g / 960, sum / n } }'
}

# All micro-batches in one worker: the middle of every time step of a training step, from 0 to 1, and the most MB in it by N, of
# its tasks in turn, as they run, and as if they all ran at once: what there was before it, and what each takes. The cyclic schedule
# is full from time step 2N - 2 on.
single() { # MODEL N RULE
    train "$1" --steps=1 --strategy=cdp --cdp.placement=single --cdp.stages="$2" --cdp.rule="$3" |
        awk -v n="$2" -v cyclic=$([ "$3" = sync ] || echo 1) '
            {
                time = 2 * n * int($3 / n) + ($5 == "forward" ? $4 - 1 : 2 * n - $4) + (cyclic ? 2 * ($3 % n) - (2 * n - 2) : 0)
                if (!(time in once)) once[time] = live
                once[time] += $7 - live
                if ($7 > turn[time]) turn[time] = $7
                live = $6
            }
            END { for (time = 0; time < 2 * n; time++) print (time + 0.5) / (2 * n), turn[time] / n / 1e6, once[time] / n / 1e6 }'
}

most() { awk -v column="${2:-2}" '$column > most { most = $column } END { print most }' "$1"; }
less() { # A B: how much less B is, in percent
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f %%", 100 * (1 - b / a) }'
}

echo "| | N | dp, MB | v2, MB | in turn | at once | added up | equal stages | paper |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
measure() { # KEY NAME MODEL STAGES PAPER
    local at=$work/$1
    one "$3" "$4" >"$at-one"
    for n in 4 8 32; do
        single "$3" $n sync >"$at-dp-$n"
        single "$3" $n v2 >"$at-v2-$n"
        added $n <"$at-one" >"$at-added-$n"
        local dp=$(most "$at-dp-$n") v2=$(most "$at-v2-$n")
        printf '| %s | %d | %.1f | %.1f | %s | %s | %s | %s | %s |\n' "$2" $n "$dp" "$v2" "$(less "$dp" "$v2")" \
            "$(less "$(most "$at-dp-$n" 3)" "$(most "$at-v2-$n" 3)")" "$(less "$(most "$at-one")" "$(most "$at-added-$n")")" \
            "$(less $((2 * n)) $((n + 1)))" "$([ $n != 32 ] || echo "$5")"
    done
}
measure resnet ResNet-50 resnet50 18 "30 %"
measure vit ViT-B/16 vit-b/16 26 "42 %"

gnuplot <<END
set terminal svg noenhanced size 1000,760 font 'sans,13' background 'white'
set output '$folder/figure4.svg'
set multiplot layout 2,2
set grid; set xrange [0:1]; set key at graph 0.98,0.97 right top samplen 2; set ylabel 'activations of a worker, MB'
array key[2] = ['resnet', 'vit']
array name[2] = ['ResNet-50', 'ViT-B/16']
n(i) = word('4 8 32', i)
do for [k=1:2] {
    at = '$work/'.key[k]
    stats at.'-one' using 2 nooutput
    half = STATS_max / 2
    set yrange [0:1.35 * STATS_max]
    set title name[k].', added up from one micro-batch'; set xlabel 'time, in training steps'
    plot at.'-one' with lines lw 2 lc 'grey30' title 'dp', \
         for [i=1:3] at.'-added-'.n(i) every 4 with lines lw 2 dt 2 lc i title 'v2, N = '.n(i), \
         half with lines lc 'black' title 'half'
}
do for [k=1:2] {
    at = '$work/'.key[k]
    stats at.'-dp-32' using 2 nooutput
    set yrange [0:1.5 * STATS_max]
    set title name[k].', measured in one worker'; set xlabel 'time, in training steps'
    plot for [i=1:3] at.'-dp-'.n(i) with lines lw 2 lc i title 'dp, N = '.n(i), \
         for [i=1:3] at.'-v2-'.n(i) with lines lw 2 dt 2 lc i title 'v2, N = '.n(i)
}
END
