# File systems on which inode numbers do not identify a file, or on which the positions of directory entries shift, served
# and copied by our program. It runs in namespaces of its own (network, mounts, processes), as root.
#
#   WORK       an empty directory, of a file system with hard links
#   PROGRAM    our program
set -eu
export LC_ALL=C

# The table of handles is for the others: for btrfs there are those of the kernel.
NAMES='overlay union unionfs bindfs'
MANY=2000

die() {
  printf 'failed: %s\n' "$*"
  [ ! -e "$WORK/serve.log" ] || tail -n 30 "$WORK/serve.log"
  exit 1
}

step() { printf -- '--- %s\n' "$*"; }

# wait_for COMMAND...: until it succeeds; a minute at most.
wait_for() {
  end=$(($(uptime_seconds) + 60))
  until "$@" >/dev/null 2>&1; do
    [ "$(uptime_seconds)" -lt "$end" ] || die "this does not come about: $*"
    sleep 0.1
  done
}

uptime_seconds() { cut -d . -f 1 /proc/uptime; }

# same WHAT EXPECTED SEEN
same() { [ "$2" = "$3" ] || die "$1: expected '$2', seen '$3'"; }

# write FILE: its content is its name.
write() { printf '%s\n' "${1##*/}" >"$1"; }

url() { printf 'nfs://127.0.0.1/%s' "$1"; }

# copied EXPORT TIME: a copy of the export is what is there.
copied() {
  "$PROGRAM" get -aqT "$(url "$1")" "$WORK/got/$1-$2" || die "get of $1 $2"
  diff -r "$WORK/$1" "$WORK/got/$1-$2" || die "$1 $2: the copy is another"
}

step 'file systems'
ip link set lo up
cd "$WORK"
mkdir got overlay union unionfs bindfs below low high one two first second btrfs exfat
for branch in low high one two first second; do
  mount -t tmpfs none $branch
done
mkdir high/files high/work low/d high/files/d
# On each branch are files of the same inode numbers.
for n in $(seq 30); do
  for branch in low high/files one two first second; do
    write $branch/${branch%/files}$n
  done
done
write low/d/below
write high/files/d/above
mount -t overlay -o lowerdir=low,upperdir=high/files,workdir=high/work,xino=off none overlay || die 'no overlayfs'
mergerfs -o inodecalc=passthrough one:two union || die 'no mergerfs'
unionfs-fuse -o cow,use_ino first=RW:second=RO unionfs || die 'no unionfs'
bindfs -o attr_timeout=0,entry_timeout=0,negative_timeout=0 below bindfs || die 'no bindfs'
for n in $(seq 30); do write below/f$n; done
truncate -s 256M disk
mkfs.btrfs -q disk || die 'mkfs.btrfs'
mount -t btrfs -o loop disk btrfs || die 'no btrfs'
btrfs -q subvolume create btrfs/sub || die 'no subvolume'
# The three have files of the same inode numbers, with two names each.
for dir in btrfs btrfs/sub; do
  write $dir/f
  ln $dir/f $dir/link
done
btrfs -q subvolume snapshot btrfs/sub btrfs/snapshot || die 'no snapshot'
echo changed >btrfs/snapshot/f
echo sub >btrfs/sub/f
# The server of exFAT takes no file for its disk, and gives each spelling of a name an inode number.
truncate -s 64M cards
mkfs.exfat cards >/dev/null || die 'mkfs.exfat'
CARD=$(losetup --find --show cards) || die 'no loop device'
trap 'losetup --detach $CARD' EXIT
mount.exfat-fuse $CARD exfat >/dev/null 2>&1 || die 'no exFAT'
mkdir -p cases/Dir cases/dir
write cases/Makefile
write cases/makefile
write cases/Dir/below
write cases/dir/too

serve() {
  "$PROGRAM" serve /overlay="$WORK/overlay" /union="$WORK/union" /unionfs="$WORK/unionfs" /bindfs="$WORK/bindfs" /btrfs="$WORK/btrfs" \
    /exfat="$WORK/exfat" /cases="$WORK/cases" --squash none --state-dir "$WORK/state" >listening 2>>serve.log &
  SERVER=$!
  wait_for grep -q ^listening listening
}

step 'server'
serve
same 'tables of handles' 5 "$(grep -o 'a table of file handles' listening | wc -l)"
for name in $NAMES; do copied $name first; done

step 'copies to them'
mkdir -p new/d
for n in $(seq 30); do
  write new/new$n
  write new/d/low$n
done
for name in $NAMES; do
  "$PROGRAM" put -aqT new "$(url $name)/new" || die "put to $name"
  diff -r new $name/new || die "$name: the copy is another"
done
# The first write copies a file of the lower layer.
echo again >new/again
"$PROGRAM" put -q new/again "$(url overlay)/low7" || die 'put over a file of the lower layer'
"$PROGRAM" chmod 600 "$(url overlay)/low8" || die chmod
same 'what chmod changes' low8 "$(find overlay -perm 600 -printf '%f\n')"
for name in $NAMES; do copied $name written; done

step 'the server comes back'
kill $SERVER
wait $SERVER || die "it ended with status $?"
serve
for name in $NAMES; do copied $name restarted; done

step 'files that are made again with their inode numbers'
"$PROGRAM" ls -l "$(url bindfs)" >/dev/null || die ls
for n in $(seq 30); do
  ln below/f$n below/spare
  rm bindfs/f$n
  mv below/spare below/f$n
  echo "again $n" >below/f$n
done
# What was open gets another name in FUSE, until the server closes it.
none_is_hidden() { [ "$(ls -A bindfs | grep -c '^[.]fuse_hidden')" = 0 ]; }
wait_for none_is_hidden
copied bindfs again
none_is_open() { ! ls -l /proc/$SERVER/fd | grep -q 'deleted'; }
wait_for none_is_open

step 'many files are listed and removed'
for name in $NAMES; do
  mkdir $name/many
  (cd $name/many && seq $MANY | xargs touch)
  same "entries of $name" $MANY "$("$PROGRAM" ls "$(url $name)/many" | wc -l)"
  "$PROGRAM" rm -r "$(url $name)/many" || die "rm of $name"
  [ ! -e $name/many ] || die "$name: $(ls $name/many | wc -l) files are left"
done

step 'subvolumes and snapshots'
copied btrfs first
inode() { stat -c %i "got/btrfs-first/$1"; }
for dir in . sub snapshot; do
  same "names of one file in $dir" "$(inode $dir/f)" "$(inode $dir/link)"
done
[ "$(inode f)" != "$(inode sub/f)" ] && [ "$(inode sub/f)" != "$(inode snapshot/f)" ] || die 'files became one'

step 'two names that are one at the destination'
# copy_of_cases TO COMMAND...: of each two names one is copied, whole, and the other is an error.
copy_of_cases() {
  to=$1
  shift
  for time in first second; do
    if "$PROGRAM" "$@" >out 2>&1; then die "$1, the $time time: two names became one, status 0"; fi
    same "collisions of $1" 2 "$(grep -c 'something else of this copy has that name' out)"
  done
  # Which of the two comes first is not said.
  same "entries of $1" 'dir makefile' "$(ls "$to" | tr A-Z a-z | sort | xargs)"
  same "content of $1" makefile "$(tr A-Z a-z <"$to/makefile")"
  case $(ls "$to/dir") in below | too) ;; *) die "$1: two directories became one" ;; esac
}
copy_of_cases exfat/got get -rT "$(url cases)" exfat/got
copy_of_cases exfat/put put -rT cases "$(url exfat)/put"
copy_of_cases exfat/cp cp -rT "$(url cases)" "$(url exfat)/cp"
rm -r cases/Makefile cases/Dir
# (A server that renames to another spelling of a file that it has open ends exfat-fuse 1.3.)
"$PROGRAM" get -rT --delete "$(url cases)" exfat/got || die 'get after a change of case'
same 'content after a change of case' makefile "$(cat exfat/got/makefile)"
same 'entries after a change of case' 'dir makefile' "$(ls exfat/got | tr A-Z a-z | sort | xargs)"
same 'directory after a change of case' too "$(ls exfat/got/dir)"

step 'an export that is made again'
fusermount3 -u -z bindfs || umount -l bindfs
"$PROGRAM" ls "$(url bindfs)" >/dev/null 2>&1 || :
bindfs below bindfs || die 'no bindfs'
copied bindfs remounted

kill $SERVER
wait $SERVER || die "the server ended with status $?"
