# A disk that fills up in the middle of a run, and one that cannot be written: the previous checkpoint stays whole.
. "$(dirname "$0")/lib.bash"
if [ "${2:-}" != inside ]; then
    unshare -rm true 2>/dev/null || { echo "skipped: mount namespaces are not permitted here"; exit 77; }
    unshare -rm bash "$self" "$sotto" inside
    exit $?
fi

mkdir disk
trap 'cd /; umount "$scratch/disk" 2>/dev/null; rm -rf "$scratch"' EXIT
mount -t tmpfs -o size=2m tmpfs disk || { echo "skipped: tmpfs cannot be mounted here"; exit 77; }
train=("$sotto" train "${tiny[@]}" --out=disk/run --save_every=5 --keep=1 --optim.schedule=constant)
succeeds "${train[@]}" --steps=5
state=$(grep -o 'state [0-9a-f]*' out)
cp -r disk/run before
head -c 1400k /dev/zero >disk/filler
fails_with "No space left on device" "${train[@]}" --steps=20 --resume
says 'the last good checkpoint is disk/run/checkpoints/step-00000005'
says "^to go on: $sotto train --resume disk/run --train.steps=20\$"
cmp before/checkpoints/step-00000005/state.safetensors disk/run/checkpoints/step-00000005/state.safetensors ||
    die "the checkpoint changed"
rm disk/filler
succeeds "${train[@]}" --steps=20 --resume
resumed=$(grep -o 'state [0-9a-f]*' out)
succeeds "${train[@]}" --out=whole --steps=20
[ "$(grep -o 'state [0-9a-f]*' out)" = "$resumed" ] || die "resuming after a full disk gave other bits"

# ... and in a checkpoint by time.
head -c 1400k /dev/zero >disk/filler
timed=("${train[@]}" --save_every=0 --save_minutes=1e-9 --steps=30)
fails_with "No space left on device" "${timed[@]}" --resume
says '^sotto: step 21: '
says 'the last good checkpoint is disk/run/checkpoints/step-00000020'
rm disk/filler
succeeds "${timed[@]}" --resume
resumed=$(state)
succeeds "${train[@]}" --out=whole --steps=30 --resume
[ "$(state)" = "$resumed" ] || die "resuming after a full disk in a checkpoint by time gave other bits"

mount -o remount,ro disk || exit 0
fails_with "Read-only file system" "${train[@]}" --steps=40 --resume
exit 0
