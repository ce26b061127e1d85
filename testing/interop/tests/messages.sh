# Each NFS version does a little of everything over TCP: PORT and MOUNT_PORT name the server. The programs
# with an X are those of the host: busybox does not have all of what is needed.
. /lab/lib.sh

x() {
  local program=$1
  shift
  LD_LIBRARY_PATH=/lab "/lab/x$program" "$@"
}

# try COMMAND...: not every version can do everything. What is asked for is recorded, too.
try() { "$@" >/tmp/said 2>&1 || echo "not done: $*: $(tail -n 1 /tmp/said)"; }

# work: in a new folder of /mnt.
work() {
  mkdir /mnt/$VERSION || die mkdir
  cd /mnt/$VERSION || die cd
  # Lengths with and without padding, and an empty file.
  for length in 0 1 2 3 4 5 100 1501; do
    head -c $length /tmp/noise >file$length || die write
  done
  ln -s file5 link || die symlink
  ln -s "$(head -c 200 /dev/zero | tr '\0' n)" longlink || die symlink
  ln file5 hardlink || die link
  mkdir folder && mv file4 folder/moved || die rename
  try mkfifo pipe
  try mknod device c 1 3
  chmod 640 file5 && touch file3 && truncate -s 4097 file2 || die setattr
  # More than one WRITE and READ, read ahead and behind.
  head -c 20000 /tmp/noise >large && head -c 3 /tmp/noise >>large || die write
  drop_caches
  cat file* large >/tmp/read || die read
  [ "$(readlink link)" = file5 ] || die readlink
  readlink longlink >/dev/null && ls -l / /mnt/$VERSION folder >/dev/null || die readdir
  try dd if=large of=direct bs=512 count=3 oflag=direct
  try dd if=direct of=/dev/null bs=1000 iflag=direct
  try x flock file5 true
  try x flock -n 9 9<>file5
  try df /mnt
  try setfacl -m u:user:r file5
  try getfacl file5
  try x getfattr -n system.nfs4_acl file5
  try x setfattr -n user.name -v value file5
  try x getfattr -n user.name file5
  try x getfattr -d file5
  try x setfattr -x user.name file5
  try fallocate -l 40000 sparse
  try truncate -s 200000 sparse
  # Holes are looked for, copied on the server, and cloned.
  sync
  try x cp --sparse=auto sparse copy
  try x cp --reflink=always large clone
  try x cp --sparse=never large copied
  drop_caches
  try dd if=sparse of=/dev/null bs=64k
  mv large folder/ && rm hardlink || die remove
  try rmdir missing
  try cat missing
  cd /
  try rm -r /mnt/$VERSION/folder
}

head -c 65536 /dev/urandom >/tmp/noise
for VERSION in 3 4.0 4.1 4.2; do
  step "version $VERSION"
  options="vers=$VERSION,proto=tcp,port=$PORT,rsize=4096,wsize=4096"
  case $VERSION in
    3) options+=",nolock,mountproto=tcp,mountport=$MOUNT_PORT" SOURCE=/export ;;
    *) SOURCE=/ ;;
  esac
  mount.nfs "10.0.2.2:$SOURCE" /mnt -o "$options" || die 'mount fails'
  work
  umount /mnt || die unmount
done
sleep 1
echo '@@recorded'
