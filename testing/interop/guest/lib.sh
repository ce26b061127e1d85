# Vocabulary of the guest scripts:  . /lab/lib.sh

TRACING=/sys/kernel/tracing
GUEST_IP=10.0.2.15

# Tells the host which part of the test begins.
step() { printf '@@step %s\n' "$*"; }

# Ends the test, with what the kernel has to say about it.
die() {
  printf '@@fail %s\n' "$*"
  echo '--- kernel log'
  dmesg | grep -iE 'rpc|rdma|siw|rxe|nfs|ib_|BUG|WARN|hung' | tail -n 30
  if grep -q ' /mnt ' /proc/mounts; then
    echo '--- mountstats'
    mountstats
  fi
  if [ -s /run/serve.log ]; then
    echo '--- our server'
    tail -n 30 /run/serve.log
  fi
  exit 1
}

# wait_for SECONDS COMMAND...: tries until the command succeeds.
wait_for() {
  local end=$(($(now_ms) + $1 * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(now_ms)" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# Milliseconds since the machine is on, in steps of ten.
now_ms() {
  local up rest
  read -r up rest </proc/uptime
  echo $((10#${up/./} * 10))
}

# has_grown PATTERNS: a file of one of these names is being written. A temporary name of ours begins with a dot.
has_grown() {
  local file
  for file in $1; do [ -e "$file" ] && [ "$(stat -c %s "$file")" -gt 1000000 ] && return; done
  return 1
}

link_is_active() { rdma link show "$1/1" | grep -q 'state ACTIVE'; }

# link_up TYPE NETDEV: adds the RDMA link TYPE0 of that type and waits until it is active.
link_up() {
  rdma link add "${1}0" type "$1" netdev "$2" || die "cannot add the $1 link"
  wait_for 20 link_is_active "${1}0" || die "the $1 link does not become active"
}

# Software iWARP on the guest's network card, and NFS's RDMA transport.
siw_up() {
  modprobe -a ib_core iw_cm rdma_cm siw || die 'cannot load siw'
  link_up siw eth0
  modprobe rpcrdma || die 'cannot load rpcrdma'
}

# Software RoCE on a network card of its own, so that its address is not siw's, and NFS's RDMA transport.
RXE_IP=10.0.3.1
rxe_up() {
  modprobe -a dummy rdma_cm rdma_rxe || die 'cannot load rxe'
  ip link add rxenet type dummy && ip addr add $RXE_IP/24 dev rxenet && ip link set rxenet up ||
    die 'no network card for rxe'
  link_up rxe rxenet
  modprobe rpcrdma || die 'cannot load rpcrdma'
}

# rxe_wired_up ADDRESS: software RoCE on the network card with the cable to another guest, and NFS's RDMA transport.
rxe_wired_up() {
  modprobe -a rdma_cm rdma_rxe || die 'cannot load rxe'
  ip addr add "$1/24" dev eth1 && ip link set eth1 mtu 9000 up || die 'no network card with a cable'
  link_up rxe eth1
  modprobe rpcrdma || die 'cannot load rpcrdma'
}

# link_down TYPE: removes a link. That waits until nobody uses it any more.
link_down() {
  timeout 10 rdma link delete "${1}0" || die "the $1 link cannot be removed"
  [ "$1" != rxe ] || ip link delete rxenet || die 'the network card of rxe cannot be removed'
}

# What libibverbs and librdmacm open: /dev/infiniband/uverbs* and /dev/infiniband/rdma_cm.
verbs_up() { modprobe -a ib_uverbs rdma_ucm || die 'cannot load userspace verbs'; }

# address_of TYPE: the address at which the link of that type listens and connects, also to itself.
address_of() {
  case $1 in
    rxe) echo $RXE_IP ;;
    siw) echo $GUEST_IP ;;
    *) die "no link of type $1" ;;
  esac
}

# nfsd_up [OPTION...]: the kernel's NFS server with /export, on RDMA port 20049 and MOUNT port 20048;
# options are those of rpc.nfsd. READs and WRITEs have at most $TRANSFER bytes, if it is set.
nfsd_up() {
  modprobe nfsd || die 'cannot load nfsd'
  mount -t nfsd nfsd /proc/fs/nfsd
  [ -z "$TRANSFER" ] || echo "$TRANSFER" >/proc/fs/nfsd/max_block_size || die "no $TRANSFER bytes"
  mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
  rpcbind -w || die 'rpcbind does not start'
  chmod 1777 /export
  exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,async '*:/export' ||
    die 'exportfs fails'
  rpc.nfsd "$@" 4 || die 'rpc.nfsd fails'
  echo 'rdma 20049' >/proc/fs/nfsd/portlist || die 'nfsd does not listen on RDMA'
  rpc.mountd --port 20048 || die 'rpc.mountd does not start'
}

# mount_v3 HOST PORT MOUNT_PORT PATH [OPTION,...]: version 3 over RDMA on /mnt.
# mount.nfs itself, because busybox has a mount of its own.
mount_v3() {
  local options="vers=3,nolock,proto=rdma,port=$2,mountproto=tcp,mountport=$3${5:+,$5}"
  echo "mount.nfs $1:$4 /mnt -o $options"
  mount.nfs "$1:$4" /mnt -o "$options" || die 'mount fails'
  grep ' /mnt ' /proc/mounts
}

drop_caches() {
  sync
  echo 3 >/proc/sys/vm/drop_caches
}

trace_on() {
  local event
  echo 8192 >$TRACING/buffer_size_kb
  for event in "$@"; do
    echo 1 >"$TRACING/events/rpcrdma/$event/enable" || die "no trace event $event"
  done
  trace_clear
}
trace_clear() { echo >$TRACING/trace; }
trace_count() { grep -c " $1:" $TRACING/trace; }

mountstats() { grep -A60 ' mounted on /mnt ' /proc/self/mountstats | grep -m1 'xprt:'; }

# The transport's counters. Of the last 17 numbers of the line the 9th counts Calls that could not
# be marshalled at the first try, which happens when memory regions run short and harms nobody; the
# 10th counts bad replies.
check_mountstats() {
  local -a field
  read -ra field <<<"$(mountstats)"
  echo "${field[*]}"
  [ "${field[1]}" = rdma ] || die "the transport is not rdma: ${field[*]}"
  [ "${#field[@]}" -ge 28 ] || die "mountstats has only ${#field[@]} fields"
  [ "${field[-8]}" = 0 ] || die "${field[-8]} bad replies"
}

sum_of() { sha256sum "$1" | cut -d' ' -f1; }

# same WHAT EXPECTED SEEN
same() { [ "$2" = "$3" ] || die "$1: expected '$2', seen '$3'"; }
