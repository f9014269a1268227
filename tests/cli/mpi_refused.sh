# What is wrong under mpirun ends all ranks soon, says which rank it was, and is said once.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# differ TEXT OPTIONS...: rank 2 has these options too.
differ() {
    local text=$1
    shift
    ends_with "$text" "${mpirun[@]}" -n 2 "${train[@]}" --out=differ : -n 1 "${train[@]}" --out=differ "$@"
    [ ! -e differ ] || die "ranks that differ left $(ls -dA differ/.* differ/*)"
}

# What only a launcher can get wrong: a message, and the end of all ranks, also where one alone is wrong. (Open MPI
# would give the others a second to die.)
export OMPI_MCA_odls_base_sigkill_timeout=0
ends_with 'train.nodes = 3, but train.workers = 2' "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --nodes=3
ends_with 'train.time = virtual simulates a cluster in one process, not under MPI' \
    "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --time=virtual
ends_with 'train.workers = 3, but MPI started 2 ranks' "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --workers=3
ends_with "modelled links ([link]) are for workers of one process" "${mpirun[@]}" -n 2 "${train[@]}" --out=refused --link.inter=1GB/s

# What is wrong on all ranks is said once, and as what it is.
once() {
    local text=$1
    shift
    ends_with "sotto: $text" "${mpirun[@]}" -n 2 "${train[@]}" --out=refused "$@"
    [ "$(grep -cF -- "$text" out)" = 1 ] || { cat out >&2; die "not said once: $text"; }
}
once "command line: unknown key 'bogus'" --bogus=1
once "rank 0: cannot open missing.txt" --data.format=text --data.train=missing.txt
differ "rank 2: train.workers = 2, but MPI started 3 ranks" --workers=2
differ "steps = ten: want an integer" --steps=ten
differ "the configuration differs: rank 2 has 'train = missing.txt'" --data.format=text --data.train=missing.txt
differ "collectives differ: rank 2 has native, rank 0 has ring" --comm.collectives=native
unset OMPI_MCA_odls_base_sigkill_timeout

# Ranks that were told different things: named at the first exchange.
differ "the configuration differs: rank 2 has 'lr = 0.5', rank 0 has 'lr = 0.001'" --optim.lr=0.5
differ "the configuration differs: rank 2 has 'preset = fsdp', rank 0 has 'preset = '" --strategy.preset=fsdp
version=$("$sotto" --version | sed 's/sotto //')
other=$(sed 's/[0-9]/9/g' <<<"$version") # as long, so that only these bytes of the program differ
LC_ALL=C sed "s/${version//./\\.}/$other/g" "$sotto" >newer && chmod +x newer
ends_with "the configuration differs: rank 1 has 'version = $other', rank 0 has 'version = $version'" \
    "${mpirun[@]}" -n 1 "${train[@]}" --out=differ : -n 1 ./newer "${train[@]:1}" --out=differ

# A loss that is no number, on all ranks: one of them says it.
said_once() {
    local line
    for line; do
        [ "$(grep -c -- "$line" out)" = 1 ] || { cat out >&2; die "not said once: $line"; }
    done
}
ends_with 'step ' "${mpirun[@]}" -n 2 "${train[@]}" --out=apart --steps=100 --optim.kind=sgd --optim.lr=900 \
    --optim.schedule=constant --strategy=async-diloco --H=50 --optim.warmup=0
said_once 'training has diverged' '^there is no checkpoint to continue from$'
ends_with 'step ' "${mpirun[@]}" -n 3 "${train[@]}" --out=nan --steps=100 --save_every=1 --optim.kind=sgd --optim.lr=900 \
    --optim.schedule=constant --strategy=diloco --H=3
says 'rank [012]: step [0-9]*: the (loss|gradient)'
said_once 'training has diverged' '^the last good checkpoint is ' '^to continue with a tenth '
says "^to continue with a tenth of the learning rate: ${launch[0]}.* -n 3 $sotto train --resume nan --optim.lr=90\$"
[ -n "$(ls nan/checkpoints)" ] || die "no checkpoint before the loss was none"
# ... with the launcher's command as it was, which is known of Open MPI's.
lost=("${train[@]}" --steps=100 --save_every=1 --optim.kind=sgd --optim.lr=900 --optim.schedule=constant)
if [ $open_mpi = yes ] && share_has 0 3; then # as they were bound
    OMPI_MCA_hwloc_base_binding_policy=none ends_with 'step ' "${mpirun[@]}" -n 2 "${lost[@]}" --out=unbound
    says "^to continue .*: ${launch[0]}.* --bind-to none .*-n 2 $sotto train --resume unbound "
fi
# Whose command cannot be read: a launcher of another name, as on a machine without ranks, and tasks of srun, by the
# environment that it makes.
if [ $open_mpi = yes ] && share_has 1 3; then
    ln -s "${launch[0]}" starter
    ends_with 'step ' timeout -k 5 300 ./starter "${launch[@]:1}" -n 2 "${lost[@]}" --out=other
    says "^to continue .*: mpirun .*-n 2 $sotto train --resume other .*  # with the same -H or --hostfile\$"
fi
if [ $open_mpi = yes ] && share_has 2 3; then
    ends_with 'step ' "${mpirun[@]}" -n 2 env -u OMPI_COMM_WORLD_SIZE SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 "${lost[@]}" \
        --out=tasks
    says "^to continue .*: srun --mpi=pmix -N 2 -n 2 $sotto train --resume tasks "
fi
exit 0
