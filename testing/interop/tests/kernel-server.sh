# The kernel's NFS server, doing what the host asks for until it says "stop".
. /lab/lib.sh

# nfsd_again [BYTES]: it ends, and comes back with these inline sizes.
nfsd_again() {
  nfsd_ends
  while_down
  [ -z "$1" ] || echo "$1" >/proc/sys/sunrpc/svc_rdma/max_req_size || die "no inline size $1"
  rpc.nfsd 4 || die 'nfsd does not start again'
  wait_for 20 listen_again || die 'nfsd does not listen on RDMA again'
}
# nfsd_ends: when it does not, the log tells what each thread waits for that may have a part in it.
nfsd_ends() {
  rpc.nfsd 0 &
  wait_for 90 is_gone $! || { waiting; die 'nfsd does not end'; }
  wait $! || die 'nfsd cannot be told to end'
}
is_gone() { ! kill -0 "$1"; }
waiting() {
  local task name state
  for task in /proc/[0-9]*/task/*; do
    name=$(cat "$task/comm") state=$(sed -n 's/^State:.//p' "$task/status")
    case $name,$state in
      *nfsd,* | *,D*)
        echo "--- $name, $state"
        cat "$task/stack"
        ;;
    esac
  done
  rdma resource show qp
  rdma resource show cm_id
}
listen_again() { echo 'rdma 20049' >/proc/fs/nfsd/portlist; }
while_down() { :; }

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
    restart)
      # restart BYTES: the kernel's server comes back with these inline sizes
      nfsd_again "$argument"
      echo '@@done'
      ;;
    lose)
      # lose BYTES: it comes back, and of a file of so many bytes that was being written to the
      # inbox nothing is left, as after a crash of the machine
      while_down() {
        local file
        for file in /export/inbox/.*.rpcrdma-*; do
          [ -f "$file" ] || die 'nothing is being written'
          echo "there are $(stat -c %b "$file") blocks of $file"
          [ "$(stat -c %b "$file")" -lt $((argument / 512)) ] || die 'everything came, and may be committed'
          : >"$file"
        done
      }
      nfsd_again
      while_down() { :; }
      echo '@@done'
      ;;
    tree)
      # tree FOLDER: a checksum of all names and contents in it
      (cd "/export/$argument" && find . -type f | sort | xargs sha256sum) >/tmp/tree
      echo "@@tree $(wc -l </tmp/tree) $(sum_of /tmp/tree)"
      ;;
    stop) break ;;
    *) die "unknown command $command" ;;
  esac
done
dmesg | sed -n '/cut here/,/end trace/p'
dmesg | grep -iE 'svcrdma|siw|nfsd|BUG|WARN' | tail -n 20
exit 0
