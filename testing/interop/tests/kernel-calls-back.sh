# The kernel's NFS server and its callbacks, doing what the host asks for until it says "stop".
. /lab/lib.sh

siw_up
# In a grace period there are no delegations: version 3 would bring lockd with its own, and that of nfsd
# is as short as can be.
nfsd_up --no-nfs-version 3 --grace-time 10
echo '@@ready'
while read -r command set count <&3; do
  case $command in
    make)
      # make SET COUNT: that many files
      for ((i = 1; i <= count; i++)); do echo old >"/export/$set-$i"; done
      echo '@@done'
      ;;
    channel)
      # What nfsd thinks of the callback channel of its client, such as UP or DOWN
      echo "@@channel $(sed -n 's/^callback state: *//p' /proc/fs/nfsd/clients/*/info)"
      ;;
    write)
      # write SET COUNT: somebody else writes to all of them at once, for which each delegation is to be
      # given back; and how many seconds it takes
      start=$SECONDS
      writers=()
      for ((i = 1; i <= count; i++)); do
        { echo new >>"/export/$set-$i"; } &
        writers+=($!)
      done
      for writer in "${writers[@]}"; do wait "$writer" || die 'a file cannot be written'; done
      echo "@@written $((SECONDS - start))"
      ;;
    stop) break ;;
    *) die "unknown command $command" ;;
  esac
done
dmesg | grep -iE 'svcrdma|siw|nfsd|rpc|BUG|WARN' | tail -n 30
exit 0
