# A suite of tests on our server, on the kernel's, and on the file system that both export; all is in this guest.
#
#   SUITE     its name
#   DEVICE    the disk with that file system
#   VERSION   of NFS
. /lab/lib.sh
export LC_ALL=C

# What a program may take; one takes a minute on an emulated machine.
PROGRAM_LIMIT=300

# suite PLACE: runs it on /mnt; the results of all cases go to the host. The path is always the same, as cases
# depend on its length.
suite() {
  local begin=$EPOCHREALTIME end
  step "$SUITE on $1"
  grep ' /mnt ' /proc/mounts
  : >/tmp/results
  "run_$SUITE"
  end=$EPOCHREALTIME
  sed "s/^/@@note $1 /" /tmp/results
  echo "@@took $1 $(((${end/./} - ${begin/./}) / 1000))"
  # A process whose peer has failed may take a moment to end.
  cd / && wait_for 30 umount /mnt || die umount
  ! grep -q ' /other ' /proc/mounts || wait_for 30 umount /other || die umount
}

# result CASE STATUS: of a program that has 0 for success and 77 where the case does not apply.
result() {
  local name
  case $2 in
    0) name=ok ;;
    77) name=skipped ;;
    # That of a signal is the one by which busybox ends it.
    124 | 143) name=late ;;
    *) name=FAILED ;;
  esac
  echo "$1 $name" >>/tmp/results
}

run_pjdfstest() {
  # It fails when a case fails; what is printed tells.
  /lab/pjdfstest -c /lab/pjdfstest.toml -p /mnt 2>&1 | tee /tmp/said
  grep -q '^Summary: ' /tmp/said || die 'pjdfstest does not come to its end'
  awk '$2 ~ /^(ok|FAILED|skipped)$/ && NF == 2 {print $1, $2}' /tmp/said >/tmp/results
}

# Each program is a case.
run_nfs-conformance() {
  local program name
  cd /tmp/suite || die cd
  for program in op_*; do
    name=${program#op_}
    mkdir "/mnt/$name" || die mkdir
    echo "--- $name"
    timeout $PROGRAM_LIMIT "./$program" -d "/mnt/$name" 2>&1
    result "$name" $?
    rm -rf "/mnt/$name"
  done
}

# Programs of the first part are a case each; those of the second have cases of their own, of two processes. The second
# process works in /other/t: a client of its own, as the kernel finds conflicts within a mount without asking the server.
run_cthon04() {
  local number program
  export NFSTESTDIR=/mnt/t
  cd /tmp/suite/basic || die cd
  for number in {1..9}; do
    echo "--- basic $number"
    timeout $PROGRAM_LIMIT ./test$number -t
    result basic-$number $?
  done
  cd /mnt/t && [ -d /other/t ] || die 'no folder for both processes'
  for program in tlocklfs tlock64; do
    echo "--- $program"
    # Who is interrupted ends the other one, too.
    timeout -s INT $PROGRAM_LIMIT /tmp/suite/lock/$program -r . >/tmp/said 2>&1
    result $program $?
    cat /tmp/said
    sed -nE "s/^[[:space:]]*(Parent|Child): *([0-9]+)\.([0-9]+) .*(PASSED|WARNING|FAILED)[.!]$/$program-\2.\3-\1 \4/p" /tmp/said |
      sed 's/ PASSED$/ ok/' >>/tmp/results
  done
}

# mount_v4 PORT PATH
mount_v4() {
  mount_as "$VERSION" /mnt "$@"
  # Another minor version is another client.
  [ "$SUITE" != cthon04 ] || mount_as 4.1 /other "$@"
}

# mount_as VERSION PLACE PORT PATH
mount_as() {
  mount.nfs "$GUEST_IP:$4" "$2" -o "vers=$1,proto=rdma,port=$3" || die "mount of version $1"
  grep " $2 " /proc/mounts
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
# That of lockd keeps version 4 from locking, too.
[ ! -e /proc/fs/lockd/nlm_end_grace ] || echo Y >/proc/fs/lockd/nlm_end_grace || die 'the grace period of lockd does not end'
# What is answered as stable is, as with ours.
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check,sync '*:/export' || die 'exportfs fails'
mkdir -m 755 /export/ours /export/knfsd /export/local || die mkdir
/lab/rpcrdma serve /ours=/export/ours --listen "$GUEST_IP:20051" --mount-port 20050 \
  --allow "$GUEST_IP" --squash none --state-dir /run/ours --json >/run/listening 2>/run/serve.log &
wait_for 30 grep -q listening /run/listening || { cat /run/serve.log; die 'our server does not listen'; }

if [ "$SUITE" = pjdfstest ]; then
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
else
  mkdir /tmp/suite && tar -C /tmp/suite -xf "/lab/$SUITE" || die 'the archive of the suite'
fi
mkdir -p /other
for place in /mnt /other; do
  mount --bind /export/local $place || die 'mount of the folder'
done
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
