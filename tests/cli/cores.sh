# Threads by themselves are as many as the cores that a process is bound to, or as its group's share of time.
. "$(dirname "$0")/lib.bash"
[ "$(nproc)" -ge 2 ] || { echo "skipped: takes two cores"; exit 77; }

# threads COMMAND...: how many of a run compute: those with a fourth of the time of the one with the most.
threads() {
    local pid
    rm -rf counted counted.log
    "$@" "$sotto" train "${tiny[@]}" --width=512 --steps=100000 --log_every=1 --threads=0 --out=counted >counted.log 2>&1 &
    pid=$!
    await wrote 'step 10/' counted.log
    ls /proc/$pid/task | wc -l >all # also of those that began it and compute no more
    cat /proc/$pid/task/*/stat | awk '{ t[NR] = $14; m = $14 > m ? $14 : m } END { for (i in t) n += 4 * t[i] > m; print n }'
    kill -9 $pid
    wait $pid 2>/dev/null
    grep -q 'step 10/' counted.log || { cat counted.log >&2; die "a run did not begin"; }
}

# bound COMMAND...: one thread.
bound() {
    succeeds "$@" "$sotto" info
    says '^devices: cpu \(.*, 1 thread\), '
    [ "$(threads "$@")" = 1 ] || die "more threads than cores: $*"
    [ "$(cat all)" -lt "$(cat "$many")" ] || die "a thread that a core has none for: $*"
}

if [ "${2:-}" = inside ]; then
    many=$3
    mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu || exit 77
    echo 90000 100000 >/sys/fs/cgroup/cpu.max
    echo 90000 >/sys/fs/cgroup/cpu/cpu.cfs_quota_us
    echo 100000 >/sys/fs/cgroup/cpu/cpu.cfs_period_us
    bound env
    exit 0
fi
[ "$(threads env)" -ge 2 ] || die "one thread for $(nproc) cores"
mv all many
many=$scratch/many
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
bound taskset -c "$core"
grep -qE '^0:|[:,]cpu[:,]' /proc/self/cgroup && unshare -rm true 2>/dev/null || exit 0
unshare -rm bash "$self" "$sotto" inside "$many"
