# Who started us, told by the environment that Slurm, MPI launchers and torchrun make: a process that was started alone trains
# alone, also in the shell of a larger allocation; several that MPI does not join are refused, not left to overwrite
# each other.
. "$(dirname "$0")/lib.bash"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} # MPI libraries keep what they allocate
train=("$sotto" train "${tiny[@]}" --data.cache=cache --steps=2)
allocation=(SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NNODES=1 SLURM_PROCID=0)
step=(SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_NODES=1)

# alone NAME VARIABLES...: the workers are threads, on a real clock and a simulated one.
alone() {
    local name=$1
    shift
    succeeds env "$@" "${train[@]}" --workers=2 --out="$name"
    says 'workers: 2 threads'
    succeeds env "$@" "${train[@]}" --workers=2 --time=virtual --worker.step=1ms --out="$name.virtual"
    says 'workers: 2 simulated'
}
alone batch "${allocation[@]}"                                                  # a script of sbatch
alone shell "${allocation[@]}" SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1  # salloc, as a step of its own
alone pmix "${allocation[@]}" "${step[@]}" SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 PMIX_RANK=0  # srun -n 1
alone pmi2 "${allocation[@]}" "${step[@]}" SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 PMI_RANK=0 PMI_SIZE=1
alone mpirun OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0 RANK=0 WORLD_SIZE=4
alone torchrun RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1
alone pod WORLD_SIZE=4 # without a rank

# Processes of torchrun: refused, with what starts them as ranks.
mkdir 'a folder'
echo 'steps = 2' >'a folder/my.ini'
for process in 0 1; do
    torchrun=(env RANK=$process WORLD_SIZE=2 LOCAL_RANK=$process LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1)
    fails_with "RANK=$process and WORLD_SIZE=2: this is one of 2 processes" "${torchrun[@]}" "${train[@]}" 'a folder/my.ini' --out=torch
    way=$(sed -n 's/.*MPI joins them: \(mpirun .*\)/\1/p' out)
    fails_with "MPI joins them: mpirun" "${torchrun[@]}" "$sotto" train --time=virtual --workers=2 --out=torch
    [ ! -e torch ] || die "a process of torchrun wrote"
done
fails_with ' -n 4 -H HOST:2,... ' env RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "${train[@]}" --out=torch
case $(ldd "$sotto") in
*libmpi.so*) # whose mpirun that is
    succeeds eval "$way"
    says '^workers: 2 MPI ranks'
    ;;
esac

# Two tasks of srun --mpi=none. Open MPI may end the process itself: then the advice has come before.
case $(ldd "$sotto") in
*libmpi.so* | *libmpich*) advice='--mpi=pmix' ;;
*) advice='this build has no MPI' ;;
esac
for task in 0 1; do
    ! env "${allocation[@]}" "${step[@]}" SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task \
        "${train[@]}" --out=apart >out$task 2>&1 || die "task $task of two trained alone"
done
grep -qF -e "$advice" out0 || { cat out0 >&2; die "no '$advice'"; }
[ ! -e apart ] || die "tasks that are not joined wrote"
exit 0
