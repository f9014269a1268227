# Sourced: launcher PROGRAM sets `launch` to the command that starts ranks of PROGRAM, to be followed by -n RANKS PROGRAM, and
# `open_mpi` to yes or no. Fails with a message if PROGRAM is linked to no MPI library, or the library has no launcher here.
launcher() {
    local names name path=
    case $(ldd "$1") in
    *libtsan*) echo "ThreadSanitizer cannot see into an MPI library"; return 1 ;;
    *libmpich*) names="mpiexec.mpich mpiexec.hydra" ;;
    *libmpi.so*) names="mpirun.openmpi mpirun" ;;
    *) echo "$1 is not linked to MPI"; return 1 ;;
    esac
    for name in $names; do
        path=$(command -v "$name") && break
    done
    [ -n "$path" ] || { echo "none of: $names"; return 1; }
    # More ranks than cores, perhaps as root in a container: both need saying to Open MPI.
    launch=("$path")
    open_mpi=no
    if "$path" --version 2>&1 | grep -q -e 'Open MPI' -e OpenRTE; then
        open_mpi=yes
        launch+=(--oversubscribe)
        [ "$(id -u)" -ne 0 ] || launch+=(--allow-run-as-root)
    fi
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} # MPI libraries keep what they allocate
}
