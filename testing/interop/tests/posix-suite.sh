# pjdfstest on our server, on the kernel's, and on the file system that both export; all is in this guest.
#
#   DEVICE    the disk with that file system
#   VERSION   of NFS
. /lab/lib.sh

# suite NAME: runs it on /mnt; the results of all cases go to the host. The path is always the same, as cases
# depend on its length.
suite() {
  local begin=$EPOCHREALTIME end
  step "pjdfstest on $1"
  grep ' /mnt ' /proc/mounts
  # It fails when a case fails; what is printed tells.
  /lab/pjdfstest -c /lab/pjdfstest.toml -p /mnt 2>&1 | tee "/tmp/$1"
  end=$EPOCHREALTIME
  grep -q '^Summary: ' "/tmp/$1" || die "pjdfstest does not come to its end on $1"
  awk -v server="$1" '$2 ~ /^(ok|FAILED|skipped)$/ && NF == 2 {print "@@note", server, $1, $2}' "/tmp/$1"
  echo "@@took $1 $(((${end/./} - ${begin/./}) / 1000))"
  umount /mnt || die umount
}

# mount_v4 PORT PATH
mount_v4() {
  mount.nfs "$GUEST_IP:$2" /mnt -o "vers=$VERSION,proto=rdma,port=$1" || die "mount of version $VERSION"
  grep ' /mnt ' /proc/mounts
}

step 'siw link'
siw_up
step 'both servers on one file system'
modprobe -a virtio_blk ext4 || die 'no module'
mkfs.ext4 -q "$DEVICE" || die mkfs
umount /export
mount -t ext4 "$DEVICE" /export || die 'mount of the disk'
mkdir -p /var/lib/nfs/v4recovery
nfsd_up
# No client has anything to reclaim.
echo Y >/proc/fs/nfsd/v4_end_grace || die 'the grace period of nfsd does not end'
# What is answered as stable is, as with ours.
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync '*:/export' || die 'exportfs fails'
mkdir -m 755 /export/ours /export/knfsd /export/local || die mkdir
/lab/rpcrdma serve /ours=/export/ours --listen "$GUEST_IP:20051" --mount-port 20050 \
  --allow "$GUEST_IP" --squash none --state-dir /run/ours --json >/run/listening 2>/run/serve.log &
wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }

cat >/lab/pjdfstest.toml <<'TOML'
[features]
secondary_fs = "/tmp"
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"], ["pjdfstest", "pjdfstest"]]
TOML
mount --bind /export/local /mnt || die 'mount of the folder'
suite local
# The root of version 4 is the export with fsid=0.
case $VERSION in
  3)
    mount_v3 "$GUEST_IP" 20049 20048 /export/knfsd
    suite knfsd
    mount_v3 "$GUEST_IP" 20051 20050 /ours
    ;;
  *)
    mount_v4 20049 /knfsd
    suite knfsd
    mount_v4 20051 /ours
    ;;
esac
suite ours
kill %1
wait %1 || { cat /run/serve.log; die 'our server does not end well'; }
exit 0
