# The guest by itself: the kernel's own client and server talk over siw, so that
# what fails afterwards is not the fault of the guest.
. /lab/lib.sh
step 'siw link'
siw_up
step 'kernel server'
nfsd_up
mkdir -p /export/x
step 'kernel client, version 3'
mount_v3 $GUEST_IP 20049 20048 /export/x
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
dd if=/tmp/data of=/mnt/f bs=1M conv=fsync 2>/dev/null || die write
drop_caches
cmp /tmp/data /mnt/f || die 'read back'
cmp /tmp/data /export/x/f || die 'what the server holds'
check_mountstats
umount /mnt || die umount
