# Our programs over siw, as RDMA hardware of another make: against software iWARP of ours on the host, in both roles, and
# under the kernel's client.
. /lab/lib.sh
. /lab/ours.sh
ulimit -l unlimited
siw_up
verbs_up
# The last piece is short, and all pieces begin off the boundaries of pages somewhere.
dd if=/dev/urandom of=/tmp/data bs=1M count=6 2>/dev/null
head -c 12345 /dev/urandom >>/tmp/data
objects=$(rdma resource show)

step "our client over siw, our server over software iWARP on the host"
url=nfs://10.0.2.2:$HOST_PORT
ours() { /lab/rpcrdma "$@" --provider verbs --device siw0 || die "rpcrdma $*"; }
# The neighbour's address, so that the time for it is none of the connection's.
ping -c 1 -W 5 10.0.2.2
ip neigh show
ours ping -c 3 10.0.2.2:$HOST_PORT
ours put /tmp/data $url/from-siw
ours get $url/from-siw /tmp/back
cmp /tmp/data /tmp/back || die 'what was got'
# Files of all lengths up to 70 bytes are WRITEs of as many.
mkdir /tmp/small
for ((size = 0; size <= 70; size++)); do head -c $size /tmp/data >/tmp/small/$size; done
ours put -r /tmp/small $url/small
ours get -r $url/small /tmp/small-back
diff -r /tmp/small /tmp/small-back || die 'small files'
echo "@@sum $(sum_of /tmp/data)"

step 'our server over siw, our client over software iWARP on the host'
mkdir -p /export/ours
cp -r /tmp/data /tmp/small /export/ours
ours_up --provider verbs --device siw0 --allow 10.0.2.0/24 --squash none /export/ours
cat /run/listening
echo '@@serving'
while read -r command argument <&3; do
  case $command in
    sum) echo "@@sum $(sum_of "/export/ours/$argument")" ;;
    done) break ;;
    *) die "unknown command $command" ;;
  esac
done

step "the kernel's client on our server, over siw"
modprobe nfsv3 || die 'no nfsv3'
trace_on xprtrdma_mr_reminv xprtrdma_mr_localinv
attach /mnt $GUEST_IP /ours
dd if=/tmp/data of=/mnt/f bs=1M conv=fsync 2>/dev/null || die write
cp -r /tmp/small /mnt/small-kernel || die 'small files'
# Synchronous writes of up to 70 bytes at odd places of pages.
cp /tmp/data /export/ours/odd
cp /tmp/data /tmp/odd
for ((size = 1; size <= 70; size += 3)); do
  at=$((size * 4096 - size / 2))
  dd if=/tmp/small/$size of=/tmp/odd bs=1 seek=$at conv=notrunc 2>/dev/null || die dd
  dd if=/tmp/small/$size of=/mnt/odd bs=$size count=1 oflag=seek_bytes,dsync seek=$at conv=notrunc 2>/dev/null ||
    die 'a short write'
done
drop_caches
cmp /tmp/data /mnt/f || die 'read back'
cmp /tmp/data /export/ours/f || die 'what the server holds'
cmp /tmp/odd /export/ours/odd || die 'short writes'
diff -r /tmp/small /export/ours/small-kernel || die 'small files on the server'
check_mountstats
step "remote invalidations $(trace_count xprtrdma_mr_reminv), local ones $(trace_count xprtrdma_mr_localinv)"
umount /mnt || die umount
ours_ends
settled() { [ "$(rdma resource show)" = "$1" ]; }
wait_for 20 settled "$objects" || die "objects: before $objects, after $(rdma resource show)"
dmesg | grep -E 'BUG|WARNING' && die 'the kernel complains'
exit 0
