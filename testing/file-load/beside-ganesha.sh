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
WORK=$DISK
. "${0%/*}/../ganesha.sh"

mkdir -p "$DISK/ganesha" "$DISK/synced" "$DISK/ours" "$DISK/local"
# ganesha syncs no change of names. Here the file system does it, as with the mount option dirsync.
chattr +D "$DISK/synced"
ganesha_up "$(exported 1 "$DISK/ganesha" / && exported 2 "$DISK/synced" /synced)"
"$PROGRAM" serve "$DISK/ours" --squash none --listen 127.0.0.1:0 --mount-port 0 --json \
  --state-dir "$DISK/state" >"$DISK/ours.json" 2>"$DISK/ours.log" &
wait_for grep -q listening "$DISK/ours.json"
OURS=$(sed -n 's/.*"listening":"\([^"]*\)".*/\1/p' "$DISK/ours.json")

# load NAME OPTIONS...: what is printed for the program that runs this.
load() {
  echo "{\"server\":\"$1\"}" >&3
  shift
  "$LOAD" --files "$FILES" --alone "$ALONE" "$@" >&3 || die "file-load $* fails"
}

for _ in $(seq "$ROUNDS"); do
  load ganesha --tcp "$NFS" --mount "$MOUNT" --export "$DISK/ganesha"
  load synced --tcp "$NFS" --mount "$MOUNT" --export "$DISK/synced"
  load ours --rdma "$OURS"
  load local --local "$DISK/local"
done
