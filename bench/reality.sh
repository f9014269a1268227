#!/bin/bash
# reality.sh SOTTO [TURNS]: whether virtual time tells the truth. Clusters of two to four hosts made of network namespaces,
# their adapters limited to 100 Mbit/s or one of them to half of it; the same work under mpirun across them, TURNS times
# (default 3), and once in virtual time. The links are described to virtual time as two plain TCP sockets find them. A
# table with the median, the lowest and the highest, and the ratio of the median to virtual time.
#
# Micro-batches sleep (bench_reality, beside SOTTO), so that hosts need not share the cores of this machine; where that is
# permitted they have real-time priority, so that its load does not matter. Only the last rows compute: two hosts with
# a core each, which want an idle machine. `only` runs clusters whose name has it, `methods` those methods.
[ $# -gt 0 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2; }
turns=${2:-3}
here=$(cd "$(dirname "$0")" && pwd)
bench=$(dirname "$(readlink -f "$1")")/bench_reality
results=$(mktemp) # CLUSTER, WHAT, real or virtual, SECONDS, MICRO-BATCHES
trap 'rm -f "$results"' EXIT
urgent=(chrt -r 1)
"${urgent[@]}" true 2>/dev/null || urgent=()
set -- "$1"

link() { # link I J: payload bytes a second and seconds, from host J to host I
    local server
    "${urgent[@]}" ./on_node $1 python3 "$here/tcp.py" serve 10.231.7.$(($1 + 1)) &
    server=$!
    "${urgent[@]}" ./on_node $2 python3 "$here/tcp.py" 10.231.7.$(($1 + 1)) || die "no TCP between the hosts"
    wait $server
}

# Describes to virtual time in `virtual` what the hosts are. Speeds are relative to the first host's.
describe() {
    local i bytes seconds first speed=1
    read -r first seconds <<<"$(link 0 1)"
    for i in $(seq 1 $((hosts - 1))); do
        read -r bytes _ <<<"$(link 0 $i)"
        speed+=,$(awk -v a=$bytes -v b=$first 'BEGIN { r = a / b; if (r > 0.99) r = 1; printf "%.3f", r }')
    done
    virtual=(--time=virtual --workers=$((hosts * each)) --nodes=$hosts --link.inter=${first}B/s,${seconds}s --link.speed=$speed)
    [ $each -eq 1 ] || virtual+=(--link.intra=2GB/s,10us)
    # Where a micro-batch is given, the memory's speed has to be as well; half a million parameters are bench_reality's.
    "${urgent[@]}" "$sotto" train "${tiny[@]}" --layers=4 --width=96 --steps=1 --time=virtual --out=memory >out 2>&1 || { cat out >&2; die "no memory's speed"; }
    memory=$(sed -n 's|.*memory \([0-9.]*[MG]B/s\): measured.*|\1|p' out)
    echo "$cluster: ${virtual[*]} --worker.memory=$memory" >&2
}

keep() { # keep KIND: lines "WHAT SECONDS s[, MICRO-BATCHES micro-batches ...]" from bench_reality
    sed -n "s|^\([a-z][a-z 0-9]*\) \([0-9.]*\) s\(, \([0-9]*\) micro-batches.*\)\{0,1\}$|$cluster\t${name:-\1}\t$1\t\2\t\4|p" out >>"$results"
}

training() {
    local turn m name
    for turn in $(seq 0 $turns); do # turn 0 is virtual
        run=("${urgent[@]}" "${across[@]}" "$bench") kind=real
        [ $turn -gt 0 ] || { run=("$bench" "${virtual[@]}" --worker.memory=$memory); kind=virtual; }
        [ $work = training ] || { succeeds "${run[@]}" calls 10; name= keep $kind; }
        for m in ${methods-ddp zero1 fsdp acco co2 diloco}; do
            case $m in
            co2) rounds="--tau=4 --steps=16 --kind=sgd" ;;
            diloco) rounds="--H=4 --steps=16 --kind=sgd" ;;
            demo) rounds="--steps=8 --shape=flat" ;;
            random | striding) rounds=--steps=8 ;;
            *) rounds="--steps=8 --kind=sgd" ;;
            esac
            succeeds "${run[@]}" train 100 --strategy=$m --threads=1 $rounds
            name=$m keep $kind
        done
    done
}

# Also messages and collectives at once.
sleeping() {
    training
}

# Two hosts of one machine, which computes on one core for each; lanes run where there is room, as nothing is bound. Virtual
# time gets the micro-batches of the real run, of each worker: what a core makes of them varies from minute to minute.
computing() {
    local turn m first second count
    local train=("$sotto" train --data.train=stories --data.stories=1000 --data.vocab=1024 --data.cache="$scratch/cache" --layers=6
                 --width=128 --heads=4 --positions=128 --batch=8 --threads=1 --eval_batches=1 --log_every=1000)
    one() { # one KIND COMMAND...
        local kind=$1
        shift
        rm -rf run
        succeeds "$@" --strategy=$m $rounds --out=run
        count=$(($(value samples run) / 8))
        printf '%s\t%s\t%s\t%s\t%s\n' "$cluster" "$m" $kind "$(value seconds run)" $count >>"$results"
    }
    succeeds "${train[@]}" --steps=0 --out=cached
    for turn in $(seq $turns); do
        for m in ${methods-ddp zero1 fsdp acco co2 diloco}; do
            case $m in
            co2) rounds="--tau=4 --steps=16" ;;
            diloco) rounds="--H=4 --steps=16" ;;
            *) rounds=--steps=8 ;;
            esac
            one real "${across[@]}" "${train[@]}"
            read -r first second <<<"$(awk '/^[01] / { printf "%s ", $3 }' out)" # seconds of computing
            one virtual "${train[@]}" "${virtual[@]}" --worker.memory=$memory \
                --worker.step=$(awk -v c=$first -v n=$count 'BEGIN { printf "%.6f", 2 * c / n }')s \
                --worker.speed=1,$(awk -v a=$first -v b=$second 'BEGIN { printf "%.4f", a / b }')
        done
    done
}

on_hosts() { # on_hosts NAME WORK HOSTS EACH RATE
    [[ $1 == *"${only:-}"* ]] || return 0
    (
        cluster=$1 work=$2 hosts=$3 each=$4 rate=$5 limit=120
        set -- "$sotto"
        . "$here/../tests/netns/lib.bash"
        describe
        $work
    ) || exit 1
}

table() {
    echo "| cluster | | real, s | lowest .. highest | virtual, s | real / virtual | micro-batches |"
    echo "|---|---|---|---|---|---|---|"
    awk -F'\t' '
        function middle(kind, key,  last) {
            last = n[kind, key]
            return (v[kind, key, int((last + 1) / 2)] + v[kind, key, int((last + 2) / 2)]) / 2
        }
        { key = $1 FS $2 }
        !(key in seen) { seen[key]; row[++rows] = key }
        { for (i = ++n[$3, key]; i > 1 && v[$3, key, i - 1] > $4; i--) v[$3, key, i] = v[$3, key, i - 1]
          v[$3, key, i] = $4; batches[$3, key] = $5 }
        !($1 in known) { known[$1]; cluster[++clusters] = $1 }
        END { for (c = 1; c <= clusters; c++) for (i = 1; i <= rows; i++) if (index(row[i], cluster[c] FS) == 1) {
            key = row[i]; split(key, part, FS); real = batches["real", key]; virtual = batches["virtual", key]
            printf "| %s | %s | %.3f | %.3f .. %.3f | %.3f | %.3f | %s |\n", part[1] == before ? "" : part[1], part[2],
                   middle("real", key), v["real", key, 1], v["real", key, n["real", key]], middle("virtual", key),
                   middle("real", key) / middle("virtual", key), real == virtual ? real : real ", virtual " virtual
            before = part[1] } }' "$results"
}

# A switch as Linux has it: a queue for each sender; with one queue two TCP flows of unequal hosts share it as luck has it.
sotto=$1 fair=yes
on_hosts "2 hosts" sleeping 2 1 100mbit
on_hosts "3 hosts" sleeping 3 1 100mbit
on_hosts "4 hosts" sleeping 4 1 100mbit
on_hosts "3 hosts, one at 50 Mbit/s" sleeping 3 1 "100mbit 100mbit 50mbit"
fair= methods= on_hosts "the same, one queue for all senders" sleeping 3 1 "100mbit 100mbit 50mbit"
on_hosts "2 hosts x 2 workers" sleeping 2 2 100mbit
for at in 10mbit 100mbit 1gbit 10gbit; do
    methods=${methods-ddp demo random} on_hosts "2 hosts at $at" training 2 1 $at
done
on_hosts "2 hosts, computing" computing 2 1 100mbit
table
