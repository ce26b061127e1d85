# A server that is another one each time it comes back: PORT, MOUNT_PORT and SOURCE name it.
. /lab/lib.sh
. /lab/load.sh

agreed() { [ "$(grep -o 'neg send/recv=[0-9/]*' $TRACING/trace | tail -n 1)" = "neg send/recv=$1" ]; }

# host_agreed SIZES INVALIDATION: what the kernel must have agreed to with the server that there is
# now, after some work with it. INVALIDATION is "remote" or "local".
host_agreed() {
  wait_for 120 agreed "$1" || die "not agreed on $1: $(grep 'neg send/recv' $TRACING/trace | tail -n 1)"
  trace_clear
  load_moved
  local remote local
  remote=$(trace_count xprtrdma_mr_reminv)
  local=$(trace_count xprtrdma_mr_localinv)
  echo "$1: remote invalidations $remote, local $local"
  case $2 in
    remote) [ "$remote" -gt 0 ] || die 'the server invalidated nothing' ;;
    local)
      same 'remote invalidations' 0 "$remote"
      [ "$local" -gt 0 ] || die 'nothing was invalidated'
      ;;
  esac
  step "agreed on $1, $2 invalidation"
}

step 'siw link'
siw_up
trace_on xprtrdma_inline_thresh xprtrdma_mr_reminv xprtrdma_mr_localinv
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
load_start
echo '@@loaded'
obey
load_end
echo "$(load_errors) changes of names came again"
check_mountstats
step 'unmount'
umount /mnt || die umount
exit 0
