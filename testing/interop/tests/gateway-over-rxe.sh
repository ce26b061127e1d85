# Our gateway over rxe, as RDMA hardware, between the kernel's client and the kernel's server, all in one guest: RDMA in
# front of TCP, TCP in front of RDMA, two pairs as a tunnel, and the device removed and added again. It is not removed while
# the kernel's server has a connection over it: once, `rdma link delete` of Linux 6.1 did not return then.
. /lab/lib.sh
ulimit -l unlimited
rxe_up
verbs_up
nfsd_up --grace-time 10
modprobe -a nfsv3 nfsv4 || die 'no NFS client'
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
dd if=/dev/urandom of=/tmp/large bs=1M count=40 2>/dev/null
# Without the numbers of devices: one that was removed comes back with another.
objects() { rdma resource show | sed 's/^[0-9]*: //'; }
before=$(objects)

# gateway_up NAME ARGUMENT...: a gateway with these arguments, whose process is in $GATEWAY.
gateway_up() {
  : >/run/said
  (cd / && exec /lab/rpcrdma gateway --json --log debug --control-socket "/run/$1.control" "${@:2}" \
    3<&- >/run/said 2>>"/run/$1.log") &
  GATEWAY=$!
  wait_for 60 grep -q pairs /run/said || die "the gateway does not listen: $(cat "/run/$1.log")"
  cat /run/said
}
gateway_ends() {
  kill $GATEWAY
  wait $GATEWAY || die "the gateway ended with status $?"
}
# said TEXT COMMAND...: a command of ours that prints this.
said() {
  /lab/rpcrdma "${@:2}" >/run/printed && cat /run/printed && grep -qF -- "$1" /run/printed || die "rpcrdma ${*:2}: not $1"
}
# used VERSION PROTO ADDRESS PORT MOUNT_PORT: the kernel's client writes and reads a file by way of that gateway.
used() {
  local options="vers=$1,proto=$2,port=$4" source=/ file="by-$4-$1"
  [ "$1" != 3 ] || options="$options,nolock,mountproto=tcp,mountport=$5" source=/export
  step "version $1 over $2"
  mount.nfs "$3:$source" /mnt -o "$options" || die "mount: $(tail -n 20 /run/all.log)"
  grep ' /mnt ' /proc/mounts
  dd if=/tmp/data of="/mnt/$file" bs=1M conv=fsync 2>/dev/null || die write
  drop_caches
  cmp /tmp/data "/mnt/$file" || die 'read back'
  cmp /tmp/data "/export/$file" || die 'what the server holds'
}

cat >/run/all.toml <<TOML
[gateway]
trust_local = true
allow = ["10.0.3.0/24"]

[[pair]]                                 # RDMA in front of TCP
listen = "rdma://0.0.0.0:20051"
upstream = "tcp://127.0.0.1:2049"
mount_port = 20061

[[pair]]                                 # TCP in front of RDMA
listen = "tcp://127.0.0.1:20052"
upstream = "rdma://$RXE_IP:20049"
mount_port = 20062

[[pair]]                                 # a tunnel
listen = "tcp://127.0.0.1:20053"
upstream = "rdma://$RXE_IP:20054"
device = "rxe0"
mount_port = 20063
upstream_mount = "20064"

[[pair]]
listen = "rdma://$RXE_IP:20054"
upstream = "tcp://127.0.0.1:2049"
provider = "verbs"
mount_port = 20064
TOML
step 'four pairs'
beside="{\"provider\":\"verbs\",\"address\":\"$RXE_IP:20051\",\"device\":\"rxe0\"}"
alone="\"listeners\":[{\"provider\":\"verbs\",\"address\":\"$RXE_IP:20054\",\"device\":\"rxe0\"}]"
first='"upstream_over":[{"provider":"verbs","devices":["rxe0"]},{"provider":"iwarp"}]'
for expected in "$beside" "$alone" "$first"; do
  said "$expected" gateway --config /run/all.toml --check --json
done
gateway_up all --config /run/all.toml
for expected in "$beside" "$alone" "$first"; do
  grep -qF "$expected" /run/said || die "the gateway does not say $expected"
done

trace_on xprtrdma_mr_reminv xprtrdma_mr_localinv
for version in 3 4.2; do
  # In a grace period nobody opens a file.
  [ $version = 3 ] || wait_for 60 grep -q Y /proc/fs/nfsd/v4_end_grace || die 'the grace period does not end'
  trace_clear
  used $version rdma $RXE_IP 20051 20061
  check_mountstats
  step "remote invalidations $(trace_count xprtrdma_mr_reminv), local ones $(trace_count xprtrdma_mr_localinv)"
  [ "$(trace_count xprtrdma_mr_reminv)" -gt 0 ] || die 'no remote invalidation'
  said '"provider":"verbs","device":"rxe0","upstream_provider":"tcp"' clients --json --socket /run/all.control
  umount /mnt || die umount
done
said '"provider":"iwarp",' ping -c 1 --json --provider iwarp $RXE_IP:20051

# The connections of a pair to its server.
upstream_of() {
  /lab/rpcrdma stats --json --socket /run/all.control >/run/stats || die stats
  sed "s,.*\"listen\":\"$1\",," /run/stats | grep -o '"upstream_over":\[[^]]*\]' | head -n 1
}
for version in 4.2 3; do
  used $version tcp 127.0.0.1 20052 20062
  upstream=$(upstream_of tcp://127.0.0.1:20052)
  step "connections to the server: $upstream"
  case $upstream in *'"provider":"verbs","device":"rxe0"'*) ;; *) die 'not over the device' ;; esac
  case $upstream in *'"remote_invalidations":0'*) die 'no remote invalidation' ;; esac
  umount /mnt || die umount
done

used 4.2 tcp 127.0.0.1 20053 20063
said '"device":"rxe0","upstream_provider":"tcp","state":"idle","version":2' clients --json --socket /run/all.control
umount /mnt || die umount

# removed WHAT: removes the device and adds it again.
removed() {
  local start
  start=$(now_ms)
  timeout 60 rdma link delete rxe0 || die "$1: the device cannot be removed"
  step "$1: the device is removed after $(($(now_ms) - start)) ms"
  link_up rxe rxenet
}
step 'the device is removed while our client writes by way of the gateway'
/lab/rpcrdma put /tmp/large nfs://$RXE_IP:20051/export/removed-1 --provider verbs >/run/put.log 2>&1 &
client=$!
wait_for 20 has_grown '/export/.removed-1* /export/removed-1' || die 'nothing is written'
removed 'RDMA in front of TCP'
wait $client || die "put: $(cat /run/put.log)"
cmp /tmp/large /export/removed-1 || die 'what was put'
grep -q 'the RDMA device was removed' /run/all.log || die 'the gateway does not say that the device was removed'

gateway_ends

step 'users of this machine are told apart: its own connections go over software iWARP'
gateway_up apart --listen rdma://0.0.0.0:20055 --upstream tcp://127.0.0.1:2049 --allow 10.0.3.0/24
said '"provider":"iwarp",' ping -c 1 --json $RXE_IP:20055
/lab/rpcrdma ping -c 1 --provider verbs $RXE_IP:20055 && die 'taken in over the device'
gateway_ends
settled() { [ "$(objects)" = "$before" ]; }
wait_for 20 settled || die "objects: before $before, after $(objects)"
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
