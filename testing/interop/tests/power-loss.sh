# Linux' NFS client at work on our server while the writes of the server's disk are recorded; the host says
# what was on the disk when the power failed. All but the host is in this guest.
#
#   DISK, LOG   the disk, and the one that its writes are recorded on
#   JOBS        how many jobs change things at once, after one has by itself
. /lab/lib.sh
. /lab/load.sh
. /lab/locks.sh

# Bytes of each large write, and the most of them.
LARGE=8388608
LARGE_FILES=12

# The timers of the file systems: no commit but those that the server asks for.
declare -A LAZY=([ext4]=commit=600 [xfs]=defaults [btrfs]=commit=600)

step 'siw link'
siw_up
modprobe -a virtio_blk dm_log_writes nfsv3 nfsv4 || die 'no module'
mkdir -p /disk
dd if=/dev/urandom of=/tmp/small bs=1000 count=1 2>/dev/null
dd if=/dev/urandom of=/tmp/middle bs=100000 count=1 2>/dev/null
dd if=/dev/urandom of=/tmp/large bs=$LARGE count=1 iflag=fullblock 2>/dev/null
# Other contents of the same sizes.
dd if=/tmp/large of=/tmp/small-2 bs=1000 count=1 2>/dev/null
dd if=/tmp/large of=/tmp/middle-2 bs=100000 count=1 2>/dev/null
SMALL_SUM=$(sum_of /tmp/small) MIDDLE_SUM=$(sum_of /tmp/middle)
SMALL_SUM_2=$(sum_of /tmp/small-2) MIDDLE_SUM_2=$(sum_of /tmp/middle-2)

# serve_up USER CHANGES: our server. One that root does not run keeps a table of its handles.
serve_up() {
  : >/run/listening
  (
    leave_agents
    exec su -s /bin/bash "$1" -c "exec /lab/rpcrdma serve /ours=/disk/export --listen $GUEST_IP:20051 \
      --mount-port 20050 --allow $GUEST_IP --squash none --changes $2 --state-dir /disk/state --json" \
      >/run/listening 2>>/run/serve.log 6<&- 7<&-
  ) &
  SERVER=$!
  wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }
  cat /run/listening
}

# host_format FS: makes a file system on the disk.
host_format() {
  modprobe "$1" || die "no module $1"
  # btrfs remembers where it has seen a file system.
  [ "$1" != btrfs ] || btrfs device scan --forget || die 'btrfs does not forget'
  "mkfs.$1" -q $DISK || die "mkfs of $1"
  sync
}

# recorded FS: the disk, whose writes are recorded from now on.
recorded() {
  dmsetup create --noudevsync --noudevrules live \
    --table "0 $(blockdev --getsz $DISK) log-writes $DISK $LOG" || die 'no recorded disk'
  # There is no udev to do it.
  dmsetup mknodes live || die 'no node of the recorded disk'
  mount -t "$1" -o "${LAZY[$1]}" /dev/mapper/live /disk || die "mount of $1"
}

# power_fails: for the server and its disk. What was acknowledged was so before.
power_fails() {
  kill -9 $SERVER
  : >/tmp/killed
  wait $SERVER
  mark killed
  umount /disk || die 'umount of the disk'
  dmsetup remove --noudevsync --noudevrules live || die 'the recorded disk stays'
}

# exported FS USER: an export and a place for the server's state on an empty disk, which is recorded.
exported() {
  recorded "$1"
  mkdir /disk/export /disk/state
  chown "$2" /disk/export /disk/state || die chown
}

# mounted VERSION: the export, on /mnt.
mounted() {
  if [ "$1" = 3 ]; then
    mount_v3 "$GUEST_IP" 20051 20050 /ours
  else
    mount.nfs "$GUEST_IP:/ours" /mnt -o "vers=$1,proto=rdma,port=20051" || die "mount of version $1"
    grep ' /mnt ' /proc/mounts
  fi
}

# host_work FS USER CHANGES VERSION: from the first mark to the kill of the server.
host_work() {
  SYNCED=$3
  exported "$1" "$2"
  serve_up "$2" "$3"
  sync
  mounted "$4"
  mark one
  each_change 0
  if [ "$3" = durable ]; then
    mark many
    local job jobs=()
    for ((job = 1; job <= JOBS; job++)); do
      each_change "$job" &
      jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || die 'a job failed'; done
    open_files
  else
    umount /mnt || die umount
  fi
  # At once: a row of the table is on the disk within a tenth of a second in any case.
  power_fails
}

mark() { dmsetup message live 0 mark "$1" || die "no mark $1"; }

# is_done MARK: what was just asked for was answered. Where the server syncs nothing, all is synced behind it,
# so that only one change at a time can be lost.
is_done() {
  mark "$1"
  [ "$SYNCED" = durable ] || sync
}

# attributes_of NAME: facts about the attributes of a file.
attributes_of() {
  find "/disk/export/$1" -printf "size,$1,%s;mode,$1,%m;times,$1,%T@/%C@" || die find
}

# each_change ID: all that a server has to have on its disk before it answers, once each (power_loss/facts.rs).
each_change() {
  local m=/mnt id=$1
  : >$m/c-$id || die create
  is_done "CREATE;file,c-$id"
  mkdir $m/d-$id || die mkdir
  is_done "MKDIR;dir,d-$id"
  : >$m/d-$id/c || die create
  is_done "CREATE;file,d-$id/c"
  ln -s text-$id $m/s-$id || die symlink
  is_done "SYMLINK;link,s-$id,text-$id"
  ln $m/c-$id $m/h-$id || die link
  is_done "LINK;file,h-$id;names,c-$id,2"
  mkfifo $m/p-$id || die mkfifo
  is_done "MKNOD;fifo,p-$id"
  mark "next;?,h-$id"
  mv $m/h-$id $m/d-$id/m || die rename
  is_done "RENAME;gone,h-$id;file,d-$id/m"
  mark "next;?,d-$id/c"
  mv $m/d-$id/c $m/d-$id/n || die rename
  is_done "RENAME;gone,d-$id/c;file,d-$id/n"
  mkdir $m/e-$id || die mkdir
  is_done "MKDIR;dir,e-$id"
  mark "next;?,e-$id"
  rmdir $m/e-$id || die rmdir
  is_done "RMDIR;gone,e-$id"
  mark "next;?,s-$id"
  rm $m/s-$id || die remove
  is_done "REMOVE;gone,s-$id"
  chmod 600 $m/c-$id || die chmod
  is_done "SETATTR;mode,c-$id,600"
  truncate -s 5000 $m/c-$id || die truncate
  is_done "SETATTR;size,c-$id,5000"
  # One WRITE, and FILE_SYNC is what it asks for.
  dd if=/tmp/small of=$m/w-$id bs=1000 oflag=sync 2>/dev/null || die write
  is_done "WRITE;sum,w-$id,$SMALL_SUM"
  dd if=/tmp/middle of=$m/u-$id bs=100000 conv=fsync 2>/dev/null || die fsync
  is_done "COMMIT;sum,u-$id,$MIDDLE_SUM"
  overwrite "$id"
}

# overwrite ID: files are overwritten in place. Nothing of a file but its times, and the set-id bits that it
# loses, has to be written beside the data.
overwrite() {
  local m=/mnt id=$1
  mark "next;?,w-$id"
  dd if=/tmp/small-2 of=$m/w-$id bs=1000 conv=notrunc oflag=sync 2>/dev/null || die write
  is_done "WRITE;sum,w-$id,$SMALL_SUM_2;$(attributes_of w-$id)"
  mark "next;?,w-$id"
  # The kernel's client asks for no DATA_SYNC.
  /lab/rpcrdma bench "nfs://$GUEST_IP:20051/ours/w-$id" --rw write --overwrite --sync dsync \
    --size 1000 --bs 1000 --time 10ms >/tmp/bench-$id || { cat /tmp/bench-$id; die bench; }
  is_done "WRITE;sum,w-$id,$(sum_of /disk/export/w-$id);$(attributes_of w-$id)"
  chmod 6777 $m/u-$id || die chmod
  is_done "SETATTR;mode,u-$id,6777"
  mark "next;?,u-$id"
  su -s /bin/bash user -c "dd if=/tmp/middle-2 of=$m/u-$id bs=100000 conv=notrunc,fsync 2>/dev/null" || die fsync
  is_done "COMMIT;sum,u-$id,$MIDDLE_SUM_2;$(attributes_of u-$id)"
}

# What is open when the power fails: a large write, and a file and a directory that were moved right before.
open_files() {
  mkdir -p /mnt/o/from/dir /mnt/o/to || die mkdir
  echo still >/mnt/o/from/file || die create
  exec 6</mnt/o/from/file 7</mnt/o/from/dir || die open
  rm -f /tmp/killed
  write_on &
  WRITER=$!
  wait_for 60 test -s /disk/export/large-1 || die 'the large writes do not begin'
  mv /mnt/o/from/file /mnt/o/to/moved && mv /mnt/o/from/dir /mnt/o/to/dir-moved || die rename
}

# One large write after the other; each is many UNSTABLE WRITEs with one COMMIT behind them.
write_on() {
  local number
  for ((number = 1; number <= LARGE_FILES; number++)); do
    [ ! -e /tmp/killed ] || break
    dd if=/tmp/large of=/mnt/large-$number bs=$LARGE iflag=fullblock oflag=direct 2>/dev/null ||
      die 'a large write fails'
  done
}

# host_resume FS USER: the machine of the server is up again, and its client has waited.
host_resume() {
  mount_disk "$1"
  echo 'blocks of large writes that are left:' && stat -c '%b %n' /disk/export/large-*
  serve_up "$2" durable
  wait $WRITER || exit
  drop_caches
  local file
  for file in /mnt/large-*; do
    cmp /tmp/large "$file" || die "$file is not what was written"
  done
  same 'the open file' still "$(cat <&6)"
  : >/proc/self/fd/7/new || die 'the open directory takes no file'
  [ -e /mnt/o/to/dir-moved/new ] || die 'the open directory is another one'
  list /mnt
  exec 6<&- 7<&-
  umount /mnt || die umount
  kill $SERVER
  wait $SERVER || { cat /run/serve.log; die 'our server does not end well'; }
  umount /disk || die 'umount of the disk'
}

# host_list FS: what is on the disk.
host_list() {
  mount_disk "$1"
  list /disk/export
  umount /disk || die 'umount of the disk'
}

# host_hold FS USER VERSION: a client is told that it has a lock, and the power fails. The file was on the disk before; the state
# that the server makes at its first start, and the record of the client, are there because it has synced them.
host_hold() {
  step "a client has a lock when the power fails, on $1"
  exported "$1" "$2"
  echo before >/disk/export/locked && chown "$2" /disk/export/locked || die 'the file to lock'
  sync
  serve_up "$2" durable
  mounted "$3"
  agent client
  says client ok open f /mnt/locked
  says client ok lock f write 0 10
  power_fails
}

# host_up FS USER: the machine is up again, and the power fails before any client is back.
host_up() {
  step 'the power fails again before the client is back'
  recorded "$1"
  serve_up "$2" durable
  power_fails
}

# host_reclaim FS USER: it is, and the power fails right after the client has what it had.
host_reclaim() {
  step 'and once it has reclaimed its lock'
  recorded "$1"
  serve_up "$2" durable
  still_held
  power_fails
}

# host_release FS USER: it is, and everything comes to its end.
host_release() {
  step 'it has it still'
  mount_disk "$1"
  serve_up "$2" durable
  still_held
  says client ok sync f
  same 'the locked file' held "$(head -c 4 /disk/export/locked)"
  agent_ends client
  agent local
  says local ok open f /disk/export/locked
  says local ok lock f write 0 0
  agent_ends local
  umount /mnt || die umount
  kill $SERVER
  wait $SERVER || { cat /run/serve.log; die 'our server does not end well'; }
  umount /disk || die 'umount of the disk'
  local lost
  lost=$(dmesg | grep -iE 'NFS: .*(lock|reclaim|state).*|NFSv4.*fail')
  [ -z "$lost" ] || die "the kernel complains: $lost"
}

# The client has its lock, and gets one more behind all that it reclaims; a program on the server's machine sees both. Nothing of
# this syncs anything.
still_held() {
  says client ok lock f write 20 10
  says client ok write f 0 held
  agent local
  says local ok open f /disk/export/locked
  says local busy lock f write 9 1
  says local busy lock f write 20 1
  says local ok lock f write 10 1
  agent_ends local
}

mount_disk() {
  [ "$1" != btrfs ] || btrfs device scan --forget || die 'btrfs does not forget'
  mount -t "$1" $DISK /disk || die "$1 cannot be mounted after the power failed"
}

list() {
  find "$1" -mindepth 1 -printf '@@note entry,%y,%m,%n,%s,%T@/%C@,%P,%l\n' || die find
  (cd "$1" && find . -type f ! -name 'large-*' -exec sha256sum {} +) |
    sed 's|^\([0-9a-f]*\)  \./|@@note sum,\1,|' || die sha256sum
}

echo '@@ready'
obey
exit 0
