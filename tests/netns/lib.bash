# Sourced with the sotto command as $1: $hosts (2) network namespaces at a switch, the adapters limited to $rate (100mbit; a
# word for each host, the last for all that follow; host i has the address $subnet.(i+1)), a scratch folder to stand in, and in
# `across` what runs a command under Open MPI with $each (1) ranks in each. Exits 77 where that is not permitted.
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.bash"

skip() {
    echo "skipped: $*"
    exit 77
}
case $(ldd "$sotto") in
*libtsan*) skip "ThreadSanitizer cannot see into an MPI library" ;;
*libmpich*) skip "written for Open MPI's launcher" ;;
*libmpi.so*) ;;
*) skip "$sotto is not linked to MPI" ;;
esac
mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "no mpirun"
for tool in ip tc unshare; do
    command -v $tool >/dev/null || skip "no $tool (iproute2, util-linux)"
done
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} # MPI libraries keep what they allocate

net=sotto$$
hosts=${hosts:-2} each=${each:-1} subnet=${subnet:-10.231.7} at=
read -r -a rates <<<"${rate:-100mbit}"
names=(switch $(seq 0 $((hosts - 1))))
clean_up() {
    local i pids
    for i in "${names[@]}"; do
        pids=$(ip netns pids $net-$i 2>/dev/null) # what a failed launch left behind in there
        [ -z "$pids" ] || kill -9 $pids 2>/dev/null
        ip netns del $net-$i 2>/dev/null
    done
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# Node i is namespace i with its own host name: to Open MPI these are machines. Each has an adapter, whose cable ends in a
# switch; what leaves it and what comes in are limited alike, one at each end of the cable. Packets below 128 bytes, the
# acknowledgements, go first: in one queue with data they would wait for the other direction's bytes, and a link would
# carry less while both directions are busy. A queue of data holds 100 ms; there is one, or with $fair one for each host that
# sends.
shape() { # shape NAME DEVICE RATE
    local tc="tc -n $net-$1" tenth burst way i queues=0
    case $3 in
    *mbit) tenth=$((${3%mbit} * 100)) ;;
    *gbit) tenth=$((${3%gbit} * 100000)) ;;
    *) die "rate $3: want a number of mbit or gbit" ;;
    esac # in kbit
    burst=$((tenth < 10000 ? tenth * 33 / 10 : 32768)) # of 2.6 ms at the most: a small message is not for nothing
    way="burst ${burst}b cburst ${burst}b quantum 1514"
    [ -z "${fair:-}" ] || queues=$((hosts - 1))
    $tc qdisc add dev $2 root handle 1: htb default 20 &&
        $tc class add dev $2 parent 1: classid 1:1 htb rate $3 $way &&
        $tc class add dev $2 parent 1:1 classid 1:10 htb rate ${tenth}kbit ceil $3 prio 0 $way &&
        $tc filter add dev $2 parent 1: protocol ip prio 1 u32 match u16 0 0xff80 at 2 flowid 1:10 || return
    for i in $(seq 0 $queues); do
        $tc class add dev $2 parent 1:1 classid 1:2$i htb rate $((9 * tenth / (queues + 1)))kbit ceil $3 prio 1 $way &&
            $tc qdisc add dev $2 parent 1:2$i bfifo limit $((tenth * 125)) || return
        [ $i -eq 0 ] || $tc filter add dev $2 parent 1: protocol ip prio 2 u32 match ip src $subnet.$((i + 1)) flowid 1:2$i || return
    done
}
for i in "${names[@]}"; do
    ip netns add $net-$i 2>why || skip "no network namespaces: $(cat why)"
    ip -n $net-$i link set lo up
    # Windows stay open between two exchanges, and grow and shrink by the rule that every kernel has.
    ip netns exec $net-$i sh -c 'cd /proc/sys/net/ipv4 && echo 0 >tcp_slow_start_after_idle && echo reno >tcp_congestion_control' 2>why ||
        skip "no settings of TCP: $(cat why)"
done
ip -n $net-switch link add br0 type bridge 2>why && ip -n $net-switch link set br0 up || skip "no bridge: $(cat why)"
for i in "${names[@]:1}"; do
    ip -n $net-$i link add eth0 type veth peer name port$i netns $net-switch 2>why || skip "no veth: $(cat why)"
    ip -n $net-switch link set port$i master br0 && ip -n $net-switch link set port$i up || die "port of node $i"
    ip -n $net-$i address add $subnet.$((i + 1))/24 dev eth0 && ip -n $net-$i link set eth0 up || die "address of node $i"
    r=${rates[i < ${#rates[@]} ? i : -1]}
    shape $i eth0 $r 2>why && shape switch port$i $r 2>why || skip "no tc htb with u32: $(cat why)"
    at+=${at:+,}$subnet.$((i + 1)):$each
done
cat >on_node <<'EOF'
#!/bin/sh
# on_node N COMMAND...: on node N.
node=$1
shift
exec ip netns exec NET-"$node" unshare --uts sh -c 'echo NET-'"$node"' >/proc/sys/kernel/hostname && exec "$@"' sh "$@"
EOF
cat >agent <<'EOF'
#!/bin/sh
# What Open MPI takes for ssh: agent ADDRESS COMMAND...
node=$((${1##*.} - 1))
shift
exec HERE/on_node $node sh -c "$*"
EOF
sed -i "s|NET|$net|g; s|HERE|$scratch|g" on_node agent
chmod +x on_node agent
./on_node 1 true 2>why || skip "no host names of our own: $(cat why)"

# Bound, all ranks would be on the first cores, since each node takes all cores for its own.
btl=tcp,self
[ $each -eq 1 ] || btl+=,vader # ranks of one host share its memory
across=(timeout -k 5 ${limit:-300} ./on_node 0 "$mpirun" -H $at -n $((hosts * each)) --bind-to none --map-by slot
        --mca plm_rsh_agent "$scratch/agent" --mca pml ob1 --mca btl $btl --mca btl_tcp_if_include eth0
        --mca oob_tcp_if_include eth0)
[ "$(id -u)" -ne 0 ] || across+=(--allow-run-as-root)
"${across[@]}" true >out 2>&1 || { cat out >&2; die "Open MPI does not start across the namespaces"; }
