# Users of this machine at our server and our gateway: by sockets of programs, and by those of the kernel, which are
# root's. All is in this guest.
#
#   /lab/kernels is the program of tests of that name.
. /lab/lib.sh
. /lab/ours.sh

step 'sockets of programs'
modprobe -a tcp_diag vrf dummy || die 'no modules'
/lab/kernels --nocapture --test-threads=1 >/tmp/said 2>&1
status=$?
cat /tmp/said
same 'status of the tests' 0 $status
grep -q skipped /tmp/said && die 'a test was skipped'

step 'a kernel without tcp_diag'
mkdir -m 777 -p /export/d || die mkdir
modprobe -r tcp_diag || die 'tcp_diag cannot be unloaded'
loader=$(cat /proc/sys/kernel/modprobe)
echo /bin/false >/proc/sys/kernel/modprobe
ours_up --allow "$GUEST_IP" --squash none /export/d
grep -q 'load its module tcp_diag' $OURS_LOG || die 'our server does not say at its start what is missing'
: >$OURS_LOG
timeout 60 /lab/rpcrdma ping --count 1 "$GUEST_IP:$OURS_PORT" && die 'a connection of unknown user is served'
grep -q 'load its module tcp_diag' $OURS_LOG || die 'our server does not say why it refuses the connection'
ours_ends
(cd / && exec /lab/rpcrdma gateway --listen tcp://127.0.0.1:2049 --upstream "rdma://$GUEST_IP" \
  >/run/gateway.said 2>/run/gateway.log) &
gateway=$!
wait_for 60 grep -q 2049 /run/gateway.said || die "the gateway does not listen: $(cat /run/gateway.log)"
grep -q 'load the kernel module tcp_diag' /run/gateway.log || die 'our gateway does not say at its start what is missing'
kill $gateway
wait $gateway || die "the gateway ended with status $?"
echo "$loader" >/proc/sys/kernel/modprobe
modprobe tcp_diag || die 'tcp_diag cannot be loaded'

# as_root_on DIRECTORY: the mount there is root's.
as_root_on() {
  echo text >"$1/file" || die write
  chown 1000:1000 "$1/file" || die 'the mount is not that of root'
  chmod 4755 "$1/file" || die chmod
  same owner '1000:1000 4755' "$(stat -c '%u:%g %a' /export/d/file)"
  su -s /bin/bash user -c "echo more >>$1/file" || die 'write of another user'
  rm "$1/file" || die rm
}

step 'the mount of the kernel over RDMA'
siw_up
ours_up --allow "$GUEST_IP" --squash none /export/d
attach /mnt "$GUEST_IP" /d
as_root_on /mnt
umount /mnt || die umount

step 'the mount of the kernel over TCP, through our gateway'
(cd / && exec /lab/rpcrdma gateway --listen tcp://127.0.0.1:2049 --upstream "rdma://$GUEST_IP:$OURS_PORT" \
  --mount-port 20048 --upstream-mount "$GUEST_IP:$OURS_MOUNT_PORT" >/run/gateway.said 2>/run/gateway.log) &
gateway=$!
wait_for 60 grep -q 20048 /run/gateway.said || die "the gateway does not listen: $(cat /run/gateway.log)"
mount.nfs 127.0.0.1:/d /mnt -o vers=3,nolock,proto=tcp,port=2049,mountproto=tcp,mountport=20048 || die mount
as_root_on /mnt
umount /mnt || die umount
kill $gateway
wait $gateway || die "the gateway ended with status $?"
ours_ends
exit 0
