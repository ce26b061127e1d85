# Random READs of one file, by our server over RDMA, without CRCs, and over TCP, and by the kernel's over TCP, in turn. Servers
# and clients are in this guest, on loopback.
#
#   /lab/relay-load is the client.
#   WAYS         which of rdma-no-crc, tcp and knfsd
#   CONNECTIONS  numbers of connections
#   ROUNDS       how often
#   TIME         milliseconds of each measurement
#   MIB          size of the file
. /lab/lib.sh
. /lab/ours.sh

TCP_PORT=20052
# What a machine with more memory has by itself, and relay-load needs for the file.
TRANSFER=1048576

step 'both servers'
siw_up
nfsd_up
# As many as Debian has.
echo 8 >/proc/fs/nfsd/threads || die 'no threads of nfsd'
mkdir /export/reads || die mkdir
OURS_AT=127.0.0.1 ours_up --tcp $TCP_PORT --squash none --no-crc /export/reads
KNFSD=$(grep -lx nfsd /proc/[0-9]*/comm | cut -d/ -f3)
same 'threads of nfsd' 8 "$(echo "$KNFSD" | wc -l)"
printf '@@machine %d %d %s\n' "$(nproc)" "$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)" "$(uname -r)"

# at WAY: the options of relay-load for it.
at() {
  case $1 in
    rdma-no-crc) echo "--nfs 127.0.0.1:$OURS_PORT --rdma off" ;;
    tcp) echo "--nfs 127.0.0.1:$TCP_PORT" ;;
    knfsd) echo '--nfs 127.0.0.1:2049 --mount 127.0.0.1:20048 --export /export/reads' ;;
  esac
}

# server WAY: its process, or its threads in the kernel.
server() {
  case $1 in
    knfsd) printf -- '--server %s ' $KNFSD ;;
    *) echo "--server $OURS" ;;
  esac
}

step 'the file'
for way in $WAYS; do /lab/relay-load check $(at "$way") --mib "$MIB" || die "check by $way"; done
for ((round = 1; round <= ROUNDS; round++)); do
  step "round $round of $ROUNDS"
  for connections in $CONNECTIONS; do
    for way in $WAYS; do
      said=$(/lab/relay-load random $(at "$way") --mib "$MIB" --connections "$connections" --seed "$round" \
        --time "$TIME" $(server "$way")) || die "random by $way"
      echo "@@reads $way $said"
    done
  done
done
ours_ends
exit 0
