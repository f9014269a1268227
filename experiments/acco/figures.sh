#!/bin/bash
# Draws docs/results/acco/figure3.svg, seconds of a step that compute and that average gradients, from figure3.ini's table.
#
# Usage: experiments/acco/figures.sh [RESULTS [FOLDER]]     experiments/out and docs/results/acco by default
set -eu
cd "$(dirname "$0")/../.."
. experiments/figures.bash
draw_from "${1:-experiments/out}" "${2:-docs/results/acco}"
data=$work/figure3

awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
         { print substr($1, 2), $at["compute"], $at["wire"] }' "$results/figure3/table.csv" >"$data"

gnuplot <<END
set terminal svg noenhanced size 900,480 font 'sans,13' background 'white'
set grid y; set key left top
set style data histogram; set style histogram clustered gap 1; set style fill solid
set xlabel 'workers, 8 a node'; set ylabel 'seconds a step'; set yrange [0:*]
set output '$folder/figure3.svg'
plot '$data' using 2:xtic(1) title 'computing gradients', '' using 3 title 'averaging them'
END
