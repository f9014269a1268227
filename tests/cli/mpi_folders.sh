# Ranks of mpirun that see different files.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# Ranks that see different files under the same names, as on machines without a shared disk: rank 0 alone needs the folder of
# the run and that of the model to start from, and a copy that is older is passed over. The same bits as with one folder.
cat >apart <<'EOF'
#!/bin/sh
cd "$SCRATCH/apart${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"
EOF
chmod +x apart
export SCRATCH=$scratch
cases=0
while read -r name options <&3; do
    cases=$((cases + 1))
    [ $name = zero1 ] || share_has $cases 2 || continue
    mkdir -p apart0 apart1
    run=("${train[@]}" --optim.schedule=constant --save_every=2 $options)
    succeeds "${mpirun[@]}" -n 2 ./apart "${run[@]}" --steps=4 --out=$name
    cp -r apart0/$name one.$name
    succeeds "${mpirun[@]}" -n 2 "$sotto" train --resume one.$name --steps=6
    want=$(state)
    ! grep -q 'rank 0 has sent' out || { cat out >&2; die "$name: sent to a rank that has it"; }
    if [ $name = diloco ]; then # older on the one, damaged on the other
        mkdir -p apart1/diloco/checkpoints
        cp -r apart0/diloco/checkpoints/step-00000002 apart1/diloco/checkpoints/step-00000004
        cp -r apart0/diloco/checkpoints/step-00000004 apart0/diloco/checkpoints/step-00000009
        truncate -s -1 apart0/diloco/checkpoints/step-00000009/state.safetensors
    fi
    succeeds "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume $name --steps=6
    says "^resuming from $name/checkpoints/step-00000004\$"
    says '^rank 0 has sent its parameters \(0.1 MB\) to 1 of 2 ranks$'
    [ "$(state)" = "$want" ] || die "$name, rank 0 alone has the folder: $(state), want $want"
    if [ $name = zero1 ]; then # an older checkpoint
        older=$name/checkpoints/step-00000002
        ends_with "has continued from there to step 6: " "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume $older
        succeeds "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume $older --out=fork --steps=6
        [ "$(state)" = "$want" ] || die "$name, from step 2: $(state), want $want"
    fi
done 3<<'end'
zero1 --strategy.preset=zero1
diloco --strategy=diloco --H=2
cdp --strategy=cdp
end
[ ! -e apart1/zero1 ] || die "rank 1 has a folder"
succeeds "${mpirun[@]}" -n 2 ./apart "${train[@]}" --strategy=async-diloco --H=2 --steps=4 --out=groups
want=$(state)
succeeds "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume groups
[ "$(state)" = "$want" ] || die "async-diloco, rank 0 alone has the folder: $(state), want $want"
tune=("${train[@]}" --data.vocab=0 --init=one.zero1 --steps=2)
succeeds "${tune[@]}" --workers=2 --out=tuned
want=$(state)
mv one.zero1 apart0
seq 2000 >apart0/only.txt
succeeds "${mpirun[@]}" -n 2 ./apart "${tune[@]}" --out=tuned
[ "$(state)" = "$want" ] || die "rank 0 alone has the model to start from: $(state), want $want"
ends_with "rank 1: cannot open only.txt: No such file" "${mpirun[@]}" -n 2 ./apart "${train[@]}" --steps=1 --data.format=text \
    --data.train=only.txt --out="$scratch/missing/run"
[ ! -e missing ] || die "a rank refused the start, and left $(ls -dA missing/*/.*)"
seq 3000 >apart1/only.txt
ends_with "what training begins with differs" "${mpirun[@]}" -n 2 ./apart "${train[@]}" --steps=1 --data.format=text \
    --data.train=only.txt --out="$scratch/missing/run"
[ ! -e missing ] || die "ranks differ, and left $(ls -dA missing/*/.*)"
rm apart1/only.txt
! grep -q 'will stop' out || { cat out >&2; die "the end of a job is taken for a stop"; }

# A configuration file that one host alone has: no rank knows another yet. With the host where the launcher says that there
# are several, and of rank 0 too.
printf '[train]\nsteps = 1\n' >apart0/mine.ini
ends_with "sotto: rank 1: cannot open mine.ini: No such file" "${mpirun[@]}" -n 2 ./apart "$sotto" train mine.ini --out=missing
printf '[train]\nsteps = one\n' >apart1/mine.ini
ends_with "sotto: rank 1: mine.ini:2: train.steps = one: " "${mpirun[@]}" -n 2 ./apart "${train[@]}" mine.ini --out=missing
several=(env OMPI_COMM_WORLD_LOCAL_SIZE=1 MPI_LOCALNRANKS=1)
ends_with "sotto: rank 1 (host $(uname -n)): mine.ini:2: " "${mpirun[@]}" -n 2 "${several[@]}" ./apart "${train[@]}" mine.ini --out=missing
ends_with "sotto: rank 0 (host $(uname -n)): cannot open yours.ini: " "${mpirun[@]}" -n 2 "${several[@]}" ./apart "$sotto" train yours.ini
ends_with "--resume none: there is no such folder" "${mpirun[@]}" -n 2 ./apart "$sotto" train --resume none
exit 0
