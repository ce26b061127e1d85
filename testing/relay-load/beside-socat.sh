# An NFS server over TCP, reached directly, through two socats, and through two gateways (TCP to RDMA, and
# RDMA to TCP), in turn; then many idle connections through the gateways. Run in network, mount and process
# namespaces of its own, where the ports are free and nothing outlives it. Prints JSON lines.
#
#   PROGRAM      our program
#   LOAD         relay-load
#   WORK         a directory on a tmpfs or a disk; the export is below it
#   ROUNDS       how often
#   TIME         milliseconds of each measurement
#   CONNECTIONS  idle connections
set -eu
. "${0%/*}/../ganesha.sh"

# Where clients connect to, and where the second relay of each kind listens.
SOCAT=3049
SOCAT_BETWEEN=3050
GATEWAY=4049
GATEWAY_BETWEEN=4050

listens() { ss -Hltn "sport = :$1" | grep -q .; }

# Milliseconds since an arbitrary time.
now() { echo "$(($(date +%s%N) / 1000000))"; }

ulimit -n "$(ulimit -Hn)"
EXPORT="$WORK/export"
mkdir -p "$EXPORT"
ganesha_up "$(exported 1 "$EXPORT" /)" 'RPC_Max_Connections = 10000;'
mount -t proc none /proc

# Without nodelay, Nagle's algorithm holds back the ends of records, and nfs-cp has 20 MiB/s.
socat "TCP-LISTEN:$SOCAT_BETWEEN,fork,reuseaddr,nodelay" "TCP:$NFS,nodelay" 2>"$WORK/socat-between.log" &
socat "TCP-LISTEN:$SOCAT,fork,reuseaddr,nodelay" "TCP:127.0.0.1:$SOCAT_BETWEEN,nodelay" 2>"$WORK/socat.log" &
"$PROGRAM" gateway --listen "rdma://127.0.0.1:$GATEWAY_BETWEEN" --upstream "tcp://$NFS" \
  --max-connections 4096 >"$WORK/gateway-between.log" 2>&1 &
BETWEEN=$!
"$PROGRAM" gateway --listen "tcp://127.0.0.1:$GATEWAY" --upstream "rdma://127.0.0.1:$GATEWAY_BETWEEN" \
  --max-connections 4096 >"$WORK/gateway.log" 2>&1 &
FRONT=$!
for port in $SOCAT_BETWEEN $SOCAT $GATEWAY_BETWEEN $GATEWAY; do wait_for listens "$port"; done

# port WAY: where a client that goes this way connects to.
port() {
  case $1 in
    direct) echo 2049 ;;
    socat) echo $SOCAT ;;
    gateways) echo $GATEWAY ;;
  esac
}

# load WAY COMMAND OPTIONS...: what is printed for the program that runs this.
load() {
  echo "{\"way\":\"$1\"}" >&3
  at=127.0.0.1:$(port "$1") command=$2
  shift 2
  "$LOAD" "$command" --nfs "$at" --mount "$MOUNT" --export "$EXPORT" "$@" >&3 || die "relay-load $command through $at fails"
}

# copied WAY WHAT FROM TO: the rate of nfs-cp, the process included.
copied() {
  begun=$(now)
  nfs-cp "$3" "$4" >"$WORK/nfs-cp.log" 2>&1 || die "nfs-cp $3 $4 fails"
  took=$(($(now) - begun))
  echo "{\"way\":\"$1\"}" >&3
  echo "{\"what\":\"$2\",\"value\":$((COPIED_MIB * 1000000 / took)).0e-3}" >&3
}

# resident PROCESS: its memory in KiB.
resident() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"; }

memory() { echo "{\"memory\":\"$1\",\"front_kib\":$(resident $FRONT),\"between_kib\":$(resident $BETWEEN)}" >&3; }

memory begin
# What many idle connections cost: each a connection from gateway to gateway, and one to the server. Before
# the load, which leaves memory for reuse.
mkfifo "$WORK/keep"
"$LOAD" idle --nfs "127.0.0.1:$GATEWAY" --connections "$CONNECTIONS" <"$WORK/keep" >"$WORK/idle" 2>"$WORK/idle.log" &
IDLE=$!
exec 4>"$WORK/keep"
opened() { grep -q idle "$WORK/idle" || ! kill -0 "$IDLE"; }
wait_for opened
grep -q idle "$WORK/idle" || die "the idle connections cannot be made"
sleep 1
memory idle
exec 4>&-
wait "$IDLE" || die "relay-load idle fails"
sleep 2
memory closed

WAYS="direct socat gateways"
for way in $WAYS; do load "$way" check; done
COPIED_MIB=256
dd if=/dev/urandom of="$WORK/local" bs=1M count="$COPIED_MIB" 2>/dev/null
for round in $(seq "$ROUNDS"); do
  for command in null getattr read write; do
    for way in $WAYS; do load "$way" "$command" --time "$TIME"; done
  done
  for way in $WAYS; do
    # nfs-cp makes only new files. The memory of the last ones is given back.
    name="copied-$round-$way"
    url="nfs://127.0.0.1$EXPORT/$name?version=3&mountport=20048&nfsport=$(port "$way")"
    copied "$way" put "$WORK/local" "$url"
    rm -f "$WORK/got"
    copied "$way" get "$url" "$WORK/got"
    cmp "$WORK/local" "$EXPORT/$name" || die "nfs-cp puts something else"
    cmp "$WORK/local" "$WORK/got" || die "nfs-cp gets something else"
    : >"$EXPORT/$name"
  done
done
memory loaded
