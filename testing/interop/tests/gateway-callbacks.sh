# Linux' NFS client, version 4.2, on the kernel's server behind a gateway: all of the work, delegations that the
# server recalls, and copies that it makes in the background.
#
#   COPIED   bytes of the file that the server copies
#
# The other variables are those of work.sh.
. /lab/lib.sh
. /lab/load.sh
. /lab/work.sh

# events NAME...: begins to record these events of nfs4.
events() {
  local event
  for event in "$@"; do
    echo 1 >"$TRACING/events/nfs4/$event/enable" || die "no trace event $event"
  done
  trace_clear
}
seen() { [ "$(trace_count "$1")" -ge "$2" ]; }
# must_see EVENT COUNT
must_see() {
  wait_for 30 seen "$1" "$2" && return
  cat $TRACING/trace
  die "$(trace_count "$1") events $1 and not $2"
}

# Opens all files of a set for reading, and keeps them open.
host_open() {
  local set=$1 count=$2 number
  trace_clear
  opened=()
  for ((number = 1; number <= count; number++)); do
    exec {file}<"/mnt/$set-$number" || die open
    opened+=("$file")
    same 'before' old "$(cat "/mnt/$set-$number")"
  done
  must_see nfs4_set_delegation "$count"
}

# What somebody else has written is there at once: the client was told, and nothing has expired.
host_recalled() {
  local set=$1 count=$2 number
  must_see nfs4_cb_recall "$count"
  must_see nfs4_delegreturn_exit "$count"
  grep 'nfs4_cb_recall:' $TRACING/trace | head -n 1
  for ((number = 1; number <= count; number++)); do
    same 'after' new "$(cat "/mnt/$set-$number")"
  done
  for file in "${opened[@]}"; do exec {file}<&-; done
}

# Waits for a connection, to which the client binds its session before the server can call it.
host_connected() {
  trace_clear
  stat -f /mnt >/dev/null || die 'a call after the connection was lost'
  must_see nfs4_bind_conn_to_session 1
}

# Calls in both directions at a time.
host_busy() {
  while [ ! -e /tmp/stop ]; do
    cp /tmp/data /mnt/busy || die 'write under recalls'
    drop_caches
    cmp /tmp/data /mnt/busy || die 'read under recalls'
  done &
}
host_idle() {
  touch /tmp/stop
  wait
  rm /tmp/stop /mnt/busy
}

# A copy within the server, of which it tells the client the end. Linux 6.12 takes all copies for such that the client
# waits for, which the reply says; 6.1 makes them in the background.
copied() {
  dd if=/dev/urandom of=/mnt/source bs=1M count=$((COPIED / 1048576)) conv=fsync 2>/dev/null || die write
  trace_clear
  local before
  before=$(calls WRITE)
  cp --reflink=auto --sparse=never /mnt/source /mnt/copy || die 'copy within the server'
  same 'calls of WRITE for a copy' "$before" "$(calls WRITE)"
  was_called COPY
  must_see nfs4_copy 1
  if [[ $(uname -r) != 6.1.* ]] && grep -q 'nfs4_copy:.* res_sync=1 ' $TRACING/trace; then
    step 'the server has copied while the client waited: there is no CB_OFFLOAD'
  else
    must_see nfs4_cb_offload 1
  fi
  grep -E 'nfs4_(copy|cb_offload):' $TRACING/trace
  drop_caches
  cmp /mnt/source /mnt/copy || die 'the copy differs'
}

step 'siw link'
[ "$PROTO" != rdma ] || siw_up
work_begin
read -r _ <&3
work_in 4.2
step 'mount'
mount_as 4.2 /mnt
events nfs4_set_delegation nfs4_cb_recall nfs4_delegreturn_exit nfs4_copy nfs4_cb_offload nfs4_bind_conn_to_session
echo '@@mounted'
obey
step 'copy'
copied
[ "$PROTO" != rdma ] || check_mountstats
step 'unmount'
umount /mnt || die umount
exit 0
