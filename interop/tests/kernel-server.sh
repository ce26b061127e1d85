# The kernel's NFS server, doing what the host asks for until it says "stop".
. /lab/lib.sh
siw_up
nfsd_up
mkdir -p /export/shelf/sub/deep /export/inbox
chmod 777 /export/inbox
echo hello >/export/shelf/hello
echo deep >/export/shelf/sub/deep/file
ln -s hello /export/shelf/link
dd if=/dev/urandom of=/export/shelf/big bs=1M count="${BIG_MIB:-64}" 2>/dev/null
echo '@@ready'
while read -r command argument <&3; do
  case $command in
    sum) echo "@@sum $(sum_of "/export/$argument")" ;;
    entries)
      # entries COUNT: that many files in /export/many
      mkdir -p /export/many
      for ((i = 0; i < argument; i++)); do : >"/export/many/entry-$i"; done
      echo '@@done'
      ;;
    stop) break ;;
    *) die "unknown command $command" ;;
  esac
done
dmesg | grep -iE 'svcrdma|siw|nfsd|BUG|WARN' | tail -n 20
exit 0
