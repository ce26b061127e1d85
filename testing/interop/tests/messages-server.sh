# The kernel's NFS server over TCP, exporting a btrfs with an ACL, until the host says "stop".
. /lab/lib.sh

siw_up
modprobe -a virtio_blk btrfs || die 'cannot load btrfs'
wait_for 10 test -b /dev/vda || die 'there is no disk'
mkfs.btrfs -qf /dev/vda || die 'mkfs.btrfs fails'
mount -t btrfs /dev/vda /export || die 'mounting btrfs fails'
nfsd_up --grace-time 10 --nfs-version 4.0
echo '@@ready'
read -r _ <&3
