#!/bin/bash
# Draws docs/results/co2/throughput.svg, throughput-13b.svg and overlap.svg from the tables of table3.ini, table9.ini and
# table8.ini, beside the paper's numbers (CO2, tables 3, 9 and 8).
#
# Usage: experiments/co2/figures.sh [RESULTS [FOLDER]]     experiments/out/co2 and docs/results/co2 by default
set -eu
cd "$(dirname "$0")/../.."
. experiments/figures.bash
draw_from "${1:-experiments/out/co2}" "${2:-docs/results/co2}"

throughput() { # TABLE METHOD: workers and words a second
    column "$results/$1/table.csv" tokens_per_s | sed -n "s/^$2_\([0-9]*\) /\1 /p"
}

mkdir "$work/table3" "$work/table9"
for method in co2_12_rdma adamw_rdma co2_48_tcp co2_12_tcp adamw_tcp; do
    throughput table3 $method >"$work/table3/$method"
done
for method in co2_12_rdma slowmo_12_rdma adamw_rdma co2_48_tcp slowmo_48_tcp co2_12_tcp slowmo_12_tcp adamw_tcp; do
    throughput table9 $method >"$work/table9/$method"
done
cat >"$work/table3/paper" <<END
8 17980 19276 18090 17995 18444
16 35692 38888 35969 18975 3488
32 72491 77782 71249 36095 7077
64 150073 151554 147507 70839 12855
128 307557 289106 304736 129865 22810
END
cat >"$work/table9/paper" <<END
8 9468 9463 9519 9508 9424 9324 9359 9482
16 18587 18620 19131 18672 18511 9694 9628 2283
32 37905 37467 38824 38151 38092 18792 18085 4192
64 75682 75503 75326 75573 75209 36968 33864 7984
128 151846 148987 147723 151678 146024 78638 66908 13832
END
column "$results/table8/table.csv" overlap | sed -n 's/^tau\([0-9]*\) /\1 /p' >"$work/overlap"
printf '%s\n' '1 6.52' '3 20.39' '6 41.81' '12 83.28' '24 100' '48 100' >"$work/overlap-paper"

gnuplot <<END
set terminal svg noenhanced size 900,560 font 'sans,13' background 'white'
set grid; set key left top maxrows 3
set logscale x; set xlabel 'workers'; set ylabel 'words a second and worker'; set xrange [7:150]; set yrange [0:3200]
set xtics (8, 16, 32, 64, 128)
set output '$folder/throughput.svg'
array name[5] = ['CO2 tau 12, RDMA', 'Adamw, RDMA', 'CO2 tau 48, TCP', 'CO2 tau 12, TCP', 'Adamw, TCP']
array file[5] = ['co2_12_rdma', 'adamw_rdma', 'co2_48_tcp', 'co2_12_tcp', 'adamw_tcp']
plot for [i=1:5] '$work/table3/'.file[i] using 1:(\$2/\$1) with lines lw 2 lc i title name[i], \
     for [i=1:5] '$work/table3/paper' using 1:(column(i+1)/\$1) with lines lw 2 dt 2 lc i notitle, \
     keyentry with lines lw 2 dt 2 lc 'black' title 'dashed: the paper'
set output '$folder/throughput-13b.svg'
set key maxrows 4; set yrange [0:1800]
array names[8] = ['CO2 tau 12, RDMA', 'SlowMo tau 12, RDMA', 'Adamw, RDMA', 'CO2 tau 48, TCP', 'SlowMo tau 48, TCP', \
                  'CO2 tau 12, TCP', 'SlowMo tau 12, TCP', 'Adamw, TCP']
array files[8] = ['co2_12_rdma', 'slowmo_12_rdma', 'adamw_rdma', 'co2_48_tcp', 'slowmo_48_tcp', 'co2_12_tcp', \
                  'slowmo_12_tcp', 'adamw_tcp']
plot for [i=1:8] '$work/table9/'.files[i] using 1:(\$2/\$1) with lines lw 2 lc i title names[i], \
     for [i=1:8] '$work/table9/paper' using 1:(column(i+1)/\$1) with lines lw 2 dt 2 lc i notitle, \
     keyentry with lines lw 2 dt 2 lc 'black' title 'dashed: the paper'
set xlabel 'tau'; set ylabel 'all-reduce hidden, %'; set xtics (1, 3, 6, 12, 24, 48); set xrange [0.9:55]; set yrange [0:110]
set output '$folder/overlap.svg'
plot '$work/overlap' using 1:(\$2*100) with lines lw 2 title 'sotto', \
     '$work/overlap-paper' with lines lw 2 dt 2 lc 'black' notitle, \
     keyentry with lines lw 2 dt 2 lc 'black' title 'the paper'
END
