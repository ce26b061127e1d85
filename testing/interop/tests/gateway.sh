# Linux' NFS client at work on a server behind a gateway, in several versions of NFS one after the other, and then
# under load while gateway and server end and come back.
#
#   VERSIONS   of NFS, as vers= has them
#   LOADED     those that are used under load
#
# The other variables are those of work.sh.
. /lab/lib.sh
. /lab/load.sh
. /lab/work.sh

step 'siw link'
[ "$PROTO" != rdma ] || siw_up
work_begin
for version in $VERSIONS; do
  work_in "$version"
done

for version in $LOADED; do
  step "version $version under load"
  mount_as "$version" /mnt
  rm -rf $LOAD
  load_start
  echo '@@loaded'
  obey
  load_end
  echo "@@errors $(load_errors)"
  umount /mnt || die umount
done
exit 0
