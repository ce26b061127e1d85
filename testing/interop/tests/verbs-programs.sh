# Our programs over rxe, as RDMA hardware: the kernel's client mounts our server, and our commands use the kernel's
# server.
. /lab/lib.sh
. /lab/ours.sh
CONNECTIONS=20
ulimit -l unlimited
rxe_up
verbs_up
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
objects=$(rdma resource show)

step 'our client on our server'
mkdir -p /export/ours
ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none /export/ours
cat /run/listening
url=nfs://$RXE_IP:$OURS_PORT
ours() { /lab/rpcrdma "$@" --provider verbs || die "rpcrdma $*"; }
ours put /tmp/data $url/ours-1
cmp /tmp/data /export/ours/ours-1 || die 'what was put'
ours get $url/ours-1 /tmp/got-1
cmp /tmp/data /tmp/got-1 || die 'what was got'
step 'a client that chooses its provider uses the device'
chosen() {
  /lab/rpcrdma ping -c 1 $RXE_IP:$OURS_PORT >/run/chosen && cat /run/chosen && grep -q "$1" /run/chosen
}
chosen rxe0 || die 'not over the device'
step "$CONNECTIONS connections in a row leave nothing behind"
ours ping -c 1 $RXE_IP:$OURS_PORT
# A connection that has ended may still be taken down.
settled() { [ "$(rdma resource show)" = "$1" ]; }
idle=$(rdma resource show)
for ((i = 0; i < CONNECTIONS; i++)); do ours ping -c 1 -q $RXE_IP:$OURS_PORT; done
wait_for 20 settled "$idle" || die "objects: before $idle, after $(rdma resource show)"
ours_ends

step 'put keeps nothing of a connection whose server was stopped and killed'
ours_serves() { ours_up --provider verbs --device rxe0 --allow 10.0.3.0/24 --squash none /export/ours; }
# What holds memory: put has the device open as long as it runs.
memory() { rdma resource show | grep -oE '\b(pd|qp|mr) [0-9]+'; }
released() { [ "$(memory)" = "$1" ]; }
wait_for 20 settled "$objects" || die "objects: before $objects, after $(rdma resource show)"
none=$(memory)
ours_serves
dd if=/dev/urandom of=/tmp/large bs=1M count=48 2>/dev/null
/lab/rpcrdma put /tmp/large $url/large --provider verbs >/tmp/put.log 2>&1 &
client=$!
wait_for 60 has_grown '/export/ours/.large*' || die 'nothing is written'
kill -STOP $OURS
ours_killed
# It is still there, and asks for the server now and then. What it kept would stay until it ends.
wait_for 60 released "$none" || die "objects: before $none, under put $(rdma resource show)"
kill -0 $client || die "put has ended: $(cat /tmp/put.log)"
ours_serves
wait $client || die "put: $(cat /tmp/put.log)"
cat /tmp/put.log
grep -E 'deregistered|given back|still in use' /tmp/put.log && die 'put has left something behind'
cmp /tmp/large /export/ours/large || die 'what was put'
rm /tmp/large /export/ours/large

step "the kernel's client on our server"
modprobe nfsv3 || die 'no nfsv3'
trace_on xprtrdma_inline_thresh xprtrdma_mr_reminv xprtrdma_mr_localinv
attach /mnt $RXE_IP /ours
dd if=/tmp/data of=/mnt/f bs=1M conv=fsync 2>/dev/null || die write
drop_caches
cmp /tmp/data /mnt/f || die 'read back'
cmp /tmp/data /export/ours/f || die 'what the server holds'
check_mountstats
grep xprtrdma_inline_thresh $TRACING/trace
step "remote invalidations $(trace_count xprtrdma_mr_reminv), local ones $(trace_count xprtrdma_mr_localinv)"
[ "$(trace_count xprtrdma_mr_reminv)" -gt 0 ] || die 'no remote invalidation'
umount /mnt || die umount
ours_ends
wait_for 20 settled "$objects" || die "objects: before $objects, after $(rdma resource show)"

step 'a client that chooses its provider uses software iWARP where nobody listens over the device'
ours_up --provider iwarp --allow 10.0.3.0/24 /export/ours
chosen iWARP || die 'not over software iWARP'
ours_ends

step 'one server over the device and over software iWARP at once'
# has TEXT COMMAND...: a command of ours that prints this.
has() {
  /lab/rpcrdma "${@:2}" >/run/printed && cat /run/printed && grep -qF -- "$1" /run/printed || die "rpcrdma ${*:2}"
}
at=$RXE_IP:$OURS_PORT
ours_up --trust-local --allow 10.0.3.0/24 --squash none --control-socket /run/control /export/ours
cat /run/listening
grep -qF "0.0.0.0:$OURS_PORT over software iWARP, $at over RDMA devices" /run/listening || die 'what it listens on'
attach /mnt $RXE_IP /ours
dd if=/tmp/data of=/mnt/both bs=1M conv=fsync 2>/dev/null &
/lab/rpcrdma put /tmp/data nfs://$at/both-2 --provider iwarp || die 'put over software iWARP'
wait $! || die 'write over the device'
cmp /tmp/data /export/ours/both && cmp /tmp/data /export/ours/both-2 || die 'what the server holds'
has '"provider":"verbs","device":"rxe0"' ping -c 1 --json $at
has '"provider":"iwarp",' ping -c 1 --json --provider iwarp $at
has ' rxe0' clients -l --socket /run/control
has '"verdict":"rpcrdma"' probe -c 1 --json $at
for seen in '"provider":"verbs","device":"rxe0"' '"tcp_connect_ms":null' '"valid":true' '"version_one":true' \
  '"answer":"spoken"' '"nfs_versions":[3,4]' '"invalidates":true'; do
  grep -qF "$seen" /run/printed || die "probe does not say $seen"
done
has 'RoCE on rxe0' probe -c 1 $at
/lab/rpcrdma probe -c 1 --provider verbs $RXE_IP:9 >/run/printed && die 'a peer where nobody listens'
cat /run/printed
grep -qF 'nothing listens there over RDMA devices' /run/printed || die 'probe of nobody'
umount /mnt || die umount
ours_ends
step 'users of this machine are told apart: its own connections go over software iWARP'
ours_up --allow 10.0.3.0/24 /export/ours
chosen iWARP || die 'not over software iWARP'
/lab/rpcrdma ping -c 1 --provider verbs $at && die 'taken in over the device'
ours_ends
wait_for 20 settled "$objects" || die "objects: before $objects, after $(rdma resource show)"

step "our client on the kernel's server"
nfsd_up
mkdir -p /export/x
url=nfs://$RXE_IP:20049/export/x
ours put /tmp/data $url/f
cmp /tmp/data /export/x/f || die 'what was put'
ours get $url/f /tmp/got-2
cmp /tmp/data /tmp/got-2 || die 'what was got'
ours ls -l $url
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
