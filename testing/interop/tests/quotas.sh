# Limits of a disk and of its users, hit by the kernel's client. Our server, which root runs, exports an
# ext4 with quotas; all is in this guest.
. /lab/lib.sh
. /lab/ours.sh
export LC_ALL=C

# What a user, or its group, may have.
LIMIT_KIB=2048
LIMIT_FILES=20
# Of the disk, and of what is kept for root there.
DISK_MIB=48
RESERVED_PERCENT=25

NFS_EVENTS=$TRACING/events/nfs

as() { su -s /bin/bash "$1" -c "$2" 2>&1; }

# refused HOW WHY USER COMMAND: the command must fail for this reason.
refused() {
  local said
  said=$(as "$3" "$4") && die "$1: not refused"
  case $said in
    *"$2"*) echo "$1: $said" | head -n 1 ;;
    *) die "$1: expected '$2', seen '$said'" ;;
  esac
}

# over FILE [OPERAND]: the user writes more than the limit, in one of the ways dd has, and is told.
over() {
  refused "$1" 'Disk quota exceeded' user "dd if=/tmp/noise of=/mnt/own/$1 bs=64k count=64 $2"
  local kib
  kib=$(du -sk /disk/own | cut -f1)
  [ "$kib" -le $((LIMIT_KIB + 64)) ] || die "$1: $kib KiB were written"
  as user "rm /mnt/own/$1" || die "removing $1"
}

# Somebody else at work all the while, without sync: what is not committed yet must not be lost by what
# happens to the user.
others() {
  local round=0
  until [ -e /run/stop ]; do
    round=$((round + 1))
    as nobody "dd if=/tmp/noise of=/mnt/others/$((round % 4)) bs=64k count=40 conv=notrunc" >/run/others-said ||
      die "others, round $round: $(cat /run/others-said)"
  done
  echo "others wrote $round times"
}

step 'siw link'
siw_up
step 'an ext4 with quotas'
modprobe quota_v2 || die 'no quotas'
new_disk /disk $DISK_MIB usrquota,grpquota -m $RESERVED_PERCENT -O quota -E quotatype=usrquota:grpquota
mkdir -m 1777 /disk/own /disk/others
setquota -u user 0 $LIMIT_KIB 0 $LIMIT_FILES /disk || die 'setquota -u'
dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
ours_up /disk --allow "$GUEST_IP" --squash none
attach /mnt "$GUEST_IP" /disk
for event in nfs_writeback_done nfs_commit_done; do
  echo 1 >$NFS_EVENTS/$event/enable || die "no trace event $event"
done
trace_clear
others &
others=$!

step 'a user writes more than the limit'
over at-fsync conv=fsync
over at-close
over sync oflag=sync
over direct oflag=direct
step 'a user makes more files than the limit'
refused 'files' 'Disk quota exceeded' user \
  "for ((i = 0; i <= $LIMIT_FILES; i++)); do : >/mnt/own/\$i || exit; done"
same 'files made' $LIMIT_FILES "$(ls /disk/own | wc -l)"
as user 'rm /mnt/own/*' || die 'removing files'
step 'a user writes less than the limit'
as user 'dd if=/tmp/noise of=/mnt/own/less bs=64k count=24 conv=fsync' || die 'less than the limit'
cmp -n $((24 * 65536)) /tmp/noise /disk/own/less || die 'less than the limit'
same owner 1000:1000 "$(stat -c %u:%g /disk/own/less)"
as user 'rm /mnt/own/less' || die rm

step 'a group writes more than the limit'
setquota -u user 0 0 0 0 /disk || die 'setquota -u'
setquota -g user 0 $LIMIT_KIB 0 0 /disk || die 'setquota -g'
over group conv=fsync

touch /run/stop
wait $others || exit 1
for file in /disk/others/*; do
  cmp -n $((40 * 65536)) /tmp/noise "$file" || die 'what others wrote'
done
# A server that said it might have lost something would have a new verifier.
writes=$(trace_count nfs_writeback_done) commits=$(trace_count nfs_commit_done)
echo "$writes writes and $commits commits"
[ "$writes" -gt 0 ] && [ "$commits" -gt 0 ] || die 'the trace is empty'
grep -q 'nfs_writeback_done.*error=-122 ' $TRACING/trace || die 'no WRITE was refused'
same verifiers 1 "$(grep -o 'verifier=[0-9a-f]*[1-9a-f][0-9a-f]*' $TRACING/trace | sort -u | wc -l)"

step 'a user fills the disk, but for what is kept for root'
rm /mnt/others/* || die rm
refused 'full disk' 'No space left on device' nobody \
  "dd if=/dev/zero of=/mnt/others/fill bs=1M count=$DISK_MIB conv=fsync"
refused 'still full' 'No space left on device' nobody \
  'dd if=/tmp/noise of=/mnt/others/more bs=256k count=4 conv=fsync'
same 'left for users' 0 "$(df -P /mnt | awk 'NR == 2 {print ($4 > 256) ? $4 : 0}')"
dd if=/tmp/noise of=/mnt/root bs=1M conv=fsync 2>/dev/null || die 'root cannot write'
cmp /tmp/noise /disk/root || die 'what root wrote'
rm /mnt/others/fill || die rm
as nobody 'dd if=/tmp/noise of=/mnt/others/again bs=256k count=4 conv=fsync' || die 'no room again'
cmp -n 1048576 /tmp/noise /disk/others/again || die 'what was written at last'

step 'unmount'
check_mountstats
grep -i 'could not be made durable' $OURS_LOG && die 'our server lost something'
umount /mnt || die umount
ours_ends
umount /disk || die 'something of the disk is still open'
exit 0
