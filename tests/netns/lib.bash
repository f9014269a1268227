# Sourced with the sotto command as $1: two network namespaces joined by a link of $rate (100mbit), a scratch folder to
# stand in, and in `across` what runs a command under Open MPI with a rank in each. Exits 77 where that is not permitted.
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
clean_up() {
    local i pids
    for i in 0 1; do
        pids=$(ip netns pids $net-$i 2>/dev/null) # what a failed launch left behind in there
        [ -z "$pids" ] || kill -9 $pids 2>/dev/null
        ip netns del $net-$i 2>/dev/null
    done
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# Node i is namespace i with its own host name: to Open MPI these are two machines.
for i in 0 1; do
    ip netns add $net-$i 2>why || skip "no network namespaces: $(cat why)"
    ip -n $net-$i link set lo up
done
ip -n $net-0 link add eth0 type veth peer name eth0 netns $net-1 2>why || skip "no veth: $(cat why)"
for i in 0 1; do
    ip -n $net-$i address add 10.231.7.$((i + 1))/24 dev eth0 && ip -n $net-$i link set eth0 up || die "address of node $i"
    ip netns exec $net-$i tc qdisc add dev eth0 root tbf rate ${rate:-100mbit} burst 32kb latency 100ms 2>why ||
        skip "no tc tbf: $(cat why)"
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
# What Open MPI takes for ssh: agent HOST COMMAND..., of which there is one.
shift
exec HERE/on_node 1 sh -c "$*"
EOF
sed -i "s|NET|$net|g; s|HERE|$scratch|g" on_node agent
chmod +x on_node agent
./on_node 1 true 2>why || skip "no host names of our own: $(cat why)"

# Bound, both ranks would be on the first core, since each node takes all cores for its own.
across=(timeout -k 5 ${limit:-100} ./on_node 0 "$mpirun" -H 10.231.7.1,10.231.7.2 -n 2 --bind-to none --mca plm_rsh_agent "$scratch/agent"
        --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0)
[ "$(id -u)" -ne 0 ] || across+=(--allow-run-as-root)
"${across[@]}" true >out 2>&1 || { cat out >&2; die "Open MPI does not start across the namespaces"; }

value() { # value KEY RUN: of a run's report
    sed -n "s/^ \"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" "$2/report.json"
}
