#!/bin/bash
# run.sh SOTTO: two network namespaces joined by a link of 100 Mbit/s, Open MPI across them, a rank in each. Data
# parallel training over it has the bits of two threads and sends the bytes that it says. How its communication
# compares with the link is printed; with SOTTO_STRICT_TIMES set it must be within 20 % of it, on a quiet machine.
# Hosts without a shared disk go on from rank 0's folder to the same bits; failures name the host, and who is gone.
# Exits 77 where there is no Open MPI or namespaces are not permitted.
. "$(dirname "$0")/lib.bash"

# 1.2 million parameters: 5 MB a step and direction, 0.4 s on the link, where computing takes hundredths.
train=("$sotto" train --data.train=stories --data.stories=60 --data.vocab=300 --data.cache=cache --layers=6 --width=128
       --heads=2 --positions=32 --seq=16 --batch=1 --steps=4 --threads=1 --eval_batches=1 --optim.schedule=constant)
sent() {
    ip netns exec $net-0 tc -s qdisc show dev eth0 | sed -n 's/^ *Sent \([0-9]*\) bytes.*/\1/p; T; q'
}
succeeds "${train[@]}" --workers=2 --out=threads
want=$(grep -o 'state [0-9a-f]*' out)
[ -n "$want" ] || die "no state hash"
before=$(sent)
succeeds "${across[@]}" "${train[@]}" --out=link
[ "$(grep -o 'state [0-9a-f]*' out)" = "$want" ] || die "$(grep -o 'state.*' out), on threads $want"
[ "$(value bytes_inside link)" = 0 ] || die "bytes inside a node: $(cat link/report.json)"

# Headers are 5.5 % on top of the bytes that are counted; everything else must fit in as little.
awk -v loss="$(value eval_loss link)" -v threads="$(value eval_loss threads)" -v bytes="$(value bytes_between link)" \
    -v communication="$(value wire link)" -v exposed="$(value exposed link)" -v compute="$(value compute link)" \
    -v seconds="$(value seconds link)" -v wire=$(($(sent) - before)) -v strict="${SOTTO_STRICT_TIMES:-}" 'BEGIN {
    link = bytes / 12.5e6
    printf "loss %.6f (threads %.6f)\n%.2f MB to the other node, on the wire %.2f MB (%.3f times)\n", loss, threads,
           bytes / 1e6, wire / 1e6, wire / bytes
    printf "%.3f s on the link, communication %.3f s (%.3f times), exposed %.3f s, computing %.3f s, in all %.3f s\n", link,
           communication, communication / link, exposed, compute, seconds
    if (loss != threads) { print "the losses differ"; exit 1 }
    if (!(wire >= bytes && wire < 1.1 * bytes)) { print "not the bytes on the wire"; exit 1 }
    if (!(communication > 0.9 * link)) { print "faster than the link"; exit 1 }
    if (strict && !(communication < 1.2 * link)) { print "not the time of the link"; exit 1 }
    if (strict && !(exposed <= communication && exposed > 0.5 * communication)) { print "exposed is no part of it"; exit 1 }
}' || die "see above"

cat >apart <<'EOF'
#!/bin/sh
mkdir -p "$SCRATCH/host$OMPI_COMM_WORLD_RANK" && cd "$SCRATCH/host$OMPI_COMM_WORLD_RANK" && exec "$@"
EOF
chmod +x apart
apart=("${across[@]}" -x SCRATCH="$scratch" ./apart)
succeeds "${apart[@]}" "${train[@]}" --steps=2 --out=run
succeeds "${apart[@]}" "$sotto" train --resume run --steps=4
[ "$(grep -o 'state [0-9a-f]*' out)" = "$want" ] || die "resumed without a shared disk: $(grep -o 'state.*' out), want $want"
[ ! -e host1/run ] || die "rank 1 has a folder"
seq 9999 >host0/only.txt
only=("${apart[@]}" "${train[@]}" --data.format=text --data.train=only.txt --out=none)
! share_has 0 2 || fails_with "rank 1 (host $net-1): cannot open only.txt: No such file or directory" "${only[@]}"
seq 9998 >host1/only.txt
! share_has 1 2 || fails_with "differs: rank 1 (host $net-1) has '" "${only[@]}"

# gone OUT BEGUN TEXT OPTIONS...: rank 1 is killed once rank 0 has said BEGUN, and rank 0 says so, and TEXT.
gone() {
    local out=$1 begun=$2 text=$3
    shift 3
    : >out
    "${apart[@]}" "${train[@]}" --steps=1000000 --out="$out" "$@" >out 2>&1 &
    for _ in $(seq 3000); do
        grep -q "$begun" out && break
        sleep 0.1
    done
    kill -9 $(ip netns pids $net-1 | while read -r process; do # not its agent, whose arguments are these, too
        tr '\0' ' ' <"/proc/$process/cmdline" | grep -q "^$sotto train" && echo "$process"
    done)
    wait $! && die "exit 0"
    says "^sotto: rank 1 \(host $net-1\) is gone, and the run cannot continue without it; $text"
    ! grep -q 'will stop' out || { cat out >&2; die "the end of a job is taken for a stop"; }
}
if share_has 0 2; then
    gone sums ': saved' 'the last checkpoint is sums/checkpoints/step-' --save_minutes=1e-9
    grep -q "^to continue: $mpirun .*-H $at -n 2 .* $sotto train --resume sums\$" out ||
        { cat out >&2; die "other hosts to go on with"; }
fi
if share_has 1 2; then # which computes, and waits for no message
    gone apart '^step ' 'there is no checkpoint yet$' --strategy=diloco --H=100000
fi
exit 0
