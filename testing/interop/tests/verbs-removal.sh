# The RDMA device of our server is removed (`rdma link delete`) amid traffic of our client and of the kernel's. Nobody makes
# the kernel wait, and everything continues when the device is back.
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
ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none /export/ours

# Milliseconds since the machine is on, in steps of ten.
now_ms() {
  local up rest
  read -r up rest </proc/uptime
  echo $((10#${up/./} * 10))
}
# remove AMID: removes the device, which must not take long, and adds it again.
remove() {
  local start took
  start=$(now_ms)
  rdma link delete rxe0 &
  wait_for 10 is_gone $! || { holders; die "$1: the device cannot be removed"; }
  took=$(($(now_ms) - start))
  wait $! || die "$1: the device is not removed"
  step "$1: removed in $took ms"
  [ $took -lt $LIMIT_MS ] || die "$1: the kernel waited $took ms for those who had the device open"
  link_up rxe rxenet
  sed 's/^/server: /' $OURS_LOG
  : >$OURS_LOG
}
is_gone() { ! kill -0 "$1"; }
# Who has the device open, what our server has said, and what tasks wait for.
holders() {
  ls -l /proc/[0-9]*/fd | grep -E '^/proc|uverbs|rdma_cm'
  cat $OURS_LOG /tmp/*.log
  cat /proc/$!/stack
  rdma resource show qp
  rdma resource show cm_id
}
has_grown() { [ "$(stat -c %s "$1")" -gt 1000000 ]; }
# grown PATTERN: a file of this name is being written.
grown() {
  local file
  for file in $1; do has_grown "$file" && return; done
  return 1
}

step 'our client writes'
/lab/rpcrdma put /tmp/data nfs://$RXE_IP:$OURS_PORT/written --provider verbs --device rxe0 >/tmp/put.log 2>&1 &
client=$!
wait_for 20 grown '/export/ours/*written*' || die 'nothing is written'
remove 'our client writes'
wait $client || die "put: $(cat /tmp/put.log)"
cat /tmp/put.log
cmp /tmp/data /export/ours/written || die 'what was put'

step 'our client reads'
/lab/rpcrdma get nfs://$RXE_IP:$OURS_PORT/written /tmp/read --provider verbs --device rxe0 >/tmp/get.log 2>&1 &
client=$!
wait_for 20 grown '/tmp/*read*' || die 'nothing is read'
remove 'our client reads'
wait $client || die "get: $(cat /tmp/get.log)"
cat /tmp/get.log
cmp /tmp/data /tmp/read || die 'what was got'
rm /tmp/read

step "the kernel's client writes"
attach /mnt $RXE_IP /ours
dd if=/tmp/data of=/mnt/kernel bs=1M conv=fsync 2>/tmp/dd.log &
client=$!
wait_for 20 has_grown /export/ours/kernel || die 'nothing is written'
remove "the kernel's client writes"
wait $client || die "dd: $(cat /tmp/dd.log)"
drop_caches
cmp /tmp/data /mnt/kernel || die 'read back'
cmp /tmp/data /export/ours/kernel || die 'what the server holds'
umount /mnt || die umount

ours_ends
# Without the numbers of devices: one that was removed comes back with another.
settled() { [ "$(rdma resource show | sed 's/^[0-9]*: //')" = "$(sed 's/^[0-9]*: //' <<<"$before")" ]; }
wait_for 20 settled || die "objects: before $before, after $(rdma resource show)"
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
