# Work of Linux' client on a server of version 4, beside that of work.sh:  . /lab/work4.sh
#
#   OWNER_KEPT   1 where the server gives files to other users
export LC_ALL=C

as_user() { su -s /bin/bash user -c "$1" 2>/dev/null; }

# All of it, in /mnt/w.
work_of_4() {
  work_sizes
  work_attributes
  work_users
  work_opened
  errors_of_operations
}

work_sizes() {
  local f=/mnt/w/f
  (set -C; echo first >/mnt/w/exclusive) || die 'exclusive create'
  (set -C; echo second >/mnt/w/exclusive) 2>/dev/null && die 'exclusive create of an existing file'
  same 'exclusive file' first "$(cat /mnt/w/exclusive)"
  local now mtime
  now=$(date +%s) mtime=$(stat -c %Y /mnt/w/exclusive)
  [ $((now - mtime)) -lt 3600 ] && [ $((mtime - now)) -lt 3600 ] || die "exclusive create left mtime $mtime, now $now"
  printf 'start' >$f
  printf ' more' >>$f || die append
  drop_caches
  printf ' end' >>$f || die append
  same appended 'start more end' "$(cat $f)"
  truncate -s 5 $f || die truncate
  drop_caches
  same truncated start "$(cat $f)"
  truncate -s 100000 $f || die 'truncate to a larger size'
  drop_caches
  same 'grown size' 100000 "$(stat -c %s $f)"
  same 'zeros behind' 99995 "$(tail -c +6 $f | tr -dc '\0' | wc -c)"
  : >$f || die 'truncate by opening'
  same 'empty size' 0 "$(stat -c %s $f)"
  printf tail | dd of=/mnt/w/holes bs=1 seek=5368709120 conv=notrunc 2>/dev/null || die 'sparse write'
  drop_caches
  same 'sparse size' 5368709124 "$(stat -c %s /mnt/w/holes)"
  same 'sparse tail' tail "$(dd if=/mnt/w/holes bs=4 skip=1342177280 2>/dev/null)"
  # Two processes add lines to one file. Others of this shell, as a server may be, are not waited for.
  local who number both=()
  for who in a b; do
    for ((number = 0; number < 100; number++)); do echo "$who-$number" >>/mnt/w/appended || die append; done &
    both+=($!)
  done
  wait "${both[@]}"
  drop_caches
  for who in a b; do
    for ((number = 0; number < 100; number++)); do echo "$who-$number"; done
  done | sort >/tmp/expected
  sort /mnt/w/appended | diff /tmp/expected - || die 'lines of two processes'
  local long
  long=$(printf 'n%.0s' {1..255})
  : >"/mnt/w/$long" || die 'a name of 255 bytes'
  : 2>/dev/null >"/mnt/w/${long}n" && die 'a name of 256 bytes'
  [ ! -e /mnt/w/missing ] || die 'a missing file is there'
  rmdir /mnt/w 2>/dev/null && die 'rmdir of a directory that is not empty'
  mkfifo /mnt/w/fifo || die mkfifo
  [ -p /mnt/w/fifo ] || die 'the fifo is none'
  echo over >/mnt/w/over
  mv -f /mnt/w/over $f || die 'rename over a file'
  same 'renamed over' over "$(cat $f)"
}

work_attributes() {
  local f=/mnt/w/f before after
  chmod 640 $f || die chmod
  touch -d '2001-02-03 04:05:06' $f || die touch
  drop_caches
  same mode 640 "$(stat -c %a $f)"
  same mtime 981173106 "$(stat -c %Y $f)"
  chmod 4755 $f || die 'chmod of set-user-id'
  same 'set-user-id' 4755 "$(stat -c %a $f)"
  if [ "$OWNER_KEPT" = 1 ]; then
    chown 1000:1000 $f || die chown
    drop_caches
    same owner 1000:1000 "$(stat -c %u:%g $f)"
  fi
  # What the client believes after its own changes is what the server says.
  before=$(stat -c %Z $f)
  sleep 1.1
  ln $f /mnt/w/f2 && echo more >>$f && rm /mnt/w/f2 || die 'changes of a file'
  before="$before $(stat -c '%h %s %Y %Z' $f)"
  drop_caches
  after=$(stat -c '%h %s %Y %Z' $f)
  same 'attributes after changes' "${before#* }" "$after"
  same 'links' 1 "${after%% *}"
  [ "${before%% *}" -lt "${after##* }" ] || die 'ctime has not changed'
  before=$(stat -c '%h %Y %Z' /mnt/w)
  sleep 1.1
  mkdir /mnt/w/counted && rmdir /mnt/w/sub 2>/dev/null
  after=$(stat -c '%h %Y %Z' /mnt/w)
  drop_caches
  same 'attributes of a directory' "$after" "$(stat -c '%h %Y %Z' /mnt/w)"
  [ "${before##* }" -lt "${after##* }" ] || die 'ctime of a directory has not changed'
  df /mnt || die df
  [ "$(df -P /mnt | awk 'NR == 2 {print ($2 > 0 && $2 >= $4)}')" = 1 ] || die 'df makes no sense'
  [ "$(stat -f -c '%l %s' /mnt)" != '0 0' ] || die 'statfs makes no sense'
}

work_users() {
  [ "$OWNER_KEPT" = 1 ] || return
  mkdir -m 777 /mnt/w/users
  as_user 'echo mine >/mnt/w/users/mine' || die 'create by another user'
  drop_caches
  same 'owner of what another user made' 1000:1000 "$(stat -c %u:%g /mnt/w/users/mine)"
  echo secret >/mnt/w/users/secret
  chmod 600 /mnt/w/users/secret
  mkdir -m 700 /mnt/w/users/private
  drop_caches
  as_user 'cat /mnt/w/users/secret' && die 'another user reads what is not theirs'
  as_user 'echo x >/mnt/w/users/secret' && die 'another user writes what is not theirs'
  as_user ': >/mnt/w/users/private/file' && die 'another user enters a private directory'
  as_user 'chmod 777 /mnt/w/users/secret' && die 'another user gives rights away'
  as_user 'chown user /mnt/w/users/mine' || die 'a user may keep what is theirs'
  as_user 'umask 027; mkdir /mnt/w/users/masked && : >/mnt/w/users/masked/file' || die 'mkdir with a umask'
  same 'modes under a umask' '750 640' "$(stat -c %a /mnt/w/users/masked /mnt/w/users/masked/file | paste -sd ' ')"
  same secret secret "$(cat /mnt/w/users/secret)"
}

work_opened() {
  exec 5<>/mnt/w/open
  echo still >&5
  rm /mnt/w/open || die 'rm of an open file'
  drop_caches
  echo here >&5 || die 'write to a removed file'
  same 'removed file' 'still here' "$(tr '\n' ' ' </proc/self/fd/5 | sed 's/ $//')"
  exec 5>&-
  # The client removes its own placeholder in the background.
  no_placeholder() { ! ls -A /mnt/w | grep -q '^\.nfs'; }
  wait_for 10 no_placeholder || die 'the .nfs placeholder stays'
}

# Of two that create a file exclusively, one does.
exclusively_between() {
  local number directory makers
  for number in {1..20}; do
    makers=()
    for directory in "$@"; do
      (set -C; : >"$directory/one-$number") 2>/dev/null && echo "$directory" >>/tmp/made-$number &
      makers+=($!)
    done
    wait "${makers[@]}"
    same "makers of file $number" 1 "$(wc -l </tmp/made-$number)"
  done
  rm /tmp/made-*
}

# Operations that failed, of all mounts, are those that were to fail: of names that are missing or there, of rights that are
# not, of locks that others have, and at the end of a file (SEEK). Two processes that open and close a file at the same time have
# one open owner, and a CLOSE may have an old state id then. Linux 6.12 asks for READ_PLUS over TCP, and does not again when it learns
# that there is none.
errors_of_operations() {
  local errors other
  errors=$(awk '/^device/ {nfs = / fstype nfs4? /} nfs && /^\t +[A-Z_]+:/ && $NF > 0 {print $1, $NF}' /proc/self/mountstats)
  echo "errors of operations: ${errors//$'\n'/, }"
  other=$(grep -vE '^(OPEN|LOOKUP|CLOSE|LOCK|LOCKT|SETATTR|CREATE|REMOVE|GETXATTR|SEEK|READ_PLUS):' <<<"$errors")
  [ -z "$other" ] || die "operations failed: ${other//$'\n'/, }"
}

# The log of the kernel has no complaint.
kernel_is_content() {
  step 'kernel log'
  dmesg | grep -iE 'nfs|rpc|siw|rxe' | tail -n 20
  local complaints
  complaints=$(dmesg | grep -E 'NFS: (state|server|nfs4)|NFS4?:.*(error|fail|unhandled)|xprtrdma.*fail|BUG:|WARNING:|blocked for more')
  [ -z "$complaints" ] || die "the kernel complains: $complaints"
}
