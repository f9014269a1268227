#!/bin/bash
# Table 1 of the paper (memory, volume, messages, devices), counted in the schedules of cyclic data parallelism and of what it
# is compared with, and figure 1, their timelines: docs/results/cdp/figure1-dp.svg, -v1.svg and -v2.svg. A second or two.
#
# Usage: experiments/cdp/table1.sh [STAGES [FOLDER [SOTTO]]]     4, docs/results/cdp and sotto by default
set -eu
stages=${1:-4} folder=${2:-docs/results/cdp} sotto=${3:-sotto}
mkdir -p "$folder"
for kind in dp cdp-v1 cdp-v2; do
    "$sotto" info --schedule=$kind --stages=3 --svg="$folder/figure1-${kind#cdp-}.svg" >/dev/null
done

row() { # NAME SCHEDULE PLACEMENT
    "$sotto" info --schedule="$2" --placement="$3" --stages="$stages" | awk -v name="$1" '
        /^  devices/ { devices = $NF }
        /^  activations of a device/ { activations = $(NF - 1) }
        /^  parameters of a device/ { parameters = $(NF - 1) }
        /^  optimizer state of a device/ { state = $(NF - 1) }
        /^  sums of gradients sent/ { sums = $(NF - 1) }
        /^  parameters sent/ { sent = $(NF - 1) }
        /^  optimizer state sent/ { moved = $(NF - 1) }
        /^  activations sent/ { edges = $NF }
        /^  their gradients/ { edges += $NF }
        /^  messages a device/ { most = $NF }
        /^  consecutive messages/ { hops = $NF }
        END { printf "| %s | %g | %g | %g | %g | %g | %g | %d | %d | %d | %d |\n", name, activations, parameters, state, sums, sent,
              moved, edges, most, hops, devices }'
}

echo "| N = $stages | activations | parameters | optimizer | sums | parameters sent | optimizer sent | edges | at once | in a row | devices |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
row "single, dp" dp single
row "single, v2" cdp-v2 single
row "single, v1" cdp-v1 single
row "dp" dp dp
row "dp, v2" cdp-v2 dp
row "dp, v1" cdp-v1 dp
row "mp, v2" cdp-v2 mp
row "mp, v1" cdp-v1 mp
row "pp, 1f1b" 1f1b pp
row "pp, v2" cdp-v2 pp
row "pp, v1 (PipeDream-2BW)" cdp-v1 pp
row "zero, v2" cdp-v2 zero
row "zero, v1" cdp-v1 zero
