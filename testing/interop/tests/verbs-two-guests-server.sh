# Our server and the kernel's, over rxe, for another guest.
. /lab/lib.sh
. /lab/ours.sh
ulimit -l unlimited
rxe_wired_up "$SERVER"
verbs_up
# Without this, transfers are small in a machine with little memory.
TRANSFER=1048576
nfsd_up
mkdir -p /export/ours /export/x
objects=$(rdma resource show)
ours_up --provider verbs --device rxe0 --allow "$CLIENT" --squash none --control-socket /run/control /export/ours
cat /run/listening
settled() { [ "$(rdma resource show)" = "$1" ]; }
clients() { /lab/rpcrdma clients --json --socket /run/control; }
connections() { clients | grep -c verbs; }
counters() { grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/*; }
has_connections() { [ "$(connections)" = "$1" ]; }
echo '@@ready'
while read -r command argument <&3; do
  case $command in
    sum) echo "@@sum $(sum_of "/export/$argument")" ;;
    connections)
      # connections COUNT: waits until our server has so many
      begin=${EPOCHREALTIME/./}
      wait_for 120 has_connections "$argument" ||
        die "there are $(connections) connections, and not $argument: $(clients), $(rdma resource show qp), $(counters)"
      echo "@@connections $(((${EPOCHREALTIME/./} - begin) / 1000))"
      ;;
    stop) break ;;
    *) die "unknown command $command" ;;
  esac
done
ours_ends
wait_for 20 settled "$objects" || die "objects: before $objects, after $(rdma resource show)"
for counter in sent_pkts rcvd_pkts duplicate_request out_of_seq_request retry_exceeded_err; do
  echo "@@counter $counter $(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/$counter)"
done
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
