# A server whose connection is cut time after time, in every way there is: PORT, MOUNT_PORT and SOURCE
# name it.
. /lab/lib.sh
. /lab/load.sh

# A stampede is four reads of 1 MiB, each in READs of 16 KiB: more than a server grants credits for.
# The files are opened before, because that takes replies.
host_open() {
  exec 6</mnt/load/still 7</mnt/load/still 8</mnt/load/still 9</mnt/load/still || die open
}
host_stampede() {
  local reader
  for reader in 6 7 8 9; do
    dd bs=$WRITTEN count=1 iflag=direct <&$reader 2>/dev/null | cmp - $LOAD/still ||
      die 'what was read in the stampede differs' &
  done
}

step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE" rsize=16384,wsize=16384
step 'work with a connection that is cut again and again'
load_start
echo '@@loaded'
obey
# What is removed while it is open stays under another name.
exec 6<&- 7<&- 8<&- 9<&-
load_end
# The server answers a call that comes again without executing it again.
same 'changes of names that came again' 0 "$(load_errors)"
check_mountstats
echo "$(connects) connections"
[ "$(connects)" -gt "$CUTS" ] || die "only $(connects) connections after $CUTS cuts"
step 'unmount'
umount /mnt || die umount
exit 0
