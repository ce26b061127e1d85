# `rpcrdma conform` on nfs-ganesha behind our gateway, in namespaces of its own (network, mounts, processes), as root.
#
#   WORK       an empty directory
#   PROGRAM    our program
#   KNOWN      the baseline
#   FOUND      where what was found is written, as a baseline
set -eu

die() {
  printf 'failed: %s\n' "$*"
  tail -n 20 "$WORK/ganesha.log" "$WORK/gateway.log" || :
  exit 1
}

mkdir -p "$WORK/export/conform"
mkfifo "$WORK/commands" "$WORK/answers"
WORK=$WORK EXPORT=$WORK/export LOG=$WORK/ganesha.log NFS_PORT=2049 MOUNT_PORT=20048 \
  bash "${0%/*}/ganesha.sh" <"$WORK/commands" >"$WORK/answers" 2>"$WORK/ganesha.err" &
exec 3>"$WORK/commands" 4<"$WORK/answers"
read -r ready <&4 || die 'no ganesha'
[ "$ready" = ready ] || die "ganesha: $ready"
"$PROGRAM" gateway --listen rdma://127.0.0.1:20049 --upstream tcp://127.0.0.1:2049 --upstream-mount 20048 \
  >"$WORK/listening" 2>"$WORK/gateway.log" &
end=$(($(cut -d . -f 1 /proc/uptime) + 60))
until grep -q 'started: passing' "$WORK/gateway.log"; do
  [ "$(cut -d . -f 1 /proc/uptime)" -lt "$end" ] || die 'no gateway'
  sleep 0.1
done
"$PROGRAM" conform --known "$KNOWN" --write-known "$FOUND" --directory /export/conform 127.0.0.1 || die "status $?"
