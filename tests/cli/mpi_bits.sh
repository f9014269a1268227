# The command under mpirun: the bits of threads with our ring, equal to rounding with MPI's own sums.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# Equal bits, threads and ranks, whatever the method, also on two nodes; MPI's sums differ in the last place. A share of the
# runs has every mesh and every method once.
declare -A states
meshes=(1x4 2x2 1x4.two)
methods=(ddp zero1 fsdp)
for i in 0 1 2; do
    for j in 0 1 2; do
        mesh=${meshes[i]} method=${methods[j]}
        run=("${train[@]}" --steps=6 --strategy.preset=$method --strategy.mesh=${mesh%.two})
        [ $mesh != 1x4.two ] || run+=(--nodes=2)
        succeeds "${run[@]}" --workers=4 --out=threads.$mesh.$method
        want=$(state)
        [ -n "$want" ] || die "no state hash"
        states[$mesh.$method]=$want
        if share_has $((i + j)) 3; then
            succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.$mesh.$method
            says 'workers: 4 MPI ranks'
            says "^cluster: $([ $mesh = 1x4.two ] && echo 2 nodes x 2 || echo 1 node x 4) workers$"
            [ "$(state)" = "$want" ] || die "$method $mesh: $(state) under MPI, on threads $want"
        fi
        [ $mesh = 1x4 ] && share_has $((j + 1)) 3 || continue
        succeeds "${mpirun[@]}" -n 4 "${run[@]}" --comm.collectives=native --out=native.$method
        near "$(value loss native.$method)" "$(value loss threads.$mesh.$method)" 1e-6
        near "$(value eval_loss native.$method)" "$(value eval_loss threads.$mesh.$method)" 1e-6
    done
done

# Vectors of a device by NCCL, of which the build has a fake: the same bits, on one node and on two.
fake=$(dirname "$sotto")/fake
cases=0
for run in 1x4.two.fsdp 2x2.zero1; do
    cases=$((cases + 1))
    share_has $cases 2 || continue
    two=$([[ $run != *two* ]] || echo --nodes=2)
    succeeds env SOTTO_APART_DELAY=100 LD_LIBRARY_PATH="$fake" "${mpirun[@]}" -n 4 "${train[@]}" --steps=6 --strategy.preset=${run##*.} \
        --strategy.mesh=${run%%.*} $two --device=apart --comm.nccl=on --out=nccl.$run
    [ "$(state)" = "${states[$run]}" ] || die "$run: $(state) by NCCL, on threads ${states[$run]}"
done
fails_with 'comm.nccl = on is for ranks of MPI' "${train[@]}" --steps=1 --comm.nccl=on --out=none
for device in cpu cpu:baseline; do
    OMPI_MCA_odls_base_sigkill_timeout=0 ends_with "comm.nccl = on needs GPUs, and train.device = $device" "${mpirun[@]}" -n 2 "${train[@]}" --steps=1 \
        --comm.nccl=on --device=$device --out=none
done

for method in zero1 fsdp; do
    [ "${states[1x4.two.$method]}" = "${states[1x4.two.ddp]}" ] || die "$method on two nodes: other bits than ddp"
done
[ "${states[1x4.two.ddp]}" != "${states[1x4.ddp]}" ] || die "two nodes sum in the order of one"
for method in demo random striding every; do # what groups exchange themselves
    run=("${train[@]}" --steps=6 --strategy.preset=$method --strategy.shard=fsdp --strategy.mesh=2x2 --sign=before)
    succeeds "${run[@]}" --workers=4 --out=threads.$method
    want=$(state)
    cases=$((cases + 1))
    share_has $cases 4 || continue
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.$method
    [ "$(state)" = "$want" ] || die "$method: $(state) under MPI, on threads $want"
done
for prune in 0 0.5; do # rounded on the wire
    cases=$((cases + 1))
    share_has $cases 2 || continue
    run=("${train[@]}" --steps=6 --strategy=diloco --H=2 --shard=zero1 --mesh=2x2 --dtype=bf16 --prune=$prune)
    succeeds "${run[@]}" --workers=4 --out=threads.bf16.$prune
    want=$(state)
    succeeds "${run[@]}" --workers=4 --time=virtual --worker.step=1ms --out=virtual.bf16.$prune
    [ "$(state)" = "$want" ] || die "bf16, prune $prune: $(state) in virtual time, on threads $want"
    succeeds "${mpirun[@]}" -n 4 "${run[@]}" --out=ring.bf16.$prune
    [ "$(state)" = "$want" ] || die "bf16, prune $prune: $(state) under MPI, on threads $want"
done
exit 0
