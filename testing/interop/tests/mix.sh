# Work on /mnt over TCP, in parts, with what the kernel's client knows of each call: PORT and
# MOUNT_PORT name the server, VERSION is that of NFS.
. /lab/lib.sh

TREE=/tmp/tree

# part NAME: what comes from here on belongs to it.
part() {
  step "$VERSION: $1"
  echo "part $1" >$TRACING/trace_marker
}

# ends: what the client keeps back belongs to this part too, and nothing is cached for the next.
ends() {
  drop_caches
  grep -q 'LOST' /tmp/trace && die 'the trace has lost events'
}

# random LIMIT: the next number below it of a fixed sequence, in $number.
state=1
random() {
  state=$(((state * 1103515245 + 12345) & 0x7fffffff))
  number=$(((state >> 8) % $1))
}

# A tree like that of a program's source: 30 directories, 360 files, most of them of a few KiB, and
# a symbolic link for every sixth.
make_tree() {
  local directory file size folder
  dd if=/dev/urandom of=/tmp/noise bs=64k count=17 2>/dev/null
  for directory in {1..30}; do
    random 3
    case $number in
      0) folder=$TREE/module$directory ;;
      1) folder=$TREE/drivers/vendor$directory ;;
      2) folder=$TREE/library/include/subsystem$directory ;;
    esac
    mkdir -p "$folder"
    for file in {1..12}; do
      random 17
      size=$((1 << number))
      random $size
      size=$((size + number))
      random_name "$file"
      head -c $size /tmp/noise >"$folder/$name"
      [ $((file % 6)) != 0 ] || ln -s "../$(basename "$folder")/$name" "$folder/link-to-$name"
    done
  done
}
random_name() {
  local names=(main util protocol_state hash_table_of_connections Makefile io README configuration)
  local endings=(.c .h _test.c .txt)
  random 8
  name=${names[number]}$1
  random 4
  name+=${endings[number]}
}

step 'making the work'
make_tree
tar -C /tmp -cf /tmp/tree.tar tree
(cd $TREE && find . -type f | sort) >/tmp/files
head -c 16777216 /dev/urandom >/tmp/large
echo '@@made'
read -r _ <&3
step "mount, version $VERSION"
modprobe sunrpc || die 'cannot load sunrpc'
echo 16384 >$TRACING/buffer_size_kb
for event in rpc_xdr_sendto rpc_xdr_recvfrom rpc_stats_latency; do
  echo 1 >$TRACING/events/sunrpc/$event/enable || die "no trace event $event"
done
cat $TRACING/trace_pipe >/tmp/trace &
reader=$!
part mount
options="vers=$VERSION,proto=tcp,port=$PORT,rsize=1048576,wsize=1048576"
case $VERSION in
  3) options+=",nolock,mountproto=tcp,mountport=$MOUNT_PORT" SOURCE=/export ;;
  *) SOURCE=/ ;;
esac
mount.nfs "10.0.2.2:$SOURCE" /mnt -o "$options" || die 'mount fails'
grep ' /mnt ' /proc/mounts
mkdir /mnt/work
ends

# Unpacking: makes, writes, closes, sets times.
part untar
tar -C /mnt/work -xf /tmp/tree.tar || die untar
ends

# Listing it with attributes, twice.
part list
ls -lR /mnt/work >/dev/null || die list
ls -lR /mnt/work >/dev/null || die list
ends

# Looking at each file by name, as git does, with nothing cached and when attributes have aged.
part stat
(cd /mnt/work/tree && xargs stat -c %Y </tmp/files >/dev/null) || die stat
sleep 4
(cd /mnt/work/tree && xargs stat -c %Y </tmp/files >/dev/null) || die stat
ends

# Compiling: each source is read with a dozen of headers, and an object is written; in the end all
# objects are read.
part build
mkdir /mnt/work/objects
headers=$(cd /mnt/work/tree && grep '\.h$' /tmp/files | head -n 12)
while read -r source; do
  object=/mnt/work/objects/$(echo "${source#./}" | tr / -).o
  (cd /mnt/work/tree && cat "$source" $headers | head -c 30000 >"$object.tmp") || die compile
  mv "$object.tmp" "$object" || die compile
done < <(grep '\.c$' /tmp/files | head -n 80)
ends
cat /mnt/work/objects/*.o >/mnt/work/program || die link
ends

# One large file, written, read and read past the cache.
part stream
cp /tmp/large /mnt/work/large || die write
ends
cmp /tmp/large /mnt/work/large || die read
dd if=/mnt/work/large of=/dev/null bs=1M iflag=direct 2>/dev/null || die read
ends

# Pages of 8 KiB anywhere in it, as a database reads and writes them.
part pages
for ((i = 0; i < 150; i++)); do
  random 2048
  dd if=/mnt/work/large of=/dev/null bs=8k skip=$number count=1 iflag=direct 2>/dev/null || die page
  random 2048
  [ $((i % 3)) != 0 ] || dd if=/tmp/large of=/mnt/work/large bs=8k seek=$number count=1 \
    conv=notrunc oflag=direct 2>/dev/null || die page
done
ends

# Mail: each message is written to a file of its own, synced and moved to its place, and noted at the end
# of a journal; then all are read.
part mail
mkdir -p /mnt/work/mail/tmp /mnt/work/mail/new
for ((i = 0; i < 100; i++)); do
  random 12000
  head -c $((number + 600)) /tmp/noise | dd of=/mnt/work/mail/tmp/$i.guest bs=64k conv=fsync \
    iflag=fullblock 2>/dev/null || die message
  mv /mnt/work/mail/tmp/$i.guest /mnt/work/mail/new/$((1700000000 + i)).M$number.guest || die message
  printf 'delivered message %06d of %d bytes\n' $i $number |
    dd of=/mnt/work/mail/journal oflag=append conv=notrunc,fsync 2>/dev/null || die journal
done
ends
cat /mnt/work/mail/new/* | wc -c
ends

part remove
rm -r /mnt/work || die remove
part unmount
umount /mnt || die unmount
sleep 1
kill $reader
step "$VERSION: what the client knew of its calls"
# XID, part, bytes of the call and of its pages, of the reply, of the room for it and of that in pages,
# and the procedure by the client's name.
awk '
  { gsub(/[][(),=]/, " ") }
  {
    for (at = 1; at < NF && $at !~ /^(rpc_xdr_|rpc_stats_|tracing_mark_)[a-z]*:$/; at++);
    task = $(at + 1)
  }
  $at == "tracing_mark_write:" { part = $NF }
  $at == "rpc_xdr_sendto:" { call[task] = $(at + 12); pages[task] = $(at + 6) }
  $at == "rpc_xdr_recvfrom:" {
    reply[task] = $(at + 12)
    room[task] = $(at + 4) + $(at + 6) + $(at + 10)
    room_pages[task] = $(at + 6)
  }
  $at == "rpc_stats_latency:" && task in reply {
    print "@@note", $(at + 3), part, call[task], pages[task], reply[task], room[task], room_pages[task], \
      $(at + 4), $(at + 5)
    delete reply[task]
  }
' /tmp/trace
echo "@@recorded"
