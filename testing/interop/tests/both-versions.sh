# A server that has clients of version two at the same time: PORT, MOUNT_PORT and SOURCE name it.
. /lab/lib.sh
. /lab/load.sh

# host_holds FILE SUM: what another client has put there. Nothing of it is cached.
host_holds() { same "what is in $1" "$2" "$(sum_of "/mnt/$1")"; }

step 'siw link'
siw_up
step 'mount'
mount_v3 10.0.2.2 "$PORT" "$MOUNT_PORT" "$SOURCE"
load_start
echo '@@loaded'
obey
load_end
same 'changes of names that came again' 0 "$(load_errors)"
check_mountstats
step 'unmount'
umount /mnt || die umount
exit 0
