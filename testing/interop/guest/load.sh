# Work on /mnt that goes on in the background while the host does its worst:  . /lab/load.sh
#
# Each job of the load does the same thing round after round, with data or names of its own, and
# fails the test by itself when something goes wrong. In the end everything is compared.

export LC_ALL=C

LOAD=/tmp/load

# Bytes of a file that the writer writes, and files it has at a time. What is read at a time.
WRITTEN=1048576
WRITTEN_FILES=8
READ=262144

# Directories that a burst makes at once.
BURST=8

# load_start: makes /mnt/load and sets the jobs to work. /mnt/noise holds 4 MiB of noise.
load_start() {
  mkdir -p $LOAD/rounds /mnt/load/names /mnt/load/exclusive /mnt/load/kept || die 'making the directories of the load'
  local number
  for ((number = 1; number <= BURST; number++)); do
    mkdir -p /mnt/load/burst/$number || die 'making the directories of a burst'
  done
  : >$LOAD/errors
  cp /mnt/noise $LOAD/noise || die 'reading the noise'
  head -c $WRITTEN $LOAD/noise >$LOAD/still
  cp $LOAD/still /mnt/load/still || die 'making the file that is read'
  # Another one, because the kernel reads nothing of a file while it makes a link to it.
  : >/mnt/load/linked || die 'making the file that is linked'
  sync
  local job
  for job in writes stable reads names kept exclusive; do
    echo 0 >$LOAD/rounds/$job
    load_job $job &
  done
  for job in $LOAD/rounds/*; do
    load_wait "$job" 1
  done
}

load_job() {
  local job=$1 round=0
  until [ -e $LOAD/stop ]; do
    round=$((round + 1))
    "load_$job" $round
    echo $round >$LOAD/rounds/$job
  done
}

# written ROUND OPERAND...: what the writer writes in a round.
written() {
  local round=$1
  shift
  dd if=$LOAD/noise iflag=skip_bytes,fullblock skip=$((round * 4099 % 1500000)) bs=$WRITTEN count=1 \
    "$@" 2>$LOAD/dd
}

# UNSTABLE WRITEs, and a COMMIT.
load_writes() {
  written "$1" of=/mnt/load/written-$(($1 % WRITTEN_FILES)) conv=fsync ||
    die "write of round $1: $(cat $LOAD/dd)"
  printf '@@note written %d\n' "$1"
}

# Small WRITEs that are answered only when they are stable.
load_stable() {
  printf 'record %08d\n' "$1" | dd of=/mnt/load/journal bs=16 oflag=append,sync conv=notrunc \
    2>$LOAD/dd-stable || die "stable write of round $1: $(cat $LOAD/dd-stable)"
  printf '@@note stable %d\n' "$1"
}

# READs that no cache answers.
load_reads() {
  dd if=/mnt/load/still bs=$READ count=1 iflag=direct 2>/dev/null | cmp -n $READ - $LOAD/still ||
    die "what was read in round $1 differs"
}

# An exclusive CREATE is the same one when it comes again, even to a server that remembers nothing.
# Bash opens with O_EXCL when noclobber is set.
load_exclusive() {
  set -C
  : >"/mnt/load/exclusive/$1" || die "exclusive create of round $1"
  set +C
}

# Calls that would fail if they were executed twice.
load_names() {
  local here=/mnt/load/names/$1 there=/mnt/load/names/moved-$1
  changes mkdir "$here"
  changes mv "$here" "$there"
  changes ln /mnt/load/linked "$there/hard"
  [ "$there/hard" -ef /mnt/load/linked ] || die "the link of round $1 is none"
  changes rm "$there/hard"
  changes rmdir "$there"
  [ ! -e "$here" ] && [ ! -e "$there" ] || die "the directory of round $1 is still there"
}

# Changes that stay, each noted with its reply: what was noted is looked for by the host while there is no
# server, and nothing that a later change has undone may be back (tests/kept.rs).
load_kept() {
  local kept=/mnt/load/kept round=$1
  : >$kept/file-$round || die "create of round $round"
  kept_step "$round" 1
  changes mkdir $kept/dir-$round
  kept_step "$round" 2
  changes ln -s "file-$round" $kept/soft-$round
  kept_step "$round" 3
  changes ln $kept/file-$round $kept/hard-$round
  kept_step "$round" 4
  changes mv $kept/hard-$round $kept/dir-$round/moved
  kept_step "$round" 5
  chmod 600 $kept/file-$round || die "chmod of round $round"
  kept_step "$round" 6
  : >$kept/gone-$round || die "create of round $round"
  changes rm $kept/gone-$round
  kept_step "$round" 7
}
kept_step() { printf '@@note kept %d %d\n' "$1" "$2"; }

# changes COMMAND...: a change of names. That it was made already is an error to count.
changes() {
  local file=$LOAD/said-$BASHPID said
  "$@" 2>"$file" && return
  said=$(cat "$file")
  echo "$* says $said" >>$LOAD/errors
  case $1,$said in
    mkdir,*'File exists' | ln,*'File exists') ;;
    # The client goes on believing what it looked up before the change, that the new name is not there.
    mv,*'No such file or directory') echo 2 >/proc/sys/vm/drop_caches ;;
    rm,*'No such file or directory' | rmdir,*'No such file or directory') ;;
    *) die "$* says $said; said of all changes: $(cat $LOAD/errors)" ;;
  esac
}

# Waits until each job has done something that it began after now.
load_moved() {
  local job since
  for job in $LOAD/rounds/*; do
    until read -r since <"$job" && [ -n "$since" ]; do :; done
    load_wait "$job" $((since + 2))
  done
}

# Waits until a job has done so many rounds. What it writes may be seen empty.
load_wait() {
  local tries round
  for ((tries = 0; tries < 600; tries++)); do
    read -r round <"$1"
    [ "${round:-0}" -ge "$2" ] && return
    sleep 0.5
  done
  die "no progress of ${1##*/} after round $round"
}

# host_burst ROUND: makes directories all at once, each in another one: the kernel makes one at a time
# in a directory. All that it has to know before is asked for by host_ready.
host_ready() {
  local number
  for ((number = 1; number <= BURST; number++)); do
    mkdir /mnt/load/burst/$number/ready && rmdir /mnt/load/burst/$number/ready || die 'before a burst'
  done
}
host_burst() {
  local number
  for ((number = 1; number <= BURST; number++)); do
    load_burst /mnt/load/burst/$number/"$1" &
  done
}
load_burst() {
  changes mkdir "$1"
  [ -d "$1" ] || die "$1 was not made"
}

# Calls that are sent and wait for their replies.
unanswered() { cat /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks | grep -c xprt_pending; }
are_unanswered() { [ "$(unanswered)" -ge "$1" ]; }

# host_unanswered COUNT: waits until there are as many.
host_unanswered() {
  grep -q " /sys/kernel/debug " /proc/mounts || mount -t debugfs debugfs /sys/kernel/debug || die 'no debugfs'
  wait_for 120 are_unanswered "$1" || die "only $(unanswered) calls are under way"
  step "$(unanswered) calls are under way"
}

# How many changes of names were said to have been made already.
load_errors() { wc -l <$LOAD/errors; }

# Ends the load and compares what it left with what it should be.
load_end() {
  touch $LOAD/stop
  wait
  drop_caches
  local rounds round job
  for job in $LOAD/rounds/*; do echo "load: $(cat "$job") rounds of ${job##*/}"; done
  cat $LOAD/errors
  rounds=$(cat $LOAD/rounds/writes)
  for ((round = rounds; round > 0 && round > rounds - WRITTEN_FILES; round--)); do
    written $round | cmp - /mnt/load/written-$((round % WRITTEN_FILES)) || die "written in round $round"
  done
  rounds=$(cat $LOAD/rounds/stable)
  for ((round = 1; round <= rounds; round++)); do printf 'record %08d\n' $round; done |
    cmp - /mnt/load/journal || die 'the journal'
  same 'exclusively made files' "$(cat $LOAD/rounds/exclusive)" "$(ls /mnt/load/exclusive | wc -l)"
  same 'what is left of the names' '' "$(ls -A /mnt/load/names)"
  rounds=$(cat $LOAD/rounds/kept)
  for ((round = 1; round <= rounds; round++)); do printf '%s\n' dir-$round file-$round soft-$round; done | sort |
    diff - <(ls -A /mnt/load/kept) || die 'what was kept'
  rm -r /mnt/load || die 'removing what the load left'
}

# Does what the host says until it says "stop": "moved" has it wait for the load, and "WORD ..." runs
# host_WORD. Each is answered with "done".
obey() {
  local word rest
  while read -r word rest <&3; do
    case $word in
      stop) return ;;
      moved) load_moved ;;
      *) "host_$word" $rest ;;
    esac
    echo '@@done'
  done
  die 'the host says nothing more'
}

# How often the transport has connected, so far.
connects() {
  local -a field
  read -ra field <<<"$(mountstats)"
  echo "${field[4]}"
}
