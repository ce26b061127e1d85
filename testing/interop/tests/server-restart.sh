# A server that goes away and comes back, time after time: PORT, MOUNT_PORT and SOURCE name it. The
# host ends, kills and starts it.
. /lab/lib.sh
. /lab/load.sh

# Bytes of the one write that is lost in part.
LOST=25165824

step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
mkdir /mnt/dir
echo before >/mnt/dir/file || die write
exec 5<>/mnt/dir/file
sync

step 'the server ends and starts again, with nothing under way'
echo '@@restart'
obey
drop_caches
same 'a file by its name' before "$(cat /mnt/dir/file)"
read -r line <&5
same 'a file that was open' before "$line"
echo after >&5 || die 'write to a file that was open'
exec 5>&-
same 'after the restart' 'before after' "$(tr '\n' ' ' </mnt/dir/file | sed 's/ $//')"
rm -r /mnt/dir || die remove

# A server that ends in good order answers what it has begun: nothing comes twice.
step 'the server ends under load, again and again'
load_start
echo '@@loaded'
obey
same 'errors after ends in good order' 0 "$(load_errors)"

# Which calls it has executed is known to a server until it is killed. Two changes of names are under
# way at a time, and at every other kill all those of a burst: they are executed again, and fail.
step 'the server is killed under load, again and again'
echo '@@killing'
obey
load_end
errors=$(load_errors)
echo "$errors changes of names came again that were made before the server was killed"
[ "$errors" -gt 0 ] || die 'no call came again'
[ "$errors" -le $((2 * KILLS + KILLS / 2 * BURST)) ] || die "$errors errors after $KILLS kills"

# One write of O_DIRECT is many UNSTABLE WRITEs and then one COMMIT. The host kills the server before
# they are all there, and takes away what came: just what a crash of its machine might do.
step 'the server is killed amid one large write, and what it had is lost'
dd if=/dev/urandom of=/tmp/data bs=1M count=$((LOST / 1048576)) 2>/dev/null
: >/mnt/lost || die create
sync
echo "@@writing $LOST"
dd if=/tmp/data of=/mnt/lost bs=$LOST iflag=fullblock oflag=direct conv=notrunc 2>/dev/null || die write
obey
drop_caches
cmp /tmp/data /mnt/lost || die 'read back'
echo "@@sum $(sum_of /tmp/data)"

check_mountstats
echo "$(connects) connections"
[ "$(connects)" -ge $((RESTARTS + KILLS + 3)) ] || die "only $(connects) connections"
step 'unmount'
umount /mnt || die umount
exit 0
