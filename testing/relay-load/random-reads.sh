# Random READs of one file, by our server over RDMA, with CRCs and without, and over TCP, and by nfs-ganesha over TCP, in
# turn. Run in network, mount and process namespaces of its own, where the ports are free and nothing outlives it. Prints
# lines: the way to the file and what relay-load says in JSON.
#
#   PROGRAM      our program
#   LOAD         relay-load
#   WORK         a directory on a tmpfs; the export is below it
#   WAYS         which of rdma, rdma-no-crc, tcp and ganesha
#   CONNECTIONS  numbers of connections
#   ROUNDS       how often
#   TIME         milliseconds of each measurement
#   MIB          size of the file
set -eu
. "${0%/*}/../ganesha.sh"

RDMA=20049
RDMA_NO_CRC=20050
TCP=20051

EXPORT="$WORK/export"
mkdir -p "$EXPORT"
ganesha_up "$(exported 1 "$EXPORT" /)"
mount -t proc none /proc
GANESHA=$(cat /run/ganesha.pid)

# serve PORT OPTIONS...: our server, which is $OURS then.
serve() {
  port=$1
  shift
  "$PROGRAM" serve "$EXPORT" --squash none --listen "127.0.0.1:$port" --mount-port 0 --state-dir "$WORK/state-$port" --json \
    "$@" >"$WORK/serve-$port.json" 2>"$WORK/serve-$port.log" &
  OURS=$!
  wait_for grep -q listening "$WORK/serve-$port.json"
}
serve $RDMA --tcp $TCP
SERVE=$OURS
serve $RDMA_NO_CRC --no-crc
SERVE_NO_CRC=$OURS

# at WAY: the options of relay-load for it.
at() {
  case $1 in
    rdma) echo "--nfs 127.0.0.1:$RDMA --rdma" ;;
    rdma-no-crc) echo "--nfs 127.0.0.1:$RDMA_NO_CRC --rdma off" ;;
    tcp) echo "--nfs 127.0.0.1:$TCP" ;;
    ganesha) echo "--nfs $NFS --mount $MOUNT --export $EXPORT" ;;
  esac
}

# server WAY: the process that serves it.
server() {
  case $1 in
    rdma | tcp) echo "$SERVE" ;;
    rdma-no-crc) echo "$SERVE_NO_CRC" ;;
    ganesha) echo "$GANESHA" ;;
  esac
}

for way in $WAYS; do "$LOAD" check $(at "$way") --mib "$MIB" || die "relay-load check by $way fails"; done
for round in $(seq "$ROUNDS"); do
  for connections in $CONNECTIONS; do
    for way in $WAYS; do
      said=$("$LOAD" random $(at "$way") --mib "$MIB" --connections "$connections" --seed "$round" --time "$TIME" \
        --server "$(server "$way")") || die "relay-load random by $way fails"
      echo "$way $said" >&3
    done
  done
done
