# A server that is killed under two clients of version 4, time after time, and comes back.
#
#   TCP_PORT        where it listens for TCP; PORT is where it does for RDMA
#   RECLAIM_LIMIT   milliseconds that a client may take to reclaim what it has
#
# The other variables are those of work.sh. Client "a" has version 4.2 and RDMA, client "b" 4.1 and TCP.
. /lab/lib.sh
. /lab/load.sh
. /lab/work.sh
. /lab/locks.sh
export LC_ALL=C

# Milliseconds that Linux waits before it sends a call again whose connection was refused. A new session is made after that.
CLIENT_DELAY=3000

declare -A AT=([a]=/mnt [b]=/other) PORT_OF=([a]=$PORT [b]=$TCP_PORT)

# is_connected CLIENT: RDMA is over TCP, too. /proc/net/tcp has addresses in hexadecimal; state 01 is that of a connection.
is_connected() {
  local number local_address remote state rest wanted
  printf -v wanted '0202000A:%04X' "${PORT_OF[$1]}"
  while read -r number local_address remote state rest; do
    [ "$remote $state" != "$wanted 01" ] || return 0
  done </proc/net/tcp
  return 1
}

mkfifo /run/never
exec 9<>/run/never

# The server was killed, and comes back: each client reads as soon as it can.
host_killed() {
  local client begin
  local -A connected=() answered=()
  begin=$(now_us)
  for client in a b; do tell_agent read-$client read f 0 6; done
  while [ ${#answered[@]} -lt 2 ]; do
    for client in a b; do
      [ -z "${answered[$client]}" ] || continue
      if ! is_connected $client; then
        connected[$client]=
      elif [ -z "${connected[$client]}" ]; then
        connected[$client]=$(since $begin)
      fi
      if has_answered read-$client; then
        heard_of read-$client
        same "what $client reads" before "$heard"
        answered[$client]=$(since $begin)
      fi
    done
    [ "$(since $begin)" -lt 60000 ] || die 'a READ is not answered'
    read -rt 0.01 -u 9
  done
  for client in a b; do
    echo "@@note client $client connected after ${connected[$client]} ms, READ answered after ${answered[$client]} ms"
    [ $((answered[$client] - connected[$client])) -le $((CLIENT_DELAY + RECLAIM_LIMIT)) ] || die "client $client took too long to reclaim"
  done
  # All have reclaimed: what is new is no longer refused.
  begin=$(now_us)
  for client in a b; do : >"${AT[$client]}/new-$client" || die 'a new file'; done
  echo "@@note new files $(since $begin) ms later"
  [ "$(since $begin)" -le "$RECLAIM_LIMIT" ] || die 'what is new waits for the end of the grace period'
  rm /mnt/new-a /other/new-b || die rm
  check_locks
}

now_us() { echo "${EPOCHREALTIME/./}"; }
# since MICROSECONDS: milliseconds
since() { echo $(((${EPOCHREALTIME/./} - $1) / 1000)); }

# Each has its locks, and its locked file works.
check_locks() {
  says a busy lock f write 20 10
  says b busy lock f write 0 10
  says b 'write 0 10' test f write 0 15
  says a 'write 20 10' test f write 10 0
  says a ok write f 0 a-was-here
  says b ok write f 20 b-was-here
  says a ok sync f
  says b ok sync f
}

step 'siw link'
siw_up
modprobe -a nfsv3 nfsv4 || die 'no client'
PROTO=rdma
mount_as 4.2 /mnt nosharecache
PROTO=tcp PORT=$TCP_PORT
mount_as 4.1 /other nosharecache
for file in locked read records-a records-b; do : >"/mnt/$file" || die create; done
echo before >/mnt/read || die write
for client in a b; do
  agent $client
  says $client ok open f "${AT[$client]}/locked"
  agent read-$client
  says read-$client ok open f "${AT[$client]}/read" direct
  agent write-$client
  says write-$client ok open f "${AT[$client]}/records-$client"
  tell_agent write-$client records f /tmp/stop-writing
done
says a ok lock f write 0 10
says b ok lock f write 20 10
check_locks
step 'the server is killed, again and again'
echo '@@locked'
obey

step 'what is left'
: >/tmp/stop-writing
for client in a b; do
  heard_of write-$client
  echo "client $client wrote $heard records"
  drop_caches
  same "bytes of $client" $((heard * 16)) "$(stat -c %s "${AT[$client]}/records-$client")"
done
echo '@@wrote'
read -r _ <&3
for client in a b; do
  agent_ends $client
  agent_ends read-$client
  agent_ends write-$client
done
grep 'xprt:' /proc/self/mountstats
umount /other || die umount
umount /mnt || die umount
lost=$(dmesg | grep -iE 'NFS: .*(lock|reclaim|state).*|NFSv4.*fail')
[ -z "$lost" ] || die "the kernel complains: $lost"
exit 0
