# Linux' NFS client on our server and on the kernel's, in turn; all three are in this guest.
#
#   VERSION  of NFS: 3, 4.1 or 4.2
#   ROUNDS   how often each piece of work is timed, after a round that is checked instead
#   MIB      size of the file that is written and read
#   FILES    how many files are made, opened and removed
. /lab/lib.sh

# The largest transfer of both, and what a machine with more memory has by itself.
TRANSFER=1048576
OURS='20051 20050 /ours'
KNFSD='20049 20048 /export/knfsd'
# The root of version 4 is what knfsd exports with fsid=0.
[ "$VERSION" = 3 ] || KNFSD='20049 20048 /knfsd'

# attach NAME PORT MOUNT_PORT PATH: mounts a server on /mnt/NAME.
attach() {
  mkdir -p "/mnt/$1" || die mkdir
  local options="vers=$VERSION,proto=rdma,port=$2"
  [ "$VERSION" != 3 ] || options="$options,nolock,mountproto=tcp,mountport=$3"
  mount.nfs "$GUEST_IP:$4" "/mnt/$1" -o "$options,rsize=$TRANSFER,wsize=$TRANSFER" || die "mount of $1"
  grep " /mnt/$1 " /proc/mounts
  same "transfers of $1" "rsize=$TRANSFER,wsize=$TRANSFER" \
    "$(grep " /mnt/$1 " /proc/mounts | grep -o 'rsize=[0-9]*,wsize=[0-9]*')"
}

step 'siw link'
siw_up
step 'both servers'
mkdir -p /var/lib/nfs/v4recovery
nfsd_up
# What is answered as stable is, as with ours.
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync '*:/export' || die 'exportfs fails'
# Nobody but root reaches what is served, so that ours need not fear that somebody has a file locked.
chmod 700 /export
# No client has anything to reclaim.
[ "$VERSION" = 3 ] || echo Y >/proc/fs/nfsd/v4_end_grace || die 'the grace period of nfsd does not end'
mkdir /export/ours /export/knfsd || die mkdir
/lab/rpcrdma serve /ours=/export/ours --listen "$GUEST_IP:${OURS%% *}" --mount-port 20050 \
  --allow "$GUEST_IP" --squash none --no-crc --state-dir /run/ours --json >/run/listening 2>/run/serve.log &
wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }
cat /run/listening
step 'both mounts'
attach ours $OURS
attach knfsd $KNFSD
printf '@@machine %d %d %s\n' "$(nproc)" "$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)" "$(uname -r)"
dd if=/dev/urandom of=/tmp/data bs=1M count="$MIB" 2>/dev/null || die 'making data'

work_write() { dd if=/tmp/data of="/mnt/$1/data" bs=1M conv=fsync 2>/dev/null; }
work_read() { dd if="/mnt/$1/data" of=/dev/null bs=1M 2>/dev/null; }
work_create() {
  local i
  for ((i = 0; i < FILES; i++)); do : >"/mnt/$1/file-$i" || return; done
}
work_open() {
  local i
  for ((i = 0; i < FILES; i++)); do : <"/mnt/$1/file-$i" || return; done
}
work_remove() {
  local i names=()
  for ((i = 0; i < FILES; i++)); do names+=("/mnt/$1/file-$i"); done
  rm "${names[@]}"
}

# What must be true on the server's side after a piece of work.
check_write() { diff -q /tmp/data "/export/$1/data"; }
check_read() {
  drop_caches
  diff -q /tmp/data "/mnt/$1/data"
}
check_create() { same "files of $1" "$FILES" "$(ls "/export/$1" | grep -c '^file-')"; }
check_open() { check_create "$1"; }
check_remove() { same "files left of $1" 0 "$(ls "/export/$1" | grep -c '^file-')"; }

for ((round = 0; round <= ROUNDS; round++)); do
  step "round $round of $ROUNDS"
  for work in write read create open remove; do
    for server in ours knfsd; do
      # Nothing of one piece of work is left to do in the next, and what is read comes from the server.
      case $work in
        read) drop_caches ;;
        *) sync ;;
      esac
      begin=$EPOCHREALTIME
      "work_$work" $server || die "$work on $server"
      end=$EPOCHREALTIME
      case $round in
        0) "check_$work" $server || die "$work on $server: the content is wrong" ;;
        *) echo "@@took $work $server $((${end/./} - ${begin/./}))" ;;
      esac
    done
  done
  rm /mnt/ours/data /mnt/knfsd/data || die 'removing data'
done

step 'unmount'
grep 'xprt:' /proc/self/mountstats
# How often each operation was called on each, for the log.
awk '/^device/ {on = $5} /per-op/ {ops = 1; next} ops && $2 > 0 {print on, $1, $2} !NF {ops = 0}' /proc/self/mountstats
umount /mnt/ours || die umount
umount /mnt/knfsd || die umount
kill %1
wait %1 || { cat /run/serve.log; die 'our server does not end well'; }
exit 0
