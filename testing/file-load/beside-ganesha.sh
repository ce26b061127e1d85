# Small files on nfs-ganesha over TCP, as it is and with synced directories, on our server over RDMA, and
# in a local directory, in turn. Run in network, mount and process namespaces of its own, where the ports
# are free and nothing outlives it.
#
#   PROGRAM    our program
#   LOAD       file-load
#   DISK       a directory on the disk; all files are made below it
#   ROUNDS     how often
#   FILES      files of each phase that has several in flight
#   ALONE      files that are made one after the other
set -eu
exec 3>&1 1>&2

die() {
  echo "beside-ganesha: $*"
  tail -n 20 "$DISK"/*.log
  exit 1
}

# wait_for COMMAND...: until it succeeds; half a minute at most.
wait_for() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  die "this does not come about: $*"
}

ip link set lo up
mount -t tmpfs none /run
mkdir -p "$DISK/ganesha" "$DISK/synced" "$DISK/ours" "$DISK/local"
# ganesha syncs no change of names. Here the file system does it, as with the mount option dirsync.
chattr +D "$DISK/synced"
cat >"$DISK/ganesha.conf" <<CONF
NFS_Core_Param { Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; }
EXPORT { Export_Id = 1; Path = $DISK/ganesha; Pseudo = /; Access_Type = RW; Squash = no_root_squash;
  SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }
EXPORT { Export_Id = 2; Path = $DISK/synced; Pseudo = /synced; Access_Type = RW; Squash = no_root_squash;
  SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }
CONF

rpcbind -f &
wait_for rpcinfo -p
ganesha.nfsd -F -f "$DISK/ganesha.conf" -L "$DISK/ganesha.log" -p /run/ganesha.pid -N NIV_EVENT &
"$PROGRAM" serve "$DISK/ours" --squash none --listen 127.0.0.1:0 --mount-port 0 --json \
  --state-dir "$DISK/state" >"$DISK/ours.json" 2>"$DISK/ours.log" &
wait_for grep -q listening "$DISK/ours.json"
wait_for rpcinfo -t 127.0.0.1 nfs 3
wait_for rpcinfo -t 127.0.0.1 mountd 3
OURS=$(sed -n 's/.*"listening":"\([^"]*\)".*/\1/p' "$DISK/ours.json")

# load NAME OPTIONS...: what is printed for the program that runs this.
load() {
  echo "{\"server\":\"$1\"}" >&3
  shift
  "$LOAD" --files "$FILES" --alone "$ALONE" "$@" >&3 || die "file-load $* fails"
}

for _ in $(seq "$ROUNDS"); do
  load ganesha --tcp 127.0.0.1:2049 --mount 127.0.0.1:20048 --export "$DISK/ganesha"
  load synced --tcp 127.0.0.1:2049 --mount 127.0.0.1:20048 --export "$DISK/synced"
  load ours --rdma "$OURS"
  load local --local "$DISK/local"
done
