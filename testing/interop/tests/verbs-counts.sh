# What calls cost over rxe: work requests, doorbells, completions and registrations of our client and of our server,
# system calls of the client, and the trace events of the kernel's client for the same calls on the kernel's server.
. /lab/lib.sh
. /lab/ours.sh
ulimit -l unlimited
rxe_up
verbs_up
# Without this, its transfers are small in a machine with little memory.
TRANSFER=1048576
nfsd_up
modprobe nfsv3 || die 'no nfsv3'
mkdir -p /export/x /export/ours
dd if=/dev/urandom of=/export/x/file bs=1M count=8 2>/dev/null
cp /export/x/file /export/ours/file
ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none --control-socket /run/control /export/ours

# The document of bench in one line.
document() { tr -d '\n ' </tmp/bench.json; }

# counted SERVER WHAT URL [OPTION...]: the counts of our client, and of our server, as the host wants them. In the first
# calls of a connection, versions and credits are negotiated, and memory is registered that stays.
counted() {
  local server=$1 what=$2 url=$3
  shift 3
  /lab/rpcrdma bench "$url" --json --ramp-time 1s --time 2s "$@" $STATS --provider verbs --device rxe0 >/tmp/bench.json ||
    die "bench $what"
  echo "@@counts $server $what $(document)"
}
for server in knfsd ours; do
  step "what calls of our client cost, with $server"
  case $server in
    knfsd) at=$RXE_IP:20049 file=/export/x/file STATS= ;;
    ours) at=$RXE_IP:$OURS_PORT file=/ours/file STATS=--server-stats=/run/control ;;
  esac
  counted $server null $at
  counted $server read-4k $at$file --rw read --bs 4k
  counted $server write-4k $at$file --rw write --overwrite --bs 4k
  counted $server read-1m $at$file --rw read --bs 1m
  counted $server write-1m $at$file --rw write --overwrite --bs 1m
done

step 'designs for remote invalidation'
/lab/lab invalidation --device rxe0 --payload 8k --runs 3 --calls 32 --json >/tmp/bench.json ||
  die 'lab invalidation'
echo "@@designs $(document)"

# All system calls of a client from its beginning to its end, by number and first argument, which is a descriptor.
step 'system calls of our client'
echo 16384 >$TRACING/buffer_size_kb
echo 1 >$TRACING/options/event-fork
(
  echo $BASHPID >$TRACING/set_event_pid
  trace_clear
  echo 1 >$TRACING/events/raw_syscalls/sys_enter/enable
  exec /lab/rpcrdma bench $RXE_IP:20049 --json --time 1s --provider verbs --device rxe0
) >/tmp/bench.json &
client=$!
on_device() {
  local fd
  for fd in /proc/$client/fd/*; do
    case $(readlink "$fd") in */uverbs*) DEVICE_FD=${fd##*/} && return ;; esac
  done
  return 1
}
# Not in a subshell, as wait_for would.
until on_device; do kill -0 $client || die 'our client has no device'; done
wait $client || die 'bench'
echo 0 >$TRACING/events/raw_syscalls/sys_enter/enable
echo >$TRACING/set_event_pid
sed -n 's/.*sys_enter: NR \([0-9]*\) (\([0-9a-f]*\),.*/\1 \2/p' $TRACING/trace | sort | uniq -c | sort -rn >/tmp/calls
head -n 20 /tmp/calls
echo "@@device $(printf %x "$DEVICE_FD") $(document)"
echo "@@calls $(while read -r count number first; do echo "$number:$first:$count"; done </tmp/calls | tr '\n' ' ')"

# traced WHAT COUNT COMMAND...: the trace events of the kernel's client, for so many calls.
for event in $TRACING/events/rpcrdma/*; do
  case ${event##*/} in
    xprtrdma_post_send | xprtrdma_post_recvs | xprtrdma_mr_map | xprtrdma_mr_reminv | xprtrdma_mr_localinv | \
      xprtrdma_wc_send | xprtrdma_wc_receive | xprtrdma_wc_fastreg | xprtrdma_wc_li* | xprtrdma_mr_fastreg)
      echo 1 >$event/enable
      ;;
  esac
done
traced() {
  local what=$1 count=$2
  shift 2
  trace_clear
  "$@" 2>/tmp/dd.log || die "$what: $(cat /tmp/dd.log)"
  sleep 0.5
  echo "@@traced $what $count $(sed -n 's/.*: \(xprtrdma_[a-z_]*\):.*/\1/p' $TRACING/trace | sort | uniq -c |
    while read -r seen event; do printf '%s=%s ' "$event" "$seen"; done)"
}
step "what calls of the kernel's client cost"
mount_v3 $RXE_IP 20049 20048 /export/x
traced read-4k 64 dd if=/mnt/file of=/dev/null bs=4k count=64 iflag=direct
traced write-4k 64 dd if=/dev/zero of=/mnt/file bs=4k count=64 oflag=direct conv=notrunc
traced read-1m 8 dd if=/mnt/file of=/dev/null bs=1M count=8 iflag=direct
traced write-1m 8 dd if=/dev/zero of=/mnt/file bs=1M count=8 oflag=direct conv=notrunc
check_mountstats
umount /mnt || die umount
ours_ends
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
