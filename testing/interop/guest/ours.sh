# Our server and its disks, in this guest beside the client:  . /lab/ours.sh

OURS_PORT=20051
OURS_MOUNT_PORT=20050
OURS_LOG=/run/serve.log

# ours_up ARGUMENT...: starts it with these arguments of "serve", and waits until it listens, at $OURS_AT if that is set.
ours_up() {
  : >/run/listening
  # It inherits no directory and no file of a mount of what it serves.
  (
    cd / && exec 3<&- 5<&- 6<&- 7<&- 8<&- 9<&-
    exec /lab/rpcrdma serve --listen "${OURS_AT:-0.0.0.0}:$OURS_PORT" --mount-port $OURS_MOUNT_PORT \
      --state-dir /run/ours "$@" >/run/listening 2>>$OURS_LOG
  ) &
  OURS=$!
  wait_for 60 grep -q ^listening /run/listening || die 'our server does not listen'
}

# Ends it the way an administrator does.
ours_ends() {
  kill $OURS
  wait $OURS || die "our server ended with status $?"
}

# Kills it, which leaves it no time for anything.
ours_killed() {
  kill -9 $OURS
  wait $OURS 2>/dev/null
}

# attach DIRECTORY ADDRESS PATH [OPTION,...]: mounts an export of it.
attach() {
  mkdir -p "$1" || die mkdir
  local options="vers=3,nolock,proto=rdma,port=$OURS_PORT,mountproto=tcp,mountport=$OURS_MOUNT_PORT"
  mount.nfs "$2:$3" "$1" -o "$options${4:+,$4}" || die "mount of $3 on $1"
  grep " $1 " /proc/mounts
}

# new_disk DIRECTORY MIB MOUNT_OPTIONS [OPTION...]: an empty ext4 of so many MiB, mounted there; further
# options are those of mkfs.ext4.
new_disk() {
  local image="/tmp/disk${1//\//-}"
  modprobe -a loop ext4 || die 'no ext4'
  truncate -s "$2M" "$image" || die 'making a disk'
  mkfs.ext4 -q -F -b 4096 "${@:4}" "$image" || die 'mkfs.ext4'
  mkdir -p "$1" || die mkdir
  mount -t ext4 -o "loop,$3" "$image" "$1" || die "mount of $image"
}
