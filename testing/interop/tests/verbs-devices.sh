# libibverbs and librdmacm on both software devices: what ibv_devinfo sees, and rping in both modes. Then what our
# `devices` says of them, and of all that can be missing.
. /lab/lib.sh
PINGS=100
LIBRARIES=/usr/lib/x86_64-linux-gnu

rxe_up
siw_up
verbs_up
for type in rxe siw; do
  step "ibv_devinfo of $type"
  ibv_devinfo -v -d ${type}0 >/tmp/devinfo-$type || die 'ibv_devinfo fails'
  cat /tmp/devinfo-$type
  grep -q 'PORT_ACTIVE' /tmp/devinfo-$type || die 'the port is not active'
  address=$(address_of $type)
  step "rping over $type"
  # A server for several connections, because siw may leave the first message of one unread until more arrives.
  rping -s -P -a "$address" >/tmp/server 2>&1 &
  server=$!
  wait_for 60 timeout 10 rping -c -a "$address" -C $PINGS -V ||
    die "no client of rping gets its data: $(cat /tmp/server)"
  kill $server
  wait $server
  rdma link show ${type}0/1
  rdma resource show
done
same 'memory windows of rxe' 1 "$(grep -c 'MEM_WINDOW_TYPE_2B' /tmp/devinfo-rxe)"
same 'memory windows of siw' 0 "$(grep -c 'MEM_WINDOW' /tmp/devinfo-siw)"

step 'our devices'
before=$(rdma resource show)
/lab/rpcrdma devices || die 'devices'
/lab/rpcrdma devices -l || die 'devices -l'
/lab/rpcrdma devices --json >/tmp/json || die 'devices --json'
# agrees TYPE MEMBER NAME: our limit is the one of ibv_devinfo.
agrees() {
  same "$3 of $1" "$(sed -n "s/^[[:space:]]*$3:[[:space:]]*//p" /tmp/devinfo-$1)" \
    "$(grep "\"name\":\"${1}0\"" /tmp/json | grep -o "\"$2\":[0-9]*" | head -n 1 | cut -d: -f2)"
}
for type in rxe siw; do
  agrees $type queue_pairs max_qp
  agrees $type work_requests max_qp_wr
  agrees $type pieces max_sge
  agrees $type completions max_cqe
  agrees $type inbound_reads max_qp_rd_atom
  agrees $type outstanding_reads max_qp_init_rd_atom
done
same 'objects of the kernel' "$before" "$(rdma resource show)"
sed 's/^/@@device /' /tmp/json

# fails SAYS [ARGUMENT...]: `devices` ends with 1 and one message, which has these words. libibverbs may warn, too.
fails() {
  local says=$1 status
  shift
  busybox su user -s /bin/bash -c "/lab/rpcrdma devices $*" >/tmp/out 2>/tmp/errors
  status=$?
  cat /tmp/out /tmp/errors
  same "status of devices $*" 1 $status
  same 'messages' 1 "$(grep -c '^rpcrdma: ' /tmp/errors)"
  grep -qF "$says" /tmp/errors || die "it does not say '$says'"
}
step 'no such device'
fails 'mlx5_0: no such RDMA device; there are: rxe0, siw0' mlx5_0
step 'no permission'
chmod 600 /dev/infiniband/uverbs0
fails 'rxe0: /dev/infiniband/uverbs0: Permission denied (`ls -l'
grep -q '^siw0 .* yes, with --provider verbs$' /tmp/out || die 'the other device is not shown'
chmod 666 /dev/infiniband/uverbs0
step 'no file'
mv /dev/infiniband/uverbs0 /dev/infiniband/hidden
fails 'rxe0: there is no /dev/infiniband/uverbs0 (`modprobe'
mv /dev/infiniband/hidden /dev/infiniband/uverbs0
step 'no driver of libibverbs'
mv /etc/libibverbs.d /etc/hidden.d
fails 'rxe0: libibverbs has no driver for it (install ibverbs-providers' rxe0
mv /etc/hidden.d /etc/libibverbs.d
step 'no library'
mv $LIBRARIES/libibverbs.so.1 $LIBRARIES/hidden.so.1
fails 'cannot load libibverbs.so.1'
fails 'libibverbs1, ibverbs-providers and librdmacm1'
mv $LIBRARIES/hidden.so.1 $LIBRARIES/libibverbs.so.1
step 'no device'
link_down rxe
link_down siw
fails 'no RDMA device on this machine'
