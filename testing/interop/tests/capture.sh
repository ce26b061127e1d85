# A little of everything, for the capture: PORT, MOUNT_PORT and SOURCE name the server.
. /lab/lib.sh
step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
step 'files'
dd if=/dev/urandom of=/tmp/data bs=1k count=1025 2>/dev/null
cp /tmp/data /mnt/data || die write
mkdir /mnt/dir || die mkdir
for i in {1..30}; do echo "$i" >"/mnt/dir/a rather long name for the file number $i" || die create; done
ln -s dir/1 /mnt/symlink || die symlink
ln /mnt/data /mnt/hardlink || die link
mv /mnt/hardlink /mnt/dir/renamed || die rename
drop_caches
cmp /tmp/data /mnt/dir/renamed || die 'read back'
same listing 31 "$(ls -l /mnt/dir | grep -c '^-')"
same readlink dir/1 "$(readlink /mnt/symlink)"
df /mnt || die df
rm -r /mnt/dir /mnt/data /mnt/symlink || die remove
check_mountstats
step 'unmount'
umount /mnt || die umount
