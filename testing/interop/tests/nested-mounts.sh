# File systems that are mounted below our exports: one that is served with them (crossmnt), and one that
# is not. All is in this guest.
. /lab/lib.sh
. /lab/ours.sh
export LC_ALL=C

CROSS=/export/cross
PLAIN=/export/plain

fsid_of() { stat -c %d "$1"; }
kib_of() { df -P "$1" | awk 'NR == 2 {print $2}'; }
is_there() { [ -e "$1" ]; }

step 'siw link'
siw_up
step 'exports with mounts below them'
mkdir -p $CROSS/disk $CROSS/later $CROSS/seen $PLAIN/disk
echo covered >$PLAIN/disk/covered
new_disk $CROSS/disk 24 noatime
echo inside >$CROSS/disk/inside
mount -t tmpfs -o size=8m tmpfs $PLAIN/disk || die mount
echo inside >$PLAIN/disk/inside
cat >/run/rpcrdma.toml <<END
[server]
allow = ["$GUEST_IP"]
rpcbind = true

[[export]]
path = "$CROSS"
crossmnt = true
squash = "none"

[[export]]
path = "$PLAIN"
squash = "none"

[[export.client]]
hosts = ["10.0.2.0/24", "192.0.2.7"]
END
rpcbind -w || die 'rpcbind does not start'
ours_up --config /run/rpcrdma.toml

step 'lists of exports'
showmount -e "$GUEST_IP" >/tmp/listed || die showmount
cat /tmp/listed
same 'by showmount' "/cross $GUEST_IP/32 /plain 10.0.2.0/24,192.0.2.7/32" \
  "$(sed 1d /tmp/listed | sort | tr -s ' \n' ' ' | sed 's/ $//')"
/lab/rpcrdma exports "$GUEST_IP:$OURS_PORT" --mount-port $OURS_MOUNT_PORT >/tmp/listed || die 'rpcrdma exports'
cat /tmp/listed
same 'by rpcrdma exports' '/cross /plain' "$(grep -o '^/[a-z]*' /tmp/listed | sort | paste -sd ' ')"

step 'crossmnt'
# Attributes are asked for again after a second.
attach /mnt "$GUEST_IP" /cross actimeo=1
echo above >/mnt/above || die write
same 'what is in the mounted file system' inside "$(cat /mnt/disk/inside)"
[ "$(fsid_of /mnt)" != "$(fsid_of /mnt/disk)" ] || die 'the file systems are one'
grep ' /mnt/disk ' /proc/mounts || die 'the client has mounted nothing'
# The client counts in blocks of 1 MiB.
ours=$(kib_of $CROSS/disk) theirs=$(kib_of /mnt/disk)
[ $((theirs - ours)) -ge 0 ] && [ $((theirs - ours)) -lt 1024 ] || die "of $ours KiB df says $theirs"
dd if=/dev/urandom of=/tmp/noise bs=64k count=16 2>/dev/null
dd if=/tmp/noise of=/mnt/disk/noise bs=64k conv=fsync 2>/dev/null || die write
cmp /tmp/noise $CROSS/disk/noise || die 'what was written'
ln /mnt/above /mnt/disk/above 2>/tmp/said && die 'a hard link from one to the other'
grep -q 'cross-device' /tmp/said || die "a hard link from one to the other: $(cat /tmp/said)"
mv /mnt/above /mnt/disk/above || die 'mv from one to the other'
same moved above "$(cat $CROSS/disk/above)"
rmdir /mnt/disk 2>/dev/null && die 'a mount point was removed'
same 'the way back' "$(stat -c %i /mnt)" "$(stat -c %i /mnt/disk/..)"

step 'mounted while it is served'
same 'nothing yet' '' "$(ls /mnt/seen)"
for name in later seen; do
  mount -t tmpfs -o size=4m tmpfs $CROSS/$name || die mount
  echo late >$CROSS/$name/late
  wait_for 60 /lab/rpcrdma ls --mount-port $OURS_MOUNT_PORT "nfs://$GUEST_IP:$OURS_PORT/cross/$name/late" ||
    die "what was mounted on $name does not appear"
  # A directory that the client has seen is what it was to it, as long as the one above does not change.
  touch $CROSS/changed-$name
  wait_for 10 is_there /mnt/$name/late || die "what was mounted on $name does not appear to the client"
  [ "$(fsid_of /mnt)" != "$(fsid_of /mnt/$name)" ] || die 'the file systems are one'
  echo more >/mnt/$name/more || die write
  same 'what was written' more "$(cat $CROSS/$name/more)"
done

step 'unmounted while it is used'
exec 5<>/mnt/later/late
cd /mnt/later || die cd
umount -l $CROSS/later || die 'umount -l'
is_gone() { ! /lab/rpcrdma ls --mount-port $OURS_MOUNT_PORT "nfs://$GUEST_IP:$OURS_PORT/cross/later/late"; }
wait_for 10 is_gone || die 'what was unmounted is still served'
# Neither an open file nor a working directory leads to the directory that was covered. Nor does the path.
stale() { grep -q 'Stale file handle' /tmp/said || die "$1: expected 'Stale file handle', seen '$(cat /tmp/said)'"; }
cat /proc/self/fd/5 >/tmp/said 2>&1 && die 'an open file of what was unmounted is read'
stale 'an open file'
dd if=/tmp/noise of=made bs=64k conv=fsync >/tmp/said 2>&1 && die 'a file is made in what was unmounted'
stale 'a working directory'
cd /
exec 5>&-
(echo x >/mnt/later/made) 2>/tmp/said && die 'a file is made where something was unmounted'
stale 'the path'
same 'below the mount' '' "$(ls -A $CROSS/later)"
mount -t tmpfs -o size=4m tmpfs $CROSS/later || die mount
echo again >$CROSS/later/again
wait_for 10 is_there /mnt/later/again || die 'what was mounted again does not appear'
# The others go on.
same 'the other mount' late "$(cat /mnt/seen/late)"
cmp /tmp/noise /mnt/disk/noise || die 'the disk'

step 'without crossmnt'
mkdir /mnt2
attach /mnt2 "$GUEST_IP" /plain actimeo=1
same 'what is under the mount' covered "$(ls /mnt2/disk)"
same 'one file system' "$(fsid_of /mnt2)" "$(fsid_of /mnt2/disk)"
echo more >/mnt2/disk/more || die write
same 'what is mounted' inside "$(ls $PLAIN/disk)"
umount /mnt2 || die umount
umount $PLAIN/disk || die 'what is not served is in use'
same 'what was written under the mount' more "$(cat $PLAIN/disk/more)"

step 'unmount'
check_mountstats
for mount in $(awk '$2 ~ "^/mnt/" {print $2}' /proc/mounts); do
  umount $mount || die "umount $mount"
done
umount /mnt || die umount
ours_ends
umount $CROSS/disk || die 'something of the disk is still open'
exit 0
