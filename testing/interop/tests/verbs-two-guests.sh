# Clients over rxe of servers in another guest: ours and the kernel's on our server, and ours on the kernel's server.
. /lab/lib.sh
. /lab/ours.sh
. /lab/load.sh
ulimit -l unlimited
rxe_wired_up "$CLIENT"
verbs_up
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
sum=$(sum_of /tmp/data)
ours() { /lab/rpcrdma "$@" --provider verbs --device rxe0 || die "rpcrdma $*"; }

# held PATH: the host looks at what the server holds.
held() {
  echo "@@held $1 $sum"
  read -r line <&3
  [ "$line" = continue ] || die "the host says $line"
}

wait_for 60 ping -c 1 -W 1 "$SERVER" || die "the other guest does not answer: $(ip -s link show eth1; ip neigh)"

step 'our client on our server'
ours ping -c 1 "$SERVER:$OURS_PORT"
url=nfs://$SERVER:$OURS_PORT
ours put /tmp/data "$url/put"
held ours/put
ours get "$url/put" /tmp/got
cmp /tmp/data /tmp/got || die 'what was got'

step "the kernel's client on our server"
modprobe nfsv3 || die 'no nfsv3'
trace_on xprtrdma_mr_reminv
attach /mnt "$SERVER" /ours
dd if=/tmp/data of=/mnt/written bs=1M conv=fsync 2>/dev/null || die write
held ours/written
drop_caches
cmp /tmp/data /mnt/written || die 'read back'
check_mountstats
step "remote invalidations $(trace_count xprtrdma_mr_reminv)"
[ "$(trace_count xprtrdma_mr_reminv)" -gt 0 ] || die 'no remote invalidation'
umount /mnt || die umount

step "our client on the kernel's server"
url=nfs://$SERVER:20049/export/x
ours put /tmp/data "$url/put"
held x/put
ours get "$url/put" /tmp/got-2
cmp /tmp/data /tmp/got-2 || die 'what was got'

step 'a client at work whose machine loses its power'
attach /mnt "$SERVER" /ours
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
READERS=4
for ((i = 0; i < READERS; i++)); do
  while :; do dd if=/mnt/written of=/dev/null bs=1M iflag=direct 2>/dev/null; done &
done
host_unanswered 1
# The host stops the server's machine.
echo '@@at-work'
read -r line <&3
host_unanswered $READERS
echo '@@switch-off'
read -r line <&3
