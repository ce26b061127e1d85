# What it costs to overwrite a file in place and have it on stable storage, on our server and on the kernel's: both
# serve one ext4, /dev/vda, and are in this guest with their clients.
#
#   ROUNDS   how often each is timed, in turn
. /lab/lib.sh

# A COMMIT for each pair of pages: with one WRITE for both, the client would ask for FILE_SYNC.
PAIR=8192
PAIRS=60

# attach NAME PORT MOUNT_PORT PATH: mounts a server on /mnt/NAME.
attach() {
  mkdir -p "/mnt/$1" || die mkdir
  local options="vers=3,nolock,proto=rdma,port=$2,mountproto=tcp,mountport=$3"
  mount.nfs "$GUEST_IP:$4" "/mnt/$1" -o "$options,wsize=4096" || die "mount of $1"
  grep " /mnt/$1 " /proc/mounts
}

# median: of the numbers in standard input.
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# What one operation of a kind takes on a server, in microseconds.
# over_wire SYNC PORT MOUNT_PORT PATH: WRITEs of 4 KiB by our client; the median.
over_wire() {
  /lab/rpcrdma bench --provider iwarp --rw randwrite --bs 4k --size 1M --sync "$1" --time 3s --json \
    --mount-port "$3" "$GUEST_IP:$2$4" >/run/bench || { cat /run/bench; die "bench --sync $1"; }
  tr -d ' \n' </run/bench | sed 's/.*"write"://; s/.*"50.000000":\([0-9]*\).*/\1/' | awk '{ print int($1 / 1000) }'
}
# in_pairs FLAG FILE: dd with this flag; the mean.
in_pairs() {
  local begin=$EPOCHREALTIME end
  dd if=/tmp/data of="$2" bs=$PAIR count=$PAIRS "oflag=$1" conv=notrunc 2>/dev/null || die "dd to $2"
  end=$EPOCHREALTIME
  echo $(((${end/./} - ${begin/./}) / PAIRS))
}

step 'siw link'
siw_up
step 'both servers'
modprobe -a virtio_blk ext4
wait_for 20 test -b /dev/vda || die 'no disk'
mkfs.ext4 -q /dev/vda || die 'mkfs.ext4 fails'
mount -t ext4 /dev/vda /export || die 'mount of the disk fails'
nfsd_up
# What is answered as stable is, as with ours.
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync '*:/export' || die 'exportfs fails'
chmod 700 /export
mkdir /export/ours /export/knfsd || die mkdir
/lab/rpcrdma serve /ours=/export/ours --listen "$GUEST_IP:20051" --mount-port 20050 --provider iwarp \
  --allow "$GUEST_IP" --squash none --state-dir /run/ours --json >/run/listening 2>/run/serve.log &
wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }
step 'both mounts'
attach ours 20051 20050 /ours
attach knfsd 20049 20048 /export/knfsd
dd if=/dev/urandom of=/tmp/data bs=$PAIR count=$PAIRS 2>/dev/null || die 'making data'
for server in ours knfsd; do
  cp /tmp/data "/export/$server/data" || die cp
done
sync

for ((round = 0; round <= ROUNDS; round++)); do
  step "round $round of $ROUNDS"
  for server in ours knfsd; do
    case $server in
      ours) at=(20051 20050 /ours) ;;
      knfsd) at=(20049 20048 /export/knfsd) ;;
    esac
    for kind in sync dsync; do
      took=$(over_wire $kind "${at[@]}") || exit 1
      [ "$round" = 0 ] || echo "$took" >>"/run/times-$kind-$server"
    done
    before=$(awk '/^\t *COMMIT:/ { sum += $2 } END { print sum }' /proc/self/mountstats)
    took=$(in_pairs sync "/mnt/$server/data") || exit 1
    after=$(awk '/^\t *COMMIT:/ { sum += $2 } END { print sum }' /proc/self/mountstats)
    same "COMMITs on $server" $PAIRS $((after - before))
    [ "$round" = 0 ] || echo "$took" >>"/run/times-commit-$server"
    for kind in sync dsync; do
      took=$(in_pairs $kind "/export/$server/data") || exit 1
      [ "$round" = 0 ] || echo "$took" >>"/run/times-local-$kind-$server"
    done
  done
done
for times in /run/times-*; do
  step "${times#/run/times-}: $(median <"$times") us, of $(sort -n "$times" | sed -n '1p;$p' | tr '\n' ' ')"
done

step 'unmount'
umount /mnt/ours || die umount
umount /mnt/knfsd || die umount
kill %1
wait %1 || { cat /run/serve.log; die 'our server does not end well'; }
exit 0
