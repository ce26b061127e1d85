# Linux' NFS client at work on a server: PORT, MOUNT_PORT and SOURCE name it.
#
#   SERVER       its address (the host)
#   INLINE       inline sizes the kernel must have negotiated, as send/receive
#   ENTRIES      how many entries the directory "many" has
#   OWNER_KEPT   1 if the server can give files to others (it runs as root)
#   LISTS        1 if files there can have access control lists
#   GATEWAY      1 if /lab/rpcrdma is here: its gateway then takes a mount over TCP to the server
. /lab/lib.sh
SERVER=${SERVER:-10.0.2.2}

step 'siw link'
siw_up
trace_on xprtrdma_inline_thresh xprtrdma_mr_reminv xprtrdma_mr_localinv

step 'mount'
mount_v3 "$SERVER" "$PORT" "$MOUNT_PORT" "$SOURCE"
negotiated=$(grep -o 'neg send/recv=[0-9/]*' $TRACING/trace | head -n 1)
same 'inline sizes' "neg send/recv=$INLINE" "$negotiated"
df /mnt || die df
[ "$(df -P /mnt | awk 'NR == 2 {print ($2 > 0 && $2 >= $4)}')" = 1 ] || die 'df makes no sense'

step 'write 64 MiB and fsync'
dd if=/dev/urandom of=/tmp/data bs=1M count=64 2>/dev/null
written=$(sum_of /tmp/data)
dd if=/tmp/data of=/mnt/data bs=1M conv=fsync 2>/dev/null || die write
rm /tmp/data

step 'read 64 MiB back'
drop_caches
trace_clear
dd if=/mnt/data of=/tmp/data bs=1M 2>/dev/null || die read
remote=$(trace_count xprtrdma_mr_reminv)
local=$(trace_count xprtrdma_mr_localinv)
same 'what was read' "$written" "$(sum_of /tmp/data)"
rm /tmp/data
echo "@@sum $written"
echo "rsize $(grep ' /mnt ' /proc/mounts | grep -o 'rsize=[0-9]*'), remote invalidations $remote, local $local"
# One READ is one segment here, so every one of them can be invalidated remotely.
[ "$remote" -ge 64 ] || die "only $remote remote invalidations for 64 MiB"
same 'local invalidations' 0 "$local"

step 'direct I/O of odd sizes'
dd if=/dev/urandom of=/tmp/odd bs=1 count=70001 2>/dev/null
dd if=/tmp/odd of=/mnt/odd bs=70001 oflag=direct 2>/dev/null || die 'odd write'
dd if=/mnt/odd of=/tmp/odd2 bs=70001 iflag=direct 2>/dev/null || die 'odd read'
cmp /tmp/odd /tmp/odd2 || die 'odd data'
for size in 0 1 2 3 4 5 1023 3947 3948 3949 4095 4096 4097; do
  head -c "$size" /tmp/odd >/mnt/small || die "write of $size bytes"
  drop_caches
  same "file of $size bytes" "$(head -c "$size" /tmp/odd | sha256sum)" "$(sha256sum </mnt/small)"
done
rm /mnt/odd /mnt/small /tmp/odd /tmp/odd2

step 'untar 300 files'
mkdir /tmp/tree
for a in {0..2}; do
  for b in {0..9}; do
    mkdir -p "/tmp/tree/folder-$a/nested/folder-$b"
    for c in {0..9}; do
      printf '%s\n' "file $a$b$c" {1..40} >"/tmp/tree/folder-$a/nested/folder-$b/file-$c"
    done
  done
done
tar -C /tmp -cf /tmp/tree.tar tree || die 'making the archive'
tar -C /mnt -xf /tmp/tree.tar || die untar
step 'list and compare 300 files'
drop_caches
(cd /tmp/tree && find . | sort) >/tmp/expected
(cd /mnt/tree && find . | sort) >/tmp/seen
same 'names in the tree' 337 "$(wc -l </tmp/expected)"
diff /tmp/expected /tmp/seen || die 'the names differ'
diff -r /tmp/tree /mnt/tree || die 'the tree differs'
ls -lR /mnt/tree >/tmp/listing || die 'ls -lR'
same 'listed files' 300 "$(grep -c '^-.* file-[0-9]$' /tmp/listing)"
step 'remove 300 files'
rm -r /mnt/tree || die 'removing the tree'
[ ! -e /mnt/tree ] || die 'the tree is still there'
rm -r /tmp/tree /tmp/tree.tar

step 'names and links'
mkdir /mnt/d || die mkdir
echo one >/mnt/d/a
mv /mnt/d/a /mnt/d/b || die rename
[ ! -e /mnt/d/a ] && same renamed one "$(cat /mnt/d/b)"
echo two >/mnt/d/c
mv -f /mnt/d/c /mnt/d/b || die 'rename over a file'
same 'renamed over' two "$(cat /mnt/d/b)"
mkdir /mnt/d/sub
mv /mnt/d/b /mnt/d/sub/b || die 'rename into another directory'
mv /mnt/d/sub /mnt/d/moved || die 'rename of a directory'
ln /mnt/d/moved/b /mnt/d/hard || die 'hard link'
same 'link count' 2 "$(stat -c %h /mnt/d/hard)"
same 'one inode' "$(stat -c %i /mnt/d/moved/b)" "$(stat -c %i /mnt/d/hard)"
rm /mnt/d/moved/b
same 'the other name' two "$(cat /mnt/d/hard)"
ln -s ../no/such/place /mnt/d/dangling || die symlink
ln -s hard /mnt/d/soft || die symlink
drop_caches
same 'symlink text' ../no/such/place "$(readlink /mnt/d/dangling)"
same 'through a symlink' two "$(cat /mnt/d/soft)"
long=$(printf 'x%.0s' {1..1000})
ln -s "$long" /mnt/d/long || die 'long symlink'
drop_caches
same 'long symlink' "$long" "$(readlink /mnt/d/long)"
rmdir /mnt/d 2>/dev/null && die 'rmdir of a directory that is not empty'
mkfifo /mnt/d/fifo || die mkfifo
[ -p /mnt/d/fifo ] || die 'the fifo is none'
name=$(printf 'n%.0s' {1..255})
: >"/mnt/d/$name" || die 'a name of 255 bytes'
: 2>/dev/null >"/mnt/d/${name}n" && die 'a name of 256 bytes'
[ ! -e /mnt/d/missing ] || die 'a missing file is there'

step 'sizes'
printf 'start' >/mnt/d/f
printf ' more' >>/mnt/d/f || die append
drop_caches
printf ' end' >>/mnt/d/f || die append
same appended 'start more end' "$(cat /mnt/d/f)"
truncate -s 5 /mnt/d/f || die truncate
drop_caches
same truncated start "$(cat /mnt/d/f)"
truncate -s 100000 /mnt/d/f || die 'truncate to a larger size'
drop_caches
same 'grown size' 100000 "$(stat -c %s /mnt/d/f)"
same 'zeros behind' 99995 "$(tail -c +6 /mnt/d/f | tr -dc '\0' | wc -c)"
truncate -s 0 /mnt/d/f || die 'truncate to nothing'
same 'empty size' 0 "$(stat -c %s /mnt/d/f)"
printf tail | dd of=/mnt/d/sparse bs=1 seek=5368709120 conv=notrunc 2>/dev/null || die 'sparse write'
drop_caches
same 'sparse size' 5368709124 "$(stat -c %s /mnt/d/sparse)"
same 'sparse tail' tail "$(dd if=/mnt/d/sparse bs=4 skip=1342177280 2>/dev/null)"
same 'a hole' 65536 "$(dd if=/mnt/d/sparse bs=64k skip=1000 count=1 2>/dev/null | tr -dc '\0' | wc -c)"
[ "$(stat -c %b /mnt/d/sparse)" -lt 10000 ] || die "the sparse file has $(stat -c %b /mnt/d/sparse) blocks"

step 'attributes'
chmod 640 /mnt/d/f || die chmod
touch -d '2001-02-03 04:05:06' /mnt/d/f || die touch
if [ "$OWNER_KEPT" = 1 ]; then
  chown 1000:1000 /mnt/d/f || die chown
  drop_caches
  same owner 1000:1000 "$(stat -c %u:%g /mnt/d/f)"
fi
drop_caches
same mode 640 "$(stat -c %a /mnt/d/f)"
same mtime 981173106 "$(stat -c %Y /mnt/d/f)"
chmod 4755 /mnt/d/f || die 'chmod of set-user-id'
same 'set-user-id' 4755 "$(stat -c %a /mnt/d/f)"

step 'exclusive create'
# Bash opens with O_EXCL when noclobber is set.
(set -C; echo first >/mnt/d/exclusive) || die 'exclusive create'
(set -C; echo second >/mnt/d/exclusive) 2>/dev/null && die 'exclusive create of an existing file'
same 'exclusive file' first "$(cat /mnt/d/exclusive)"
drop_caches
now=$(date +%s) mtime=$(stat -c %Y /mnt/d/exclusive)
[ $((now - mtime)) -lt 3600 ] && [ $((mtime - now)) -lt 3600 ] || die "exclusive create left mtime $mtime, now $now"

if [ "$OWNER_KEPT" = 1 ]; then
  step 'another user'
  as_user() { su -s /bin/bash user -c "$1" 2>/dev/null; }
  chmod 777 /mnt/d
  as_user 'echo mine >/mnt/d/mine' || die 'create by another user'
  drop_caches
  same 'owner of what another user made' 1000:1000 "$(stat -c %u:%g /mnt/d/mine)"
  echo secret >/mnt/d/secret
  chmod 600 /mnt/d/secret
  mkdir -m 700 /mnt/d/private
  drop_caches
  as_user 'cat /mnt/d/secret' && die 'another user reads what is not theirs'
  as_user 'echo x >/mnt/d/secret' && die 'another user writes what is not theirs'
  as_user ': >/mnt/d/private/file' && die 'another user enters a private directory'
  as_user 'chmod 777 /mnt/d/secret' && die 'another user gives rights away'
  as_user 'chown user /mnt/d/mine' || die 'a user may keep what is theirs'
  same secret secret "$(cat /mnt/d/secret)"
fi

if [ "$LISTS" = 1 ]; then
  step 'access control lists'
  lists() { drop_caches; getfacl -cnp "$1" | grep -v '^$'; }
  mkdir /mnt/d/lists /mnt/d/lists/dir
  f=/mnt/d/lists/file
  echo text >$f
  chmod 600 $f
  same 'list of a mode' "$(printf '%s\n' user::rw- group::--- other::---)" "$(lists $f)"
  setfacl -m u:1000:r $f || die setfacl
  expected=$(printf '%s\n' user::rw- user:1000:r-- group::--- mask::r-- other::---)
  same 'list with a user' "$expected" "$(lists $f)"
  same 'the mask is in the mode' 640 "$(stat -c %a $f)"
  if [ "$OWNER_KEPT" = 1 ]; then
    same 'read by a list' text "$(as_user "cat $f")"
    as_user "echo x >>$f" && die 'written without the right'
    setfacl -m u:1000:rw $f || die setfacl
    as_user "echo more >>$f" || die 'not written by a list'
    same 'written by a list' "text more" "$(paste -sd ' ' $f)"
    setfacl -x u:1000 $f || die 'setfacl -x'
    drop_caches
    as_user "cat $f" && die 'read after the right was taken away'
    as_user "setfacl -m u:1000:rw $f" && die 'another user changes a list'
  fi
  setfacl -b $f || die 'setfacl -b'
  same 'list removed' 3 "$(lists $f | wc -l)"
  dir=/mnt/d/lists/dir
  setfacl -d -m u:1000:rwx $dir || die 'setfacl -d'
  same 'default list' default:user:1000:rwx "$(lists $dir | grep default:user:1000)"
  mkdir $dir/sub || die mkdir
  echo text >$dir/new || die create
  same 'list of a new file' user:1000:rwx "$(lists $dir/new | grep -o '^user:1000:...')"
  same 'mask of a new file' mask::rw- "$(lists $dir/new | grep ^mask)"
  same 'default list of a new directory' default:user:1000:rwx \
    "$(lists $dir/sub | grep default:user:1000)"
  if [ "$OWNER_KEPT" = 1 ]; then
    chmod 755 /mnt/d/lists
    # Not with O_CREAT: from 6.12 on the client creates what is there then, and sets on it the list that a
    # new file would get, which only the owner may.
    as_user "echo more | dd of=$dir/new oflag=append conv=notrunc,nocreat" ||
      die 'not written by a list from the directory'
    as_user ": >$dir/sub/mine" || die 'not made by a list from the directory'
  fi
  setfacl -k $dir || die 'setfacl -k'
  same 'default list removed' '' "$(lists $dir | grep default:)"
  # More than fits inline, either way.
  for id in {2001..2450}; do echo "user:$id:rw-"; done >/tmp/long
  setfacl -M /tmp/long $f || die 'setfacl of 450 users'
  same 'users in the list' 450 "$(lists $f | grep -c '^user:2')"
  rm -r /mnt/d/lists || die 'removing files with lists'
fi

step 'removed while open'
exec 5<>/mnt/d/open
echo still >&5
rm /mnt/d/open || die 'rm of an open file'
drop_caches
echo here >&5 || die 'write to a removed file'
same 'removed file' 'still here' "$(cat /proc/self/fd/5 | tr '\n' ' ' | sed 's/ $//')"
exec 5>&-
# The client removes its own placeholder in the background.
no_placeholder() { ! ls -A /mnt/d | grep -q '^\.nfs'; }
wait_for 10 no_placeholder || die 'the .nfs placeholder stays'
rm -r /mnt/d || die 'removing the directory'

step "list $ENTRIES entries"
same 'names' "$ENTRIES" "$(ls -f /mnt/many | grep -c '^entry-')"
same 'no name twice' "$ENTRIES" "$(ls -f /mnt/many | grep '^entry-' | sort -u | wc -l)"
drop_caches
same 'long listing' "$ENTRIES" "$(ls -l /mnt/many | grep -c '^-.* entry-')"
step 'grow and shrink that directory'
for i in {1..300}; do : >"/mnt/many/guest-$i" || die create; done
drop_caches
same 'names now' $((ENTRIES + 300)) "$(ls -f /mnt/many | grep -cE '^(entry|guest)-')"
rm /mnt/many/guest-* || die 'removing from the large directory'
same 'names at last' "$ENTRIES" "$(ls -f /mnt/many | grep -cE '^(entry|guest)-')"

step 'unmount'
check_mountstats
echo "since the 64 MiB: remote invalidations $(trace_count xprtrdma_mr_reminv), local $(trace_count xprtrdma_mr_localinv)"
umount /mnt || die umount
dmesg | grep -iE 'xprtrdma|siw|nfs:' | tail -n 10

if [ "$GATEWAY" = 1 ]; then
  step 'mount over TCP, through our gateway on this machine'
  (cd / && exec /lab/rpcrdma gateway --json --listen tcp://127.0.0.1 --upstream "rdma://$SERVER:$PORT" \
    --mount-port 20048 --upstream-mount "$SERVER:$MOUNT_PORT" >/run/said 2>/run/gateway.log) &
  gateway=$!
  wait_for 60 grep -q pairs /run/said || die "the gateway does not listen: $(cat /run/gateway.log)"
  mount.nfs "127.0.0.1:$SOURCE" /mnt -o \
    vers=3,nolock,proto=tcp,port=2049,mountproto=tcp,mountport=20048 || die 'mount over TCP'
  grep ' /mnt ' /proc/mounts | grep -q proto=tcp || die 'the mount is not over TCP'
  drop_caches
  same 'what was read' "$written" "$(sum_of /mnt/data)"
  dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
  dd if=/tmp/data of=/mnt/through bs=1M conv=fsync 2>/dev/null || die write
  drop_caches
  same 'what was written' "$(sum_of /tmp/data)" "$(sum_of /mnt/through)"
  same 'names through the gateway' "$ENTRIES" "$(ls -f /mnt/many | grep -c '^entry-')"
  rm /mnt/through || die rm
  umount /mnt || die umount
  kill $gateway
  wait $gateway || die "the gateway ended with status $?"
fi
exit 0
