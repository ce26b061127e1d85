# Open files and a working directory on our server, which somebody on its machine moves; between times the
# server ends and comes back. All is in this guest; the server has the kernel's file handles.
. /lab/lib.sh
. /lab/ours.sh
export LC_ALL=C

# How often the directory is moved while the client is at work.
MOVES=60

serve() { ours_up /disk/export --allow "$GUEST_IP" --squash none; }

# move FROM TO: on the server's machine, not by way of it.
move() { mv "/disk/export/$1" "/disk/export/$2" || die "mv $1 $2"; }

# work WHEN: everything that is open goes on, with nothing of it in a cache of anybody.
work() {
  drop_caches
  echo "$1" >>/tmp/expected
  echo "$1" >&5 || die "$1: write to an open file"
  sync
  same "$1: the open file" "$(cat /tmp/expected)" "$(cat /proc/self/fd/5)"
  same "$1: a file in the working directory" still "$(cat still)"
  same "$1: a file below it" deep "$(cat below/deep)"
  echo new >"new" || die "$1: make a file"
  mv new below/newer || die "$1: move a file"
  same "$1: files below it" 'deep newer' "$(ls below | paste -sd ' ')"
  rm below/newer || die "$1: remove a file"
  mkdir sub && rmdir sub || die "$1: make and remove a directory"
  touch . || die "$1: touch the working directory"
}

step 'siw link'
siw_up
step 'mount'
new_disk /disk 64 noatime
mkdir -p /disk/export /disk/outside
serve
grep 'file handles of the kernel' /run/listening || die 'not the file handles of the kernel'
attach /mnt "$GUEST_IP" /export
mkdir -p /mnt/home/project/work/below /mnt/other/very/deep || die mkdir
cd /mnt/home/project/work || die cd
echo still >still
echo deep >below/deep
: >open
exec 5<>open
: >/tmp/expected
work 'at first'

step 'moved'
move home/project/work home/project/renamed
work renamed
move home/project/renamed other/very/deep/work
work 'moved to another directory'
move other/very other/old
work 'the directory above it moved'
mkdir -p /disk/export/home/project/work/below
echo other >/disk/export/home/project/work/still
work 'something else has its name'
mv /disk/export/other/old/deep/work/open /disk/export/home/open || die mv
work 'the open file moved elsewhere'

step 'moved, and the server ends and comes back'
move other/old/deep/work home/again
ours_ends
serve
work 'ended, and came back'
ours_ends
move home/again home/project/again
mkdir /disk/export/home/again
serve
work 'moved while there was no server'
move home/project/again other/again
ours_killed
move other/again other/old/again
serve
work 'killed, and moved before it came back'

step "moved $MOVES times while it is used"
move other/old/again home/swing
(
  for ((i = 0; i < MOVES / 2; i++)); do
    mv /disk/export/home/swing /disk/export/other/swing && mv /disk/export/other/swing /disk/export/home/swing ||
      exit 1
  done
) &
mover=$!
rounds=0
while kill -0 $mover 2>/dev/null; do
  rounds=$((rounds + 1))
  work "while it moves $rounds"
done
wait $mover || die 'moving fails'
echo "worked $rounds times meanwhile"
[ "$rounds" -gt 0 ] || die 'nothing was done meanwhile'
same 'by its new name' still "$(cat /mnt/home/swing/still)"
cmp /tmp/expected /disk/export/home/open || die 'the open file on the server'
same 'what has the old name' "$(printf '%s\n' below still)" "$(ls /disk/export/home/project/work)"
same 'in the other below' '' "$(ls /disk/export/home/project/work/below)"

step 'moved out of the export'
mv /disk/export/home/swing /disk/outside/swing || die mv
gone() { ! ls . && ls . 2>&1 | grep -q 'Stale file handle'; }
wait_for 10 gone || die 'a directory outside the export is still served'
(: >made) 2>/dev/null && die 'something was made outside the export'
[ ! -e /disk/outside/swing/made ] || die 'something was made outside the export'

step 'unmount'
exec 5>&-
cd /
check_mountstats
umount /mnt || die umount
ours_ends
umount /disk || die 'something of the disk is still open'
exit 0
