# pjdfstest on our server, on the kernel's, and on the file system that both export; all is in this guest.
#
#   DEVICE   the disk with that file system
. /lab/lib.sh

# attach NAME PORT MOUNT_PORT PATH: mounts a server on /mnt/NAME.
attach() {
  mkdir -p "/mnt/$1" || die mkdir
  mount.nfs "$GUEST_IP:$4" "/mnt/$1" \
    -o "vers=3,nolock,proto=rdma,port=$2,mountproto=tcp,mountport=$3" || die "mount of $1"
  grep " /mnt/$1 " /proc/mounts
}

# suite NAME FOLDER: the results of all cases go to the host.
suite() {
  local begin=$EPOCHREALTIME end
  step "pjdfstest on $1"
  # It fails when a case fails; what is printed tells.
  /lab/pjdfstest -c /lab/pjdfstest.toml -p "$2" >"/tmp/$1" 2>&1
  end=$EPOCHREALTIME
  cat "/tmp/$1"
  grep -q '^Summary: ' "/tmp/$1" || die "pjdfstest does not come to its end on $1"
  awk -v server="$1" '$2 ~ /^(ok|FAILED|skipped)$/ && NF == 2 {print "@@note", server, $1, $2}' "/tmp/$1"
  echo "@@took $1 $(((${end/./} - ${begin/./}) / 1000))"
}

step 'siw link'
siw_up
step 'both servers on one file system'
modprobe -a virtio_blk ext4 || die 'no module'
mkfs.ext4 -q "$DEVICE" || die mkfs
umount /export
mount -t ext4 "$DEVICE" /export || die 'mount of the disk'
nfsd_up
# What is answered as stable is, as with ours.
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync '*:/export' || die 'exportfs fails'
mkdir -m 755 /export/ours /export/knfsd /export/local || die mkdir
/lab/rpcrdma serve /ours=/export/ours --listen "$GUEST_IP:20051" --mount-port 20050 \
  --allow "$GUEST_IP" --squash none --state-dir /run/ours --json >/run/listening 2>/run/serve.log &
wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }
attach ours 20051 20050 /ours
attach knfsd 20049 20048 /export/knfsd

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
suite local /export/local
suite knfsd /mnt/knfsd
suite ours /mnt/ours

step 'unmount'
umount /mnt/ours || die umount
umount /mnt/knfsd || die umount
kill %1
wait %1 || { cat /run/serve.log; die 'our server does not end well'; }
exit 0
