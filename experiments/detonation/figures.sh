#!/bin/bash
# Draws docs/results/detonation/decoder.svg, bandwidth.svg and nodes.svg from the results of decoder.ini, bandwidth.ini and
# nodes.ini.
#
# Usage: experiments/detonation/figures.sh [RESULTS [FOLDER]]     experiments/out/detonation and docs/results/detonation by default
set -eu
cd "$(dirname "$0")/../.."
. experiments/figures.bash
draw_from "${1:-experiments/out/detonation}" "${2:-docs/results/detonation}"

# curve RUN: seconds and held-out loss, the mean over the seeds; steps of a run take equal times.
curve() {
    local seconds
    seconds=$(column "$results/decoder/table.csv" seconds | sed -n "s/^$1 //p")
    cat "$results/decoder/$1"-[0-9]*/metrics.jsonl | sed -n 's/^{"step": \([0-9]*\),.*"eval\/loss": \([0-9.]*\).*/\1 \2/p' |
        awk -v seconds="$seconds" '$1 { sum[$1] += $2; n[$1]++ } $1 > last { last = $1 }
            END { for (s in n) print s * seconds / last, sum[s] / n[s] }' | sort -n
}
for run in full_3e3 demo_3e3 random_3e2; do
    curve $run >"$work/$run"
done
for method in full demo_16 random_16 demo_32 random_32; do # seconds of a step, of 20
    column "$results/bandwidth/table.csv" seconds | sed -n "s/^${method}_\([0-9]*\) /\1 /p" | awk '{ print $1, $2 / 20 }' >"$work/bandwidth_$method"
done
for method in full demo random; do # of 10
    column "$results/nodes/table.csv" seconds | sed -n "s/^${method}_\([0-9]*\) /\1 /p" | awk '{ print $1, $2 / 10 }' >"$work/nodes_$method"
done

gnuplot <<END
set terminal svg noenhanced size 900,560 font 'sans,13' background 'white'
set grid
set output '$folder/decoder.svg'
set xlabel 'seconds'; set ylabel 'held-out loss'
plot '$work/full_3e3' with linespoints lw 2 title 'all gradients, AdamW', \
     '$work/demo_3e3' with linespoints lw 2 title 'demo 1/32', '$work/random_3e2' with linespoints lw 2 title 'random 1/16'
set logscale xy; set key right top
set output '$folder/bandwidth.svg'
set xlabel 'Mbit/s between the nodes'; set ylabel 'seconds a step'; set xtics (10, 100, 1000, 10000); set xrange [8:12500]
plot '$work/bandwidth_full' with linespoints lw 2 title 'all gradients', \
     '$work/bandwidth_demo_16' with linespoints lw 2 title 'demo 1/16', '$work/bandwidth_random_16' with linespoints lw 2 title 'random 1/16', \
     '$work/bandwidth_demo_32' with linespoints lw 2 title 'demo 1/32', '$work/bandwidth_random_32' with linespoints lw 2 title 'random 1/32'
unset logscale y; set key left top
set output '$folder/nodes.svg'
set xlabel 'nodes'; set xtics (2, 4, 8, 16, 32, 64); set xrange [1.8:70]; set yrange [0:17]
plot '$work/nodes_full' with linespoints lw 2 title 'all gradients', \
     '$work/nodes_demo' with linespoints lw 2 title 'demo 1/16', '$work/nodes_random' with linespoints lw 2 title 'random 1/16'
END
