# The kernel's NFS server over TCP with transfers of 1 MiB, until the host says "stop".
. /lab/lib.sh

TRANSFER=1048576
siw_up
nfsd_up --grace-time 10
echo '@@ready'
read -r _ <&3
