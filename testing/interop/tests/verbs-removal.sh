# The RDMA device of our server is removed (`rdma link delete`) amid traffic of our client and of the kernel's, and while
# nobody is connected. Nobody makes the kernel wait, and everything continues when the device is back.
. /lab/lib.sh
. /lab/ours.sh
LIMIT_MS=2000
ulimit -l unlimited
rxe_up
verbs_up
modprobe nfsv3 || die 'no nfsv3'
dd if=/dev/urandom of=/tmp/data bs=1M count=48 2>/dev/null
mkdir -p /export/ours
before=$(rdma resource show)
url=nfs://$RXE_IP:$OURS_PORT

# remove AMID: removes the device, which our server lets go at once, and adds it again. The removal takes no longer than
# the limit.
remove() {
  local start took all
  start=$(now_ms)
  rdma link delete rxe0 &
  wait_for 10 is_let_go || { holders; die "$1: our server has the device open"; }
  took=$(($(now_ms) - start))
  wait_for 60 is_gone $! || { holders; die "$1: the device cannot be removed"; }
  all=$(($(now_ms) - start))
  wait $! || die "$1: the device is not removed"
  sed 's/^/server: /' $OURS_LOG
  step "$1: let go after $took ms, removed after $all ms"
  [ $took -lt $LIMIT_MS ] || die "$1: our server had it open for $took ms"
  [ $all -lt $LIMIT_MS ] || die "$1: the kernel waited $all ms"
  grep -q 'the RDMA device was removed' $OURS_LOG || die "$1: the server does not say that the device was removed"
  : >$OURS_LOG
  link_up rxe rxenet
}
is_let_go() { ! ls -l /proc/$OURS/fd | grep -q uverbs; }
is_gone() { ! kill -0 "$1"; }
# Who has the device open, what our server has said, and what tasks wait for.
holders() {
  local fd target
  for fd in /proc/[0-9]*/fd/*; do
    target=$(readlink "$fd")
    case $target in */uverbs* | */rdma_cm*) echo "$fd $target" ;; esac
  done
  cat $OURS_LOG /tmp/*.log
  cat /proc/$!/stack
  rdma resource show qp
  rdma resource show cm_id
}

# our_client WHO OPTION...: put and get of our client, with these options, amid which the device is removed.
our_client() {
  local who=$1 client
  shift
  step "$who: our client writes"
  /lab/rpcrdma put /tmp/data $url/written "$@" >/tmp/put.log 2>&1 &
  client=$!
  wait_for 20 has_grown '/export/ours/.written* /export/ours/written' || die 'nothing is written'
  remove "$who: our client writes"
  wait $client || die "put: $(cat /tmp/put.log)"
  cat /tmp/put.log
  cmp /tmp/data /export/ours/written || die 'what was put'
  step "$who: our client reads"
  /lab/rpcrdma get $url/written /tmp/read "$@" >/tmp/get.log 2>&1 &
  client=$!
  wait_for 20 has_grown '/tmp/.read* /tmp/read' || die 'nothing is read'
  remove "$who: our client reads"
  wait $client || die "get: $(cat /tmp/get.log)"
  cat /tmp/get.log
  cmp /tmp/data /tmp/read || die 'what was got'
  rm /tmp/read /export/ours/written
}
# kernels_client WHO: the same with a write of the kernel's client. It connects again as soon as our server has let go,
# while the device is still being removed, and may then fail WRITEs, also of a hard mount, with what the connection manager
# says of that: a file that was not written is written again.
kernels_client() {
  local client
  step "$1: the kernel's client writes"
  attach /mnt $RXE_IP /ours
  dd if=/tmp/data of=/mnt/kernel bs=1M conv=fsync 2>/tmp/dd.log &
  client=$!
  wait_for 20 has_grown /export/ours/kernel || die 'nothing is written'
  remove "$1: the kernel's client writes"
  if ! wait $client; then
    grep -E 'Invalid argument|No such device' /tmp/dd.log || die "dd: $(cat /tmp/dd.log)"
    dd if=/tmp/data of=/mnt/kernel bs=1M conv=fsync 2>/tmp/dd.log || die "dd again: $(cat /tmp/dd.log)"
  fi
  drop_caches
  cmp /tmp/data /mnt/kernel || die 'read back'
  cmp /tmp/data /export/ours/kernel || die 'what the server holds'
  umount /mnt || die umount
  rm /export/ours/kernel
}
# nobody WHO: nobody is connected any more when the device is removed.
nobody() {
  /lab/rpcrdma ping -q -c 1 $RXE_IP:$OURS_PORT --provider verbs || die 'ping'
  remove "$1: nobody is connected"
  reached() { /lab/rpcrdma ping -q -c 1 $RXE_IP:$OURS_PORT --provider verbs; }
  wait_for 20 reached || die 'nobody listens over the device that is back'
}
# undisturbed WHO: calls over software iWARP go on, one behind the other over one connection.
undisturbed() {
  local client
  /lab/rpcrdma ping -c 100 -i 0.05 $RXE_IP:$OURS_PORT --provider iwarp >/tmp/ping.log 2>&1 &
  client=$!
  wait_for 20 grep -q 'seq=1\>' /tmp/ping.log || die "no call: $(cat /tmp/ping.log)"
  remove "$1: software iWARP is busy"
  wait $client || die "ping: $(cat /tmp/ping.log)"
  tail -n 3 /tmp/ping.log
  grep -vE '^(PING|reply from|--- |[0-9]+ calls|rtt|$)' /tmp/ping.log && die 'software iWARP was disturbed'
  grep -q '100 calls, 100 replies, 0% lost' /tmp/ping.log || die 'calls over software iWARP were lost'
}
# Without the numbers of devices: one that was removed comes back with another.
settled() { [ "$(rdma resource show | sed 's/^[0-9]*: //')" = "$(sed 's/^[0-9]*: //' <<<"$before")" ]; }
ends() {
  ours_ends
  wait_for 20 settled || die "objects: before $before, after $(rdma resource show)"
}

ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none /export/ours
who='a server on all addresses'
our_client "$who" --provider verbs --device rxe0
kernels_client "$who"
nobody "$who"
ends

OURS_AT=$RXE_IP
ours_up --provider verbs --allow 10.0.3.0/24 --squash none /export/ours
OURS_AT=
who='a server on the address of the device'
our_client "$who" --provider verbs
kernels_client "$who"
nobody "$who"
ends

ours_up --trust-local --allow 10.0.3.0/24 --squash none /export/ours
cat /run/listening
who='a server over both providers'
our_client "$who"
kernels_client "$who"
undisturbed "$who"
nobody "$who"
ends
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
