# Ctrl-C that reaches one rank or the launcher: all ranks save and stop, and the run goes on.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/mpi.bash"

# Ctrl-C that reaches only one rank, and only the launcher: everybody saves and stops.
background stopped --save_every=2 --strategy.preset=fsdp
kill -INT "$(ranks stopped | sed -n 3p)"
seconds_to_end
says '^sotto: .*stopped at step [0-9]* of 100000; everything is saved in .*/stopped$'
[ "$(grep -c 'everything is saved' out)" = 1 ] || { cat out >&2; die "the end is told twice"; }
says "^to continue: ${launch[0]}.* -n 4 $sotto train --resume $scratch/stopped\$"
way=$(sed -n 's/^to continue: //p' out)
if [ $open_mpi = yes ]; then # MPICH's launcher does not pass it on
    export OMPI_MCA_odls_base_sigkill_timeout=2
    background launcher --save_every=64
    kill -INT "$(pgrep -P $pid)"
    seconds_to_end
    unset OMPI_MCA_odls_base_sigkill_timeout
    says "^SIGTERM, will stop: .*${launch[0]}.*-n 4 $sotto train --resume $scratch/launcher continues from the last checkpoint\$"
    says '^sotto: .*stopped at step [0-9]* of 100000; everything is saved in .*/launcher$'
    says "^to continue: ${launch[0]}.* odls_base_sigkill_timeout 2 .*-n 4 $sotto train --resume $scratch/launcher\$" # as it was told
    last=$(ls launcher/checkpoints | tail -1)
    succeeds "$sotto" sample "launcher/checkpoints/$last" --tokens=1 --prompt=A --threads=1
fi
if [ $open_mpi = yes ]; then # as it stands there, also for root and with more ranks than cores
    last=$(ls stopped/checkpoints | tail -1)
    succeeds eval "timeout -k 5 300 $way --steps=$((10#${last#step-} + 1))"
fi
last=$(ls stopped/checkpoints | tail -1)
succeeds "${mpirun[@]}" -n 2 "$sotto" train --resume stopped --steps=$((10#${last#step-} + 1))
says '^changed: train.workers 4 -> 2$'
succeeds "${train[@]}" --workers=4 --out=stopped --resume --steps=$((10#${last#step-} + 2)) --strategy.preset=ddp
says "resuming from stopped/checkpoints/"
exit 0
