#!/bin/bash
# run.sh SOTTO: two network namespaces joined by a link of 100 Mbit/s, Open MPI across them, a rank in each. Data
# parallel training over it has the bits of two threads and sends the bytes that it says. How its communication
# compares with the link is printed; with SOTTO_STRICT_TIMES set it must be within 20 % of it, on a quiet machine.
# Exits 77 where there is no Open MPI or namespaces are not permitted.
. "$(dirname "$0")/lib.bash"

# 1.2 million parameters: 5 MB a step and direction, 0.4 s on the link, where computing takes hundredths.
train=("$sotto" train --data.train=stories --data.stories=200 --data.vocab=300 --data.cache=cache --layers=6 --width=128
       --heads=2 --positions=32 --seq=16 --batch=1 --steps=8 --threads=1 --eval_batches=1)
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
exit 0
