# Checkpoints under mpirun: made by time, and taken up by other ranks and placements.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# Checkpoints by time, by the clock of rank 0: all ranks make them, they move no bit, and the run goes on from any of them.
cases=0
while read -r saved options <&3; do # mpirun reads what comes in
    cases=$((cases + 1))
    share_has $cases 3 || continue
    run=("${train[@]}" --steps=6 --keep=0 $options)
    succeeds "${run[@]}" --workers=4 --out=threads.timed.${saved//,/-}
    want=$(state) out=ring.timed.${saved//,/-}
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --save_minutes=1e-9 --out=$out
    [ "$(state)" = "$want" ] || die "saved by time, $options: $(state) under MPI, without on threads $want"
    [ "$(ls $out/checkpoints | sed 's/^step-0*//' | paste -sd,)" = "$saved" ] || die "$options: saved at $(ls $out/checkpoints)"
    for folder in $(ls $out/checkpoints | sed 1d); do
        rm -r "$out/checkpoints/$folder"
    done
    succeeds "${mpirun[@]}" -n 4 "$sotto" train --resume $out
    says "^resuming from $out/checkpoints/step-0*${saved%%,*}\$"
    [ "$(state)" = "$want" ] || die "from a checkpoint by time, $options: $(state), want $want"
done 3<<'end'
1,2,3,4,5,6 --strategy.preset=fsdp
4,6 --shard=zero1 --mesh=2x2 --replicate=co2 --tau=2
2,4,6 --mesh=4x1 --strategy=diloco --H=2
end

# Placements of one schedule, and one worker alone; stopped in the middle of it and taken up by another.
for number in 1 2; do
    share_has $number 2 || continue
    rule=v$number
    run=("${train[@]}" --strategy.preset=cdp --cdp.rule=$rule --model.tied=no --optim.schedule=constant --save_every=2)
    succeeds "${run[@]}" --steps=6 --cdp.placement=single --cdp.stages=4 --out=single.$rule
    want=$(state)
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=2 --cdp.placement=pp --out=cyclic.$rule
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=4 --cdp.placement=zero --out=cyclic.$rule --resume
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --steps=6 --cdp.placement=dp --out=cyclic.$rule --resume
    [ "$(state)" = "$want" ] || die "cdp $rule: $(state) under MPI, alone $want"
    succeeds "${run[@]}" --steps=6 --cdp.placement=mp --workers=3 --out=threads.mp.$rule # adds up in its own order
    want=$(state)
    succeeds "${mpirun[@]}" -n 3 "${run[@]}" --steps=6 --cdp.placement=mp --out=mp.$rule
    [ "$(state)" = "$want" ] || die "cdp mp $rule: $(state) under MPI, on threads $want"
done
exit 0
