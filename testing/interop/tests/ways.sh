# Linux' NFS client on the same files, by several ways to them, in turn.
#
#   WAYS     NAME:PROTO:PORT:MOUNT_PORT, one for each way
#   ROUNDS   how often each piece of work is timed, after a round that is checked instead
#   MIB      size of the file that is written and read
#   STATS    how often the attributes of an open file are asked for
. /lab/lib.sh

TRANSFER=1048576

# attach NAME PROTO PORT MOUNT_PORT: mounts the export on /mnt/NAME, in version 3 as all ways have it. No attributes are
# cached, so that each question for them is a GETATTR.
attach() {
  mkdir -p "/mnt/$1" || die mkdir
  local options="vers=3,nolock,actimeo=0,proto=$2,port=$3,mountproto=tcp,mountport=$4,rsize=$TRANSFER,wsize=$TRANSFER"
  mount.nfs 10.0.2.2:/export "/mnt/$1" -o "$options" || die "mount of $1"
  grep " /mnt/$1 " /proc/mounts
  same "transfers of $1" "rsize=$TRANSFER,wsize=$TRANSFER" \
    "$(grep " /mnt/$1 " /proc/mounts | grep -o 'rsize=[0-9]*,wsize=[0-9]*')"
}

# getattrs NAME: how many GETATTRs were made since the mount.
getattrs() { sed -n "\, mounted on /mnt/$1 ,,\$s/^[[:space:]]*GETATTR: \([0-9]*\) .*/\1/p" /proc/self/mountstats | head -n 1; }

step 'siw link'
siw_up
step 'mounts'
names=()
for way in $WAYS; do
  IFS=: read -r name proto port mount_port <<<"$way"
  attach "$name" "$proto" "$port" "$mount_port"
  names+=("$name")
done
printf '@@machine %d %d %s\n' "$(nproc)" "$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)" "$(uname -r)"
dd if=/dev/urandom of=/tmp/data bs=1M count="$MIB" 2>/dev/null || die 'making data'

work_write() { dd if=/tmp/data of="/mnt/$1/$1" bs=1M conv=fsync 2>/dev/null; }
work_read() { dd if="/mnt/$1/$1" of=/dev/null bs=1M 2>/dev/null; }
# By bash itself, of a file that is open: no other program is started, and no name is looked up.
work_getattr() {
  local i
  for ((i = 0; i < STATS; i++)); do [ -s /dev/fd/7 ] || return; done
}

for ((round = 0; round <= ROUNDS; round++)); do
  step "round $round of $ROUNDS"
  for work in write read getattr; do
    for name in "${names[@]}"; do
      # Nothing of one piece of work is left to do in the next, and what is read comes from the server.
      drop_caches
      [ $work != getattr ] || exec 7<"/mnt/$name/$name" || die open
      before=$(getattrs "$name")
      begin=$EPOCHREALTIME
      "work_$work" "$name" || die "$work by $name"
      end=$EPOCHREALTIME
      case $work in
        getattr)
          exec 7<&-
          asked=$(($(getattrs "$name") - before))
          [ "$asked" -ge "$STATS" ] && [ "$asked" -le $((STATS + 2)) ] || die "$asked GETATTRs by $name"
          ;;
        read)
          [ $round != 0 ] || { drop_caches && cmp /tmp/data "/mnt/$name/$name"; } || die "other data by $name"
          ;;
      esac
      [ $round = 0 ] || echo "@@took $work $name $((${end/./} - ${begin/./}))"
    done
  done
  for name in "${names[@]}"; do rm "/mnt/$name/$name" || die remove; done
done

step 'unmount'
grep 'xprt:' /proc/self/mountstats
for name in "${names[@]}"; do umount "/mnt/$name" || die umount; done
exit 0
