# A server that goes away and comes back, twice: PORT, MOUNT_PORT and SOURCE name it. The host ends
# and starts it when told to, and says "back".
. /lab/lib.sh
until_back() {
  local line
  read -r -t 120 line <&3 && [ "$line" = back ] || die "the server is not back: '$line'"
}

step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
mkdir /mnt/dir
echo before >/mnt/dir/file || die write
exec 5<>/mnt/dir/file
sync

step 'the server ends and starts again'
echo '@@restart'
until_back
drop_caches
same 'a file by its name' before "$(cat /mnt/dir/file)"
read -r line <&5
same 'a file that was open' before "$line"
echo after >&5 || die 'write to a file that was open'
exec 5>&-
same 'after the restart' 'before after' "$(tr '\n' ' ' </mnt/dir/file | sed 's/ $//')"

step 'the server is killed while 64 MiB are written'
dd if=/dev/urandom of=/tmp/data bs=1M count=64 2>/dev/null
echo '@@writing'
dd if=/tmp/data of=/mnt/data bs=1M conv=fsync 2>/dev/null || die write
until_back
drop_caches
cmp /tmp/data /mnt/data || die 'read back'
echo "@@sum $(sum_of /tmp/data)"
check_mountstats
step 'unmount'
umount /mnt || die umount
exit 0
