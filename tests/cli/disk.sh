# A disk that is too small, one that fills up in the middle of a run, and one that cannot be written: the run is refused
# before it trains, or saved when there is room, or elsewhere; the previous checkpoint stays whole.
. "$(dirname "$0")/lib.bash"

# background COMMAND...: starts it, and waits until a save of it has failed.
background() {
    : >out
    "$@" >out 2>&1 &
    pid=$!
    for _ in $(seq 6000); do
        grep -q 'trying again for 5 minutes or until Ctrl-C, then in another folder$' out && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    cat out >&2
    die "no save failed: $*"
}

if [ "${2:-}" != inside ]; then
    # A limit on the size of files, which ends while the run waits.
    limited=("$sotto" train "${tiny[@]}" --out=limited --steps=5)
    if command -v prlimit >/dev/null; then
        background prlimit --fsize=102400:unlimited "${limited[@]}"
        says '^warning: step 5 cannot be saved: cannot write limited/checkpoints/.*: File too large; trying again'
        prlimit --pid $pid --fsize=unlimited:unlimited
        wait $pid || { cat out >&2; die "a save that was tried again"; }
        says '^done: limited is'
    fi
    unshare -rm true 2>/dev/null || { echo "skipped: mount namespaces are not permitted here"; exit 77; }
    unshare -rm bash "$self" "$sotto" inside
    exit $?
fi

mkdir disk
trap 'cd /; umount "$scratch/disk" 2>/dev/null; rm -rf "$scratch"' EXIT
mount -t tmpfs -o size=2m tmpfs disk || { echo "skipped: tmpfs cannot be mounted here"; exit 77; }
train=("$sotto" train "${tiny[@]}" --out=disk/run --save_every=5 --keep=1 --optim.schedule=constant)
succeeds "${train[@]}" --steps=5
cp -r disk/run before

# Too small for what will be kept: refused before a round, by a dry run too, after its plan.
for again in --out=disk/other --dry_run; do
    fails_with "and the disk of disk/other has" "${train[@]}" --steps=100 --keep=4 --out=disk/other $again
    says '^sotto: the checkpoints of this run need about 2.[0-9]* MB of disk .5 at once, including the one being written, of 49. KB each., and'
    says 'left: free [0-9.]* [KM]B, choose another --out, or --keep=1, which needs 987 KB; --check_disk=false starts the run all the same$'
    ! grep -q '^step ' out || die "it was trained: $(cat out)"
    [ ! -e disk/other ] || die "a refused run left its folder"
done
says '^memory: about .* on this machine'
head -c 1400k /dev/zero >disk/filler
fails_with "and the disk of disk/run has" "${train[@]}" --steps=20 --resume
succeeds "$sotto" train --resume disk/run --steps=5
says '^nothing is left to do'
succeeds "${train[@]}" --steps=100 --keep=4 --out=elsewhere --dry_run
says '^disk: about 49[0-9]{4} bytes a checkpoint, up to 5 at once: 2.5 MB more; [0-9]+ MB are left$'

# It fills up: the save is tried again, and succeeds as soon as there is room.
background "${train[@]}" --steps=20 --resume --check_disk=false
says "^warning: step 10 cannot be saved: cannot write disk/run/checkpoints/.*: No space left on device; trying again"
cmp before/checkpoints/step-00000005/state.safetensors disk/run/checkpoints/step-00000005/state.safetensors ||
    die "the checkpoint changed"
rm disk/filler
wait $pid || { cat out >&2; die "a save that was tried again"; }
says '^done: disk/run is'
resumed=$(state)
succeeds "${train[@]}" --out=whole --steps=20
[ "$(state)" = "$resumed" ] || die "a full disk gave other bits"

# Ctrl-C ends the waiting, also in a checkpoint by time: what was trained is saved in another folder, and goes on there. It
# has the name of the run's folder, not of a link to it.
ln -s disk/run link
for by in save_every=5:disk/run save_minutes=1e-9:link; do
    run=${by#*:}
    rm -rf run-rescued
    head -c 1400k /dev/zero >disk/filler
    background "${train[@]}" --save_every=0 --${by%:*} --steps=30 --out="$run" --resume --check_disk=false
    kill -INT $pid
    wait $pid
    [ $? = 130 ] || { cat out >&2; die "exit code of a run that is stopped while it waits"; }
    last=$(sed -n 's/^sotto: SIGINT: stopped at step \([0-9]*\) of 30; everything is saved in .*/\1/p' out)
    says "^warning: $run cannot be written: step $last is saved in $scratch/run-rescued, and \`sotto train --resume $scratch/run-rescued\` continues from there$"
    says "stopped at step $last of 30; everything is saved in $scratch/run-rescued$"
    [ "$last" -gt 20 ] || die "it went on from step $last"
    way=$(sed -n 's/^to continue: //p' out)
    rm disk/filler
    succeeds eval "${way/ --check_disk=false/}"
    resumed=$(state)
    [ "$(ls disk/run/checkpoints)" = step-00000020 ] || die "in the full folder: $(ls -A disk/run/checkpoints)"
done
succeeds "${train[@]}" --out=whole --steps=30 --resume
[ "$(state)" = "$resumed" ] || die "going on in another folder gave other bits"

# The first folder takes the newest checkpoint over, once it can be written; one that was made before its own is passed over.
rescued=$scratch/run-rescued/checkpoints/step-00000030
for run in link disk/run; do
    succeeds "$sotto" train --resume $run --dry_run
    says "^step 30 was saved in $rescued when $run could not be written, which has step 20$"
done
[ "$(ls disk/run/checkpoints)" = step-00000020 ] || die "a dry run wrote $(ls -A disk/run/checkpoints)"
cp -r run-rescued kept
succeeds "$sotto" train --resume disk/run
says "^$rescued is copied to disk/run/checkpoints/step-00000030, and stays as it is$"
says '^nothing is left to do: the run in disk/run has 30 steps already'
[ "$(state)" = "$resumed" ] || die "a checkpoint that was copied: $(state), want $resumed"
diff -r kept/checkpoints run-rescued/checkpoints || die "the other folder changed"
succeeds "$sotto" train --resume disk/run
! grep -q 'was saved in' out || die "step 30 twice: $(cat out)"
rm -r disk/run
succeeds "${train[@]}" --steps=5
succeeds "$sotto" train --resume disk/run --steps=6 --dry_run
says "^warning: step 30 in $scratch/run-rescued is passed over, since disk/run/checkpoints/step-00000005 was made after it: .*--resume "
rm -r disk/run
cp -r run-rescued disk/run # whole, for what follows

mount -o remount,ro disk || exit 0
fails_with "Read-only file system" "${train[@]}" --steps=40 --resume
exit 0
