#!/bin/bash
# meet.sh SOTTO: two hosts whose ranks cannot exchange messages, once since both have a bridge with the same address, once
# since a firewall drops what comes to ranks: instead of waiting for ever the run ends and says which hosts these are, what
# addresses they have and what to do. With what it says it runs. Exits 77 where there is no Open MPI or namespaces are not
# permitted.
limit=200
. "$(dirname "$0")/lib.bash"

train=("$sotto" train "${tiny[@]}" --data.cache=cache --steps=1 --log_every=1)
export OMPI_MCA_odls_base_sigkill_timeout=0
for i in 0 1; do
    ip -n $net-$i link add docker0 type bridge && ip -n $net-$i address add 172.17.0.1/16 dev docker0 &&
        ip -n $net-$i link set docker0 up || die "bridge of node $i"
done

# unmet ADDRESSES COMMAND...: it fails, each host is named with its eth0 and ADDRESSES, and the advice is given once.
unmet() {
    local more=$1
    shift
    ! "$@" >out 2>&1 || { cat out >&2; die "should have failed: $*"; }
    for i in 0 1; do
        says "^sotto: host $net-$i \(eth0=10\.231\.7\.$((i + 1))/24$more\): rank $i cannot exchange messages with rank $((1 - i)): none arrived in 1 s"
    done
    says '^sotto: these hosts cannot train together\. .*`mpirun --mca btl_tcp_if_include 10\.231\.7\.0/24 --mca oob_tcp_if_include 10\.231\.7\.0/24`'
    [ "$(grep -c '^sotto: these hosts' out)" = 1 ] || { cat out >&2; die "the advice is not given once"; }
}

any=() # as a user would start it, who names no interface
for word in "${across[@]}"; do
    case $word in
    btl_tcp_if_include | oob_tcp_if_include | eth0) [ "$word" = eth0 ] || unset 'any[-1]' ;;
    *) any+=("$word") ;;
    esac
done
unmet ' docker0=172\.17\.0\.1/16' "${any[@]}" "${train[@]}" --out=bridge --comm.meet=1
read -r -a flags <<<"$(sed -n 's/.*`mpirun \([^`]*\)`.*/\1/p' out)"
succeeds "${any[@]}" "${flags[@]}" "${train[@]}" --out=told
says '^cluster: 2 nodes x 1 worker$'

# Ports at which ranks listen, by Open MPI's default; mpirun and its daemons use others.
for i in 0 1; do
    ip -n $net-$i rule add pref 10 lookup local && ip -n $net-$i rule del pref 0 &&
        ip -n $net-$i rule add pref 1 iif eth0 ipproto tcp dport 1024-1999 blackhole 2>why || skip "no rules for ports: $(cat why)"
done
unmet ' docker0=172\.17\.0\.1/16' "${across[@]}" "${train[@]}" --out=wall --comm.meet=1
exit 0
