# Work of Linux' client on a server of any version of NFS:  . /lab/work.sh
#
#   SERVER, PORT, MOUNT_PORT   where it listens
#   PROTO                      rdma, or tcp
#   ROOT                       the path of the export in version 4; in version 3 it is /export
#   ENTRIES                    how many entries the directory "many" of the export has

# mount_as VERSION DIRECTORY [OPTION,...]
mount_as() {
  local options="vers=$1,proto=$PROTO,port=$PORT${3:+,$3}" source=$ROOT
  [ "$1" != 3 ] || options="$options,nolock,mountproto=tcp,mountport=$MOUNT_PORT" source=/export
  mkdir -p "$2"
  echo "mount.nfs $SERVER:$source $2 -o $options"
  mount.nfs "$SERVER:$source" "$2" -o "$options" || die "mount of version $1"
  grep " $2 " /proc/mounts
}

# calls OPERATION: how often it was called since the mount.
calls() { sed -n "\, mounted on /mnt ,,\$s/^[[:space:]]*$1: \([0-9]*\) .*/\1/p" /proc/self/mountstats | head -n 1; }
was_called() { [ "$(calls "$1")" -gt 0 ] || die "$1 was not called"; }

work_data() {
  dd if=/tmp/data of=/mnt/w/data bs=1M conv=fsync 2>/dev/null || die write
  drop_caches
  cmp /tmp/data /mnt/w/data || die 'read back'
  # Of an odd size, at once, at an odd offset, past the cache.
  dd if=/tmp/data of=/mnt/w/odd bs=70001 count=2 conv=fsync 2>/dev/null || die 'odd write'
  drop_caches
  head -c 140002 /tmp/data | cmp - /mnt/w/odd || die 'odd data'
  for size in 0 1 3 4 1023 3947 3948 4096 4097; do
    head -c "$size" /tmp/data >/mnt/w/small || die "write of $size bytes"
    drop_caches
    same "file of $size bytes" "$(head -c "$size" /tmp/data | sha256sum)" "$(sha256sum </mnt/w/small)"
  done
}

work_names() {
  echo one >/mnt/w/a
  mkdir /mnt/w/sub || die mkdir
  mv /mnt/w/a /mnt/w/sub/b || die rename
  ln /mnt/w/sub/b /mnt/w/hard || die link
  same 'link count' 2 "$(stat -c %h /mnt/w/hard)"
  same 'through a link' one "$(cat /mnt/w/hard)"
  local long
  long=$(printf 'x%.0s' {1..1000})
  ln -s "$long" /mnt/w/long || die symlink
  ln -s hard /mnt/w/soft || die symlink
  drop_caches
  same 'symlink' "$long" "$(readlink /mnt/w/long)"
  same 'through a symlink' one "$(cat /mnt/w/soft)"
  chmod 640 /mnt/w/hard || die chmod
  drop_caches
  same mode 640 "$(stat -c %a /mnt/w/hard)"
  tar -C /mnt/w -xf /tmp/tree.tar || die untar
  drop_caches
  diff -r /tmp/tree /mnt/w/tree || die 'the tree differs'
  same 'names in a large directory' "$ENTRIES" "$(ls -f /mnt/many | grep -c '^entry-')"
  same 'listed names' "$ENTRIES" "$(ls -l /mnt/many | grep -c '^-.* entry-')"
}

# Two clients to the server: each minor version has a client identifier of its own. $OTHER is that of the second.
work_locks() {
  mount_as "${OTHER:-4.0}" /other
  : >/mnt/w/lock
  exec 5<>/mnt/w/lock 6<>/other/w/lock
  flock -n 5 || die 'a lock is not given'
  flock -n 6 && die 'two clients have the same lock'
  flock -u 5
  wait_for 20 flock -n 6 || die 'a lock that was given back is not given to the other client'
  flock -n 5 && die 'two clients have the same lock, again'
  exec 5>&- 6>&-
  umount /other || die 'umount of the other client'
}

# What only version 4.2 has; what a server may lack has to be there if $COMPLETE is 1.
work_of_4_2() {
  if fallocate -l 1048576 /mnt/w/allocated; then
    same 'allocated bytes' 1048576 "$(stat -c %s /mnt/w/allocated)"
    was_called ALLOCATE
  else
    lacks ALLOCATE
  fi
  dd if=/tmp/data of=/mnt/w/sparse bs=1M seek=6 count=1 conv=fsync 2>/dev/null || die 'sparse write'
  drop_caches
  cp /mnt/w/sparse /tmp/sparse || die 'copy of a sparse file'
  same 'size of a sparse file' 7340032 "$(stat -c %s /tmp/sparse)"
  tail -c 1048576 /tmp/sparse | cmp -n 1048576 - /tmp/data || die 'data of a sparse file'
  if [ "$(calls SEEK)" = 0 ]; then lacks SEEK; fi
  rm /tmp/sparse
  if setfattr -n user.note -v 'so it is' /mnt/w/hard; then
    drop_caches
    same 'extended attribute' 'so it is' "$(getfattr --only-values -n user.note /mnt/w/hard)"
    same 'list of extended attributes' 1 "$(getfattr -d /mnt/w/hard | grep -c '^user.note=')"
    was_called GETXATTR
  else
    lacks 'extended attributes'
  fi
}

lacks() {
  [ "$COMPLETE" != 1 ] || die "the server has no $1"
  echo "the server has no $1"
}

# work_begin: what is written to the server.
work_begin() {
  modprobe -a nfsv3 nfsv4 || die 'no client'
  dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
  local folder file
  for folder in {0..4}; do
    mkdir -p /tmp/tree/folder-$folder
    for file in {0..9}; do printf '%s\n' "file $folder$file" {1..40} >/tmp/tree/folder-$folder/file-$file; done
  done
  tar -C /tmp -cf /tmp/tree.tar tree || die 'making the archive'
}

# work_in VERSION [OPTION,...]: everything, on a mount of its own, and what the script adds.
work_in() {
  step "version $1${2:+, $2}"
  mount_as "$1" /mnt "$2"
  mkdir /mnt/w || die mkdir
  work_data
  work_names
  case $1 in
    4.1) work_locks ;;
    4.2) work_of_4_2 ;;
  esac
  work_more
  rm -r /mnt/w || die remove
  [ "$PROTO" != rdma ] || check_mountstats
  umount /mnt || die umount
}
work_more() { :; }
