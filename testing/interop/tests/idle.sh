# A connection that is closed because nobody uses it, and used again: PORT, MOUNT_PORT and SOURCE name
# the server. The host looks after the connection and says "stop" when it is gone.
. /lab/lib.sh
. /lab/load.sh

step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
dd if=/dev/urandom of=/tmp/data bs=1M count=2 2>/dev/null
exec 5<>/mnt/open
for ((round = 1; round <= ROUNDS; round++)); do
  step "idle, for the $round. time"
  drop_caches
  before=$(connects)
  echo '@@idle'
  obey
  same 'connections while idle' "$before" "$(connects)"
  step 'used again'
  echo "line $round" >&5 || die 'write to a file that was open'
  cp /tmp/data "/mnt/data-$round" || die write
  drop_caches
  cmp /tmp/data "/mnt/data-$round" || die 'read back'
  mkdir "/mnt/dir-$round" || die mkdir
  mv "/mnt/dir-$round" "/mnt/moved-$round" || die rename
  rmdir "/mnt/moved-$round" || die rmdir
  [ "$(connects)" -gt "$before" ] || die 'no new connection'
done
same 'lines of the file that was open' "$ROUNDS" "$(wc -l </mnt/open)"
exec 5>&-
check_mountstats
step 'unmount'
umount /mnt || die umount
exit 0
