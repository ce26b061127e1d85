# The kernel's client, versions 4.2 and 4.1, at work on our server over rxe, as RDMA hardware; both are in this guest.
. /lab/lib.sh
. /lab/ours.sh
. /lab/work.sh
. /lab/work4.sh
. /lab/locks.sh
ulimit -l unlimited

SERVER=$RXE_IP PORT=$OURS_PORT PROTO=rdma ROOT=/ours
ENTRIES=300 COMPLETE=1 OWNER_KEPT=1
FOLDER=/srv/ours

# Both versions have all of it: it is the same server.
work_more() { work_of_4; }

# clients_of_4: a line for each client of version 4 that the server knows.
clients_of_4() { /lab/rpcrdma clients --nfs4 --json --socket /run/control || die 'rpcrdma clients'; }

step 'rxe link'
rxe_up
verbs_up
objects() { rdma resource show; }
before=$(objects)
new_disk $FOLDER 128 defaults
mkdir $FOLDER/many || die mkdir
for ((i = 0; i < ENTRIES; i++)); do : >"$FOLDER/many/entry-$i"; done
chmod 755 $FOLDER
ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none --control-socket /run/control $FOLDER
cat /run/listening
work_begin
trace_on xprtrdma_mr_reminv
for version in 4.2 4.1; do
  OTHER=4.2
  trace_clear
  work_in $version
  count=$(trace_count xprtrdma_mr_reminv)
  step "$count remote invalidations with version $version"
  [ "$count" -gt 0 ] || die 'no remote invalidation'
done

step 'locks of two clients over rxe'
mount_as 4.2 /mnt nosharecache
mount_as 4.1 /other nosharecache
same 'clients of version 4' 2 "$(clients_of_4 | wc -l)"
/lab/rpcrdma clients -l --socket /run/control
same 'connections over the device' 2 "$(/lab/rpcrdma clients -l --socket /run/control | grep -c ' rxe0')"
mkdir /mnt/w || die mkdir
locks_between /mnt/w /other/w
exclusively_between /mnt/w /other/w
rm -r /mnt/w || die remove
errors_of_operations
umount /other || die umount

step 'locks of programs on the server, which is this machine'
: >/mnt/local-lock || die create
agent client
agent local
says client ok open f /mnt/local-lock
says local ok open f $FOLDER/local-lock
says local ok lock f write 0 0
says client busy lock f write 0 10
tell_agent client wait f write 0 10
is_waiting client
says local ok unlock f 0 0
got_within client 2000
says local busy lock f write 0 0
says client ok unlock f 0 0
says local ok lock f write 0 0
agent_ends local
agent_ends client
rm /mnt/local-lock
umount /mnt || die umount

same 'clients of version 4 after unmounting' '' "$(clients_of_4)"
ours_ends
settled() { [ "$(objects)" = "$before" ]; }
wait_for 20 settled || die "objects: before $before, after $(objects)"
kernel_is_content
exit 0
