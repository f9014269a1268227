#!/bin/bash
# Draws docs/results/async/mixture.svg, the held-out loss of examples/mixture.c over updates and over time, from its mixture.tsv.
#
# Usage: experiments/diloco/mixture.sh [RESULTS [FOLDER]]     experiments/out/mixture and docs/results/async by default
set -eu
cd "$(dirname "$0")/../.."
. experiments/figures.bash
draw_from "${1:-experiments/out/mixture}" "${2:-docs/results/async}"
runs=(sync-sgd sync-nesterov async-sgd async-nesterov async-delayed async-delayed-dylu)
colors=(E69F00 0072B2 E69F00 D55E00 009E73 CC79A7)

curves() { # COLUMN
    local i comma="plot"
    for i in "${!runs[@]}"; do
        printf "%s '%s' index %d using %s:4 with lines linewidth 2 linecolor rgb '#%s' dashtype %s title '%s'" "$comma" \
            "$results/mixture.tsv" "$i" "$1" "${colors[i]}" "$([[ ${runs[i]} = sync* ]] && echo 1 || echo '(12,4)')" "${runs[i]}"
        comma=,
    done
    echo
}

gnuplot <<END
set terminal svg noenhanced size 1200,520 font 'sans,13' background 'white'
set output '$folder/mixture.svg'
set datafile separator "\t"
set grid linetype 1 linecolor rgb '#E0E0E0'; set tics nomirror; set yrange [1.2:1.4]
set multiplot layout 1,2
set ylabel 'loss on held-out data'; set xlabel 'updates of each data shard'; set key right top
$(curves 2)
unset key; set xlabel 'virtual seconds'
$(curves 3)
END
