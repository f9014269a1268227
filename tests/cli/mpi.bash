# Shared by the tests of the command under mpirun, after lib.bash: skips where there is no launcher; `mpirun` starts ranks and
# `train` trains a tiny model.
. "$(dirname "$self")/../comm/mpi/launch.bash"

launcher "$sotto" || exit 77
mpirun=(timeout -k 5 300 "${launch[@]}")
tiny+=(--data.cache=cache --optim.warmup=5)
train=("$sotto" train "${tiny[@]}")

# ends_with TEXT COMMAND...: as fails_with, within 150 seconds (a hang lasts 300); launchers give signals and codes of their own.
ends_with() {
    local text=$1 begin=$SECONDS
    shift
    ! "$@" >out 2>&1 || die "should have failed: $*"
    [ $((SECONDS - begin)) -le 150 ] || { cat out >&2; die "took $((SECONDS - begin)) s to end: $*"; }
    grep -qF -- "$text" out || { cat out >&2; die "no '$text' from: $*"; }
}

# ranks OUT: the processes that train there, by rank.
ranks() {
    local process rank
    for process in $(pgrep -f -x -- ".*/sotto train .*--out=$scratch/$1( .*)?"); do
        rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p')
        [ -z "$rank" ] || echo "$rank $process"
    done | sort -n | cut -d' ' -f2
}

# background OUT OPTIONS...: trains in the background until there is a checkpoint; the launcher is $pid.
background() {
    local out=$1
    shift
    "${mpirun[@]}" -n 4 "${train[@]}" --steps=100000 --out="$scratch/$out" "$@" >out 2>errors & # mpirun would mix lines
    pid=$!
    await has_saved "$out" 1
    [ "$(ranks "$out" | wc -l)" = 4 ] || { cat out >&2; die "not four ranks: $(ranks "$out")"; }
    [ "$(ps -o comm= -p "$(ranks "$out" | paste -sd,)" | uniq -c | tr -s ' ')" = " 4 sotto" ] ||
        die "called something else: $(ps -o pid=,comm= -p "$(ranks "$out" | paste -sd,)")"
}

# Waits for the launcher $pid, which has to end soon, and adds its file `errors` to `out`.
seconds_to_end() {
    local begin=$SECONDS
    wait $pid
    code=$?
    cat errors >>out
    [ $((SECONDS - begin)) -le 150 ] || die "took $((SECONDS - begin)) s to end"
    [ $code != 0 ] || die "exit 0"
    [ $code != 124 ] || die "the run had to be killed"
}
