# Linux' NFS client, version 4, at work on our server over RDMA and over TCP.
#
#   TCP_PORT   where it listens for TCP; PORT is where it does for RDMA
#   LARGE      how many entries the directory "large" has
#
# The other variables are those of work.sh.
. /lab/lib.sh
. /lab/work.sh
. /lab/work4.sh
. /lab/locks.sh
export LC_ALL=C

RDMA_PORT=$PORT

# over PROTOCOL: what is mounted from now on.
over() {
  PROTO=$1
  case $1 in rdma) PORT=$RDMA_PORT ;; tcp) PORT=$TCP_PORT ;; esac
}

# Each version has all of it once, and each transport.
work_more() {
  case $PROTO-$version in
    rdma-4.1 | tcp-4.2) return ;;
  esac
  work_of_4
}

work_large() {
  step "list $LARGE entries"
  same 'names' "$LARGE" "$(ls -f /mnt/large | grep -c '^entry-')"
  same 'no name twice' "$LARGE" "$(ls -f /mnt/large | grep '^entry-' | sort -u | wc -l)"
  drop_caches
  same 'long listing' "$LARGE" "$(ls -l /mnt/large | grep -c '^-.* entry-')"
  step 'grow and shrink that directory'
  local number
  for number in {1..300}; do : >"/mnt/large/guest-$number" || die create; done
  drop_caches
  same 'names now' $((LARGE + 300)) "$(ls -f /mnt/large | grep -cE '^(entry|guest)-')"
  rm /mnt/large/guest-* || die 'removing from the large directory'
  same 'names at last' "$LARGE" "$(ls -f /mnt/large | grep -cE '^(entry|guest)-')"
}

# Two mounts that share nothing: clients of their own, as each minor version is one.
work_between() {
  step "locks of two clients, over $1 and $2"
  over "$1"
  mount_as 4.2 /mnt nosharecache
  over "$2"
  mount_as 4.1 /other nosharecache
  mkdir /mnt/w || die mkdir
  locks_between /mnt/w /other/w
  exclusively_between /mnt/w /other/w
  rm -r /mnt/w || die remove
  errors_of_operations
  umount /other || die umount
  umount /mnt || die umount
}

step 'siw link'
siw_up
work_begin
for protocol in rdma tcp; do
  over $protocol
  for version in 4.2 4.1; do
    step "version $version over $protocol"
    OTHER=4.1
    [ $version = 4.2 ] || OTHER=4.2
    work_in $version
  done
done

over rdma
step 'a large directory'
mount_as 4.2 /mnt
work_large
umount /mnt || die umount

work_between rdma tcp

step 'locks of programs on the server'
over rdma
mount_as 4.2 /mnt
: >/mnt/local-lock || die create
locks_with_server /mnt/local-lock
rm /mnt/local-lock
umount /mnt || die umount

kernel_is_content
exit 0
