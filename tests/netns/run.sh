#!/bin/bash
# run.sh SOTTO: two network namespaces joined by a link of 100 Mbit/s, Open MPI across them, a rank in each. Data
# parallel training over it has the bits of two threads, and its communication takes as long as its bytes take on the
# link. Exits 77 where there is no Open MPI or namespaces are not permitted.
. "$(dirname "$0")/../cli/lib.bash"

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
    ip netns exec $net-$i tc qdisc add dev eth0 root tbf rate 100mbit burst 32kb latency 100ms 2>why ||
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

across=(timeout -k 5 100 ./on_node 0 "$mpirun" -H 10.231.7.1,10.231.7.2 -n 2 --mca plm_rsh_agent "$scratch/agent"
        --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0)
[ "$(id -u)" -ne 0 ] || across+=(--allow-run-as-root)
"${across[@]}" true >out 2>&1 || { cat out >&2; die "Open MPI does not start across the namespaces"; }

# 1.2 million parameters: 5 MB a step and direction, 0.4 s on the link, where computing takes hundredths.
train=("$sotto" train --data.train=stories --data.stories=200 --data.vocab=300 --data.cache=cache --layers=6 --width=128
       --heads=2 --positions=32 --seq=16 --batch=1 --steps=8 --threads=1 --eval_batches=1)
value() {
    sed -n "s/^ \"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" "$2/report.json"
}
sent() {
    ip netns exec $net-0 tc -s qdisc show dev eth0 | sed -n 's/^ *Sent \([0-9]*\) bytes.*/\1/p'
}
succeeds "${train[@]}" --workers=2 --out=threads
want=$(grep -o 'state [0-9a-f]*' out)
[ -n "$want" ] || die "no state hash"
before=$(sent)
succeeds "${across[@]}" "${train[@]}" --comm.collectives=ring --out=link
[ "$(grep -o 'state [0-9a-f]*' out)" = "$want" ] || die "$(grep -o 'state.*' out), on threads $want"
[ "$(value bytes_inside link)" = 0 ] || die "bytes inside a node: $(cat link/report.json)"

# Headers are 5.5 % on top of the bytes that are counted; everything else must fit in as little.
awk -v loss="$(value eval_loss link)" -v threads="$(value eval_loss threads)" -v bytes="$(value bytes_between link)" \
    -v communication="$(value communication link)" -v exposed="$(value exposed link)" -v compute="$(value compute link)" \
    -v seconds="$(value seconds link)" -v wire=$(($(sent) - before)) 'BEGIN {
    link = bytes / 12.5e6
    printf "loss %.6f (threads %.6f)\n%.2f MB to the other node, on the wire %.2f MB (%.3f times)\n", loss, threads,
           bytes / 1e6, wire / 1e6, wire / bytes
    printf "%.3f s on the link, communication %.3f s (%.3f times), exposed %.3f s, computing %.3f s, in all %.3f s\n", link,
           communication, communication / link, exposed, compute, seconds
    if (loss != threads) { print "the losses differ"; exit 1 }
    if (!(wire >= bytes && wire < 1.1 * bytes)) { print "not the bytes on the wire"; exit 1 }
    if (!(communication > 0.9 * link && communication < 1.2 * link)) { print "not the time of the link"; exit 1 }
    if (!(exposed <= communication && exposed > 0.5 * communication)) { print "exposed is no part of it"; exit 1 }
}' || die "see above"
exit 0
