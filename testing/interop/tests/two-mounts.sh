# Two mounts of our server that share no cache and no connection change the same file and the same
# directory in turns. All is in this guest.
#
#   TURNS    how many turns each part has
. /lab/lib.sh
. /lab/ours.sh
export LC_ALL=C

# The second address of the guest.
OTHER_IP=10.0.2.16
# Bytes of a record, with its newline, and how many the file has. Bytes of a page of the client's cache.
RECORD=16
RECORDS=3
PAGE=4096

# Times of files are as fine as the kernel's clock tick, of 4 ms: what is changed 20 ms later shows.
mkfifo /run/never
exec 9<>/run/never
pause() { read -rt 0.02 -u 9; }

other_of() { case $1 in a) other=b ;; b) other=a ;; esac; }

# No processes are made to read and write: that would take longer than all the rest.

# records_of FILE: opens it, reads its records to "seen", and closes it.
records_of() {
  local line
  seen=
  exec 7<"$1" || die "open of $1"
  while read -r line <&7; do
    seen+="$line "
  done
  exec 7<&-
}

# write_record FILE NUMBER TEXT: opens it, writes one record, and closes it.
write_record() {
  local skipped
  exec 7<>"$1" || die "open of $1"
  [ "$2" = 0 ] || read -rN $(($2 * RECORD)) -u 7 skipped
  printf "%-$((RECORD - 1))s\n" "$3" >&7 || die "write to $1"
  exec 7>&-
}

# first_of FILE: opens it, reads its first record to "seen", and closes it.
first_of() { read -r seen <"$1" || die "read of $1"; }

step 'siw link'
siw_up
ip addr add $OTHER_IP/24 dev eth0 || die 'no second address'
step 'two mounts'
ours_up /export --allow "$GUEST_IP" --allow $OTHER_IP --squash none
attach /mnt/a "$GUEST_IP" /export nosharecache
attach /mnt/b $OTHER_IP /export nosharecache
[ "$(stat -c %d /mnt/a)" != "$(stat -c %d /mnt/b)" ] || die 'the mounts are one'

step "a record of a file, $TURNS turns"
records=()
for ((record = 0; record < RECORDS; record++)); do
  write_record /mnt/a/file $record start-$record
  records+=("start-$record")
done
who=a
for ((turn = 1; turn <= TURNS; turn++)); do
  pause
  other_of $who
  who=$other
  records_of /mnt/$who/file
  same "what $who reads in turn $turn" "${records[*]} " "$seen"
  records[turn % RECORDS]=$who-$turn
  write_record /mnt/$who/file $((turn % RECORDS)) $who-$turn
  records_of /export/file
  same "on the server, after turn $turn" "${records[*]} " "$seen"
done

# One has opened the file, and has its first page in its cache, when the other writes to that. What it is told
# of the file from before and after its own WRITE to the second page is all it can know that by.
step "a file that is open meanwhile, $TURNS turns"
for ((record = 0; record < PAGE / RECORD; record++)); do
  printf "%-$((RECORD - 1))s\n" b-0
done >/mnt/a/log
for ((turn = 1; turn <= TURNS; turn++)); do
  pause
  exec 5<>/mnt/a/log || die 'open of /mnt/a/log'
  read -rN $PAGE -u 5 page
  same "what a has before turn $turn" "b-$((turn - 1))" "${page%% *}"
  write_record /mnt/b/log 0 b-$turn
  pause
  echo "a-$turn" >&5 || die 'write to an open file'
  exec 5>&-
  pause
  first_of /mnt/a/log
  same "what a reads in turn $turn" b-$turn "${seen%% *}"
  first_of /export/log
  same "on the server, after turn $turn" b-$turn "${seen%% *}"
done
same 'what a wrote to the open file' a-$TURNS "$(tail -c +$((PAGE + 1)) /export/log | head -n 1)"

# One has looked for a name in vain before the other makes it. What it is told of the directory from before and
# after its own MKDIR, for which it looks nothing up, is all it can know that by.
step "names in a directory, $TURNS turns"
mkdir /mnt/a/names || die mkdir
pause
ls /mnt/b/names || die ls
for ((turn = 1; turn <= TURNS; turn++)); do
  [ ! -e "/mnt/a/names/theirs-$turn" ] || die "turn $turn: a sees what is not there yet"
  pause
  : >"/mnt/b/names/theirs-$turn" || die create
  pause
  mkdir "/mnt/a/names/mine-$turn" || die mkdir
  [ -e "/mnt/a/names/theirs-$turn" ] || die "turn $turn: a does not see what b has made"
done
same 'names on the server' $((2 * TURNS)) "$(ls /export/names | wc -l)"
for who in a b; do same "names of $who" $((2 * TURNS)) "$(ls /mnt/$who/names | wc -l)"; done

step 'unmount'
grep 'xprt:' /proc/self/mountstats
umount /mnt/a || die umount
umount /mnt/b || die umount
ours_ends
exit 0
