#!/bin/bash
# pages.sh SOTTO [PAGE]: follows docs/start/two-machines.md on two network namespaces that are alpha (10.0.0.1) and beta (10.0.0.2):
# own host names, home folders and process numbers (no command there reaches a process of this machine), and sshd in each.
# Where there is no sshd, a stand-in takes the place of ssh, and process numbers are this machine's. Commands after
# `alpha$ ` and `beta$ ` run in page order; runs are made small by a `sotto` that adds options. A command succeeds, unless
# the page shows `sotto: ` or `error` as its output. What the page shows is printed: each line, in order, where `...` stands
# for any text and a number for any number. A command after whose output `^C` stands is stopped by SIGINT when the output
# before `^C` is there. Exits 77 where there is no Open MPI or namespaces are not permitted.
# With SOTTO_TEST_SHOW set, prints what commands print.
subnet=10.0.0 limit=60
. "$(dirname "$0")/lib.bash"
root=$(readlink -f "$(dirname "$self")/../..")
page=$(readlink -f "${2:-$root/docs/start/two-machines.md}" 2>/dev/null) || die "no page $2"
[ "$(id -u)" -eq 0 ] || skip "not root"
PATH=$PATH:/usr/sbin:/sbin
sshd=$(command -v sshd) && command -v ssh ssh-keygen scp >/dev/null || sshd=

# Files that both hosts have: names, a `sotto` that makes runs small, users (the home of each is a folder of its own at the
# same path).
mkdir bin home home0 home1 run etc
bin=$scratch/bin
cat >bin/sotto <<END
#!/bin/sh
# A run of seconds: options of the page come first, and these win. A page's method, lengths of outer rounds and resume stay.
export ASAN_OPTIONS=detect_leaks=0
command=\$1
case \$command in
train)
    case " \$* " in
    *" --resume "* | *" --dry_run"*) exec $sotto "\$@" ;;
    *" --strategy"*) set -- "\$@" --comm.meet=3 ;;
    esac
    exec $sotto "\$@" --layers=2 --width=32 --heads=2 --positions=32 --batch=2 --seq=32 --data.vocab=300 --threads=1 \\
        --eval_batches=2 --comm.meet=3 ;;
esac
exec $sotto "\$@"
END
chmod +x bin/sotto
cat >bin/mpirun <<END
#!/bin/bash
# Open MPI waits for the whole of this time at an end by a signal, several times over.
for word; do
    [ "\$last" != odls_base_sigkill_timeout ] || word=1
    words+=("\$word") last=\$word
done
exec $mpirun "\${words[@]}"
END
chmod +x bin/mpirun
{ grep '^root:' /etc/passwd | awk -F: -v home="$scratch/home" '{OFS=":"; $6 = home; $7 = "/bin/bash"; print}'
  grep -v '^root:' /etc/passwd
  grep -q '^sshd:' /etc/passwd || echo "sshd:x:$(awk -F: '{u[$3]} END {i = 900; while (i in u) i--; print i}' /etc/passwd):65534::/run/sshd:/usr/sbin/nologin"
} >etc/passwd
for host in alpha beta; do
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n10.0.0.1 alpha\n10.0.0.2 beta\n' $host >etc/hosts.$host # as Debian's installer leaves it
done
path=$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -n "$sshd" ]; then
    for i in 0 1; do
        mkdir -m 700 home$i/.ssh
        ssh-keygen -q -t ed25519 -N '' -f etc/host$i && ssh-keygen -q -t ed25519 -N '' -f home$i/.ssh/id_ed25519 || skip "no keys"
    done
    for i in 0 1; do
        cat home0/.ssh/id_ed25519.pub home1/.ssh/id_ed25519.pub >home$i/.ssh/authorized_keys # ssh-copy-id
        sed 's/^/alpha,10.0.0.1 /' etc/host0.pub >home$i/.ssh/known_hosts
        sed 's/^/beta,10.0.0.2 /' etc/host1.pub >>home$i/.ssh/known_hosts
        cat >etc/sshd$i <<END
HostKey $scratch/etc/host$i
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv PATH=$path
END
    done
fi

# Host i is what holds namespace i, its host name and its files: sshd, or a process that sleeps.
holder=() inside=() apart="--pid --fork --kill-child --mount-proc"
if [ -z "$sshd" ]; then # the stand-in reaches the other host by its process
    apart=
    ! grep -qwE 'kill|pkill|killall' <(grep -E '^(alpha|beta)\$ ' "$page") || die "$page kills processes, which would be this machine's"
fi
for i in 0 1; do
    name=$([ $i = 0 ] && echo alpha || echo beta)
    serve="exec sleep 1000"
    [ -z "$sshd" ] || serve="exec $sshd -D -e -f $scratch/etc/sshd$i"
    ip netns exec $net-$i unshare --uts --mount $apart sh -c "
        echo $name >/proc/sys/kernel/hostname && mount --bind $scratch/home$i $scratch/home &&
        mount --bind $scratch/etc/hosts.$name /etc/hosts && mount --bind $scratch/etc/passwd /etc/passwd &&
        mkdir -p /run/sshd && mount -t tmpfs none /run/sshd && chmod 755 /run/sshd && touch $scratch/up$i &&
        $serve" </dev/null >served$i 2>&1 &
    holder[i]=$!
    disown $! # its end is no news
done
for i in 0 1; do
    for _ in $(seq 500); do
        [ ! -e up$i ] || break
        kill -0 ${holder[i]} 2>/dev/null || skip "no mounts: $(cat served$i)"
        sleep 0.02
    done
    inside[i]=${holder[i]}
    [ -z "$apart" ] || inside[i]=$(ps -o pid= --ppid ${holder[i]} | tr -d ' ') # process 1 of the host
    [ -n "${inside[i]}" ] || die "host $i has no process 1"
done

# on HOST COMMAND...: on that host as its user, in the folder in which the command before it ended.
cat >on <<END
#!/bin/bash
case \$1 in
alpha | 10.0.0.1) pid=${inside[0]} ;;
beta | 10.0.0.2) pid=${inside[1]} ;;
*) echo "ssh: Could not resolve hostname \$1: Name or service not known" >&2; exit 255 ;;
esac
shift
exec nsenter -t \$pid -n -u -m -p env -i HOME=$scratch/home USER=root PATH=$path TERM=dumb OMPI_ALLOW_RUN_AS_ROOT=1 \\
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "\$@"
END
chmod +x on
if [ -n "$sshd" ]; then
    for _ in $(seq 100); do
        ./on alpha ssh -o BatchMode=yes beta true 2>why && ./on beta ssh -o BatchMode=yes alpha true 2>why && break
        sleep 0.05
    done
    [ ! -s why ] || { cat why served0 served1 >&2; die "ssh does not connect"; }
else
    echo "without sshd: a stand-in for ssh and scp"
    cat >bin/ssh <<END
#!/bin/bash
while [[ \$1 == -* ]]; do [ "\$1" != -o ] || shift; shift; done
host=\$1
shift
exec $scratch/on "\$host" bash -c "cd; \$*"
END
    cat >bin/scp <<END
#!/bin/bash
files=()
for word; do [[ \$word == -[rq]* ]] || files+=("\$word"); done
to=\${files[-1]} && unset 'files[-1]'
[[ \$to == *:* ]] || exit 1
tar -C "\$(dirname "\${files[0]}")" -cf - "\${files[@]##*/}" | $scratch/on "\${to%%:*}" bash -c "cd; cd \${to#*:} && tar -xf - --no-same-owner"
END
    chmod +x bin/ssh bin/scp
fi

# The page's commands, one file each: n.host, n.cmd, n.out (what is shown).
mkdir steps
awk -v to=steps/ '
    /^```console$/ { inside = 1; next }
    /^```/ { inside = 0; n_open = 0; next }
    !inside { next }
    /^(alpha|beta)\$ / {
        n++; at = sprintf("%s%03d", to, n); host = $1; sub(/\$.*/, "", host)
        print host >(at ".host"); print NR >(at ".line"); printf "" >(at ".out")
        sub(/^[a-z]+\$ /, ""); print >(at ".cmd"); more = /\\$/; if (match($0, /<<.?EOF/)) here = 1; next
    }
    here { print >(at ".cmd"); if ($0 == "EOF") here = 0; next }
    more { print >(at ".cmd"); more = /\\$/; next }
    n { print >(at ".out") }' "$page"
[ -e steps/001.cmd ] || die "$page has no commands"

# A shown line as an expression: numbers are any numbers, `...` is any text.
as_pattern() {
    sed -E 's/[][\\.*^$()+?{}|]/\\&/g; s/(\\\.){3}/.*/g; s/[0-9]+(\\\.[0-9]+)?(e[-\\+0-9]+)?/[0-9][-+.e0-9]*/g; s/ +/ +/g'
}
for cmd in steps/*.cmd; do
    step=${cmd%.cmd} where="$(basename "$page"):$(cat "${cmd%.cmd}.line")"
    host=$(cat $step.host)
    fails=$(grep -cE '^(sotto: |ssh: |mpirun was unable|.*refused|.*[Nn]o such file)' $step.out)
    begin=$EPOCHREALTIME
    { cat "$cmd"; printf '\ncode=$?\npwd >%q\nexit $code\n' "$scratch/pwd.$host"; } >script
    ./on $host bash -c "cd $(cat pwd.$host 2>/dev/null || echo '~') && . $scratch/script" <&- >printed 2>&1 &
    pid=$!
    if grep -q '^^C' $step.out; then
        last=$(sed -n '/^^C/q; p' $step.out | tail -n 1 | as_pattern)
        for _ in $(seq 400); do
            ! grep -qE "$last" printed || break
            sleep 0.05
        done
        for process in $(ip netns pids $net-0); do # of this host alone
            [[ "$(cat /proc/$process/comm 2>/dev/null)" != mpirun* ]] || kill -INT $process
        done
        fails=1
    fi
    wait $pid
    code=$?
    took=$(awk -v a=$begin -v b=$EPOCHREALTIME 'BEGIN { printf "%.1f", b - a }')
    printf '%5s s  exit %3d  %s %s$ %s\n' "$took" $code "$where" "$host" "$(head -n 1 "$cmd")"
    [ -z "${SOTTO_TEST_SHOW:-}" ] || cat printed
    if [ $fails = 0 ]; then
        [ $code = 0 ] || { cat printed >&2; die "$where: exit $code"; }
    else
        [ $code != 0 ] || { cat printed >&2; die "$where: should have failed"; }
    fi
    while read -r shown; do # in any order: mpirun mixes what ranks print and what they print to standard error
        case $shown in
        '' | ... | '^C'*) continue ;;
        esac
        grep -qE "^ *$(as_pattern <<<"$shown") *\$" printed || { cat printed >&2; die "$where: '$shown' is not printed"; }
    done <$step.out
done
exit 0
