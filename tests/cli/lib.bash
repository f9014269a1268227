# Shared by the tests that drive the command: $sotto, a scratch folder that goes away, and assertions.
set -u
unset GOMP_SPINCOUNT KMP_BLOCKTIME # the command sets them itself
sotto=$(readlink -f "$1")
self=$(readlink -f "$0")
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

die() {
    echo "FAILED: $*${SOTTO_TEST_SHARE:+ (SOTTO_TEST_SHARE=$SOTTO_TEST_SHARE)}" >&2
    exit 1
}

# succeeds COMMAND...: runs it, output in `out`.
succeeds() {
    local code=0
    "$@" >out 2>&1 || code=$?
    [ $code -eq 0 ] || { cat out >&2; die "exit $code from: $*"; }
}

# fails_with TEXT COMMAND...: a non-zero exit that is no signal, and TEXT in what it printed.
fails_with() {
    local text=$1 code
    shift
    "$@" >out 2>&1
    code=$?
    [ $code -ne 0 ] || die "should have failed: $*"
    [ $code -lt 126 ] || { cat out >&2; die "exit $code from: $*"; }
    grep -qF -- "$text" out || { cat out >&2; die "no '$text' from: $*"; }
}

says() {
    grep -qE -- "$1" out || { cat out >&2; die "no '$1' in the output"; }
}

# owners KEY: the methods that have an option of this name, as messages list them.
owners() {
    "$sotto" train --help all | sed -n "s/^  --\([^. ]*\)\.$1 .*/\1/p" | paste -sd, | sed 's/,/, /g'
}

# await COMMAND...: waits until the command succeeds. It has to before the process $pid ends, and it has ten minutes, which is
# for machines that do much else.
await() {
    local end=$((SECONDS + 600)) runs=yes
    until "$@" 2>/dev/null; do
        [ $runs = yes ] || { cat out >&2; die "ended before: $*"; }
        [ $SECONDS -lt $end ] || { cat out >&2; die "not within 600 s: $*"; }
        sleep 0.02
        kill -0 "$pid" 2>/dev/null || runs=no # and what it did last counts
    done
}

# wrote TEXT FILE
wrote() {
    grep -q -e "$1" "$2"
}

# has_saved OUT COUNT: so many checkpoints at least.
has_saved() {
    [ "$(ls "$1/checkpoints" 2>/dev/null | wc -l)" -ge "$2" ]
}

# newer OUT: waits for a checkpoint that was not there, or the end of $pid.
newer() {
    local before
    before=$(ls "$1/checkpoints" 2>/dev/null)
    while kill -0 "$pid" 2>/dev/null && [ "$(ls "$1/checkpoints" 2>/dev/null)" = "$before" ]; do
        sleep 0.01
    done
}

# share_has INDEX STEP: true if this is one of every STEP like cases that this run takes (tests/base/share.h).
share_has() {
    local share=${SOTTO_TEST_SHARE-} of=$2
    [ -n "$share" ] || return 0
    [[ $share != */* ]] || of=${share#*/}
    [ $((($1 + ${share%/*}) % of)) = 0 ]
}

# What a run said its state came to.
state() {
    grep -o 'state [0-9a-f]*' out
}

# value KEY FOLDER: a number of its report.json.
value() {
    sed -n "s/^ \"$1\": \([-0-9.e+]*\),\{0,1\}$/\1/p" "$2/report.json"
}

# near A B TOLERANCE
near() {
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= t && -d <= t) }' ||
        die "$1 is not within $3 of $2"
}

# A run that takes a second: a tiny model on synthetic stories.
tiny=(--data.train=stories --data.format=stories --data.stories=60 --data.vocab=300 --layers=2 --width=32
      --heads=2 --positions=32 --batch=4 --seq=32 --threads=1 --eval_batches=2 --log_every=5)
