# The kernel's NFS server over TCP and RDMA on an ext4, /dev/vda, doing what the host asks for until it says "stop".
#
#   ENTRIES        how many entries the directory "many" has
#   NFSD_OPTIONS   further options of rpc.nfsd
. /lab/lib.sh

channel() { sed -n 's/^callback state: *//p' /proc/fs/nfsd/clients/*/info; }
channel_is() { [ "$(channel)" = "$1" ]; }

siw_up
modprobe -a virtio_blk ext4
wait_for 20 test -b /dev/vda || die 'no disk'
mkfs.ext4 -q /dev/vda || die 'mkfs.ext4 fails'
mount -t ext4 /dev/vda /export || die 'mount of the disk fails'
mkdir /export/many /export/shelf
for ((i = 0; i < ENTRIES; i++)); do : >"/export/many/entry-$i"; done
nfsd_up --grace-time 10 $NFSD_OPTIONS
# In a grace period there are no delegations, and nobody opens a file.
[ ! -e /proc/fs/lockd/nlm_end_grace ] || echo Y >/proc/fs/lockd/nlm_end_grace || die 'the grace period of lockd'
wait_for 60 grep -q Y /proc/fs/nfsd/v4_end_grace || die 'the grace period does not end'
echo '@@ready'
while read -r command set count <&3; do
  case $command in
    make)
      # make SET COUNT: that many files
      for ((i = 1; i <= count; i++)); do echo old >"/export/$set-$i"; done
      echo '@@done'
      ;;
    channel)
      # What nfsd thinks of the callback channel of its client, such as UP or DOWN: UP, if it comes to that
      wait_for 30 channel_is UP
      echo "@@channel $(channel)"
      ;;
    write)
      # write SET COUNT: somebody else writes to all of them at once, for which each delegation is to be
      # given back; and how many seconds it takes
      start=$SECONDS
      writers=()
      for ((i = 1; i <= count; i++)); do
        { echo new >"/export/$set-$i"; } &
        writers+=($!)
      done
      for writer in "${writers[@]}"; do wait "$writer" || die 'a file cannot be written'; done
      echo "@@written $((SECONDS - start))"
      ;;
    stop) break ;;
    *) die "unknown command $command" ;;
  esac
done
dmesg | sed -n '/cut here/,/end trace/p'
dmesg | grep -iE 'svcrdma|siw|nfsd|BUG|WARN' | tail -n 20
exit 0
