# Locks of several clients, by processes that lock as they are told to (src/bin/file-locks.rs):  . /lab/locks.sh

# agent NAME: starts one.
declare -A AGENT_IN AGENT_OUT AGENT_PID
agent() {
  local in out
  mkfifo "/tmp/$1-in" "/tmp/$1-out" || die mkfifo
  (
    leave_agents
    exec /lab/file-locks <"/tmp/$1-in" >"/tmp/$1-out"
  ) &
  AGENT_PID[$1]=$!
  exec {in}>"/tmp/$1-in" {out}<"/tmp/$1-out"
  AGENT_IN[$1]=$in AGENT_OUT[$1]=$out
  rm "/tmp/$1-in" "/tmp/$1-out"
}

# leave_agents: for a process that inherits no end of the pipes of agents, whose ends show them that they are to end.
leave_agents() {
  local pipe
  for pipe in "${AGENT_IN[@]}"; do exec {pipe}>&-; done
  for pipe in "${AGENT_OUT[@]}"; do exec {pipe}<&-; done
}

# tell_agent NAME COMMAND...
tell_agent() { echo "${*:2}" >&"${AGENT_IN[$1]}" || die "$1 is gone"; }

# heard_of NAME: its answer, to "heard", which must come within 60 s.
heard_of() { read -rt 60 heard <&"${AGENT_OUT[$1]}" || die "$1 does not answer"; }

# says NAME ANSWER COMMAND...
says() {
  tell_agent "$1" "${@:3}"
  heard_of "$1"
  same "$1: ${*:3}" "$2" "$heard"
}

# is_waiting NAME: that it has not answered after a while.
is_waiting() { ! read -rt 1 heard <&"${AGENT_OUT[$1]}" || die "$1 does not wait: $heard"; }

# got_within NAME MILLISECONDS: the answer to a command that waited comes soon enough.
got_within() {
  local begin
  begin=$(now_ms)
  heard_of "$1"
  same "the lock that $1 waited for" ok "$heard"
  echo "$1 got its lock $(($(now_ms) - begin)) ms later"
  [ $(($(now_ms) - begin)) -le "$2" ] || die "$1 got its lock after $(($(now_ms) - begin)) ms"
}

# has_answered NAME
has_answered() { read -rt 0 <&"${AGENT_OUT[$1]}"; }

# agent_ends NAME: lets it end, with all that it has open.
agent_ends() {
  local in=${AGENT_IN[$1]} out=${AGENT_OUT[$1]}
  exec {in}>&-
  wait "${AGENT_PID[$1]}" || die "$1 ended with status $?"
  exec {out}<&-
  unset "AGENT_IN[$1]" "AGENT_OUT[$1]" "AGENT_PID[$1]"
}

# locks_between DIRECTORY DIRECTORY: one directory, mounted by two clients.
locks_between() {
  : >"$1/locked"
  agent a
  agent b
  says a ok open f "$1/locked"
  says b ok open f "$2/locked"

  step 'a lock is handed over'
  says a ok lock f write 0 10
  says b busy lock f write 5 10
  says b 'write 0 10' test f read 0 0
  says b free test f write 10 10
  tell_agent b wait f write 5 10
  is_waiting b
  says a ok unlock f 0 10
  got_within b 5000
  says a busy lock f read 0 10
  says b ok unlock f 5 10

  step 'readers share, and an owner changes kinds'
  says a ok lock f read 0 100
  says b ok lock f read 50 100
  says a busy lock f write 0 100
  says a ok lock f write 0 50
  says b ok unlock f 50 100
  says a ok lock f write 0 100
  says a ok unlock f 40 20
  says b ok lock f write 45 10
  says b busy lock f write 39 1
  says b busy lock f read 60 1
  says a ok unlock f 0 0
  says b ok unlock f 0 0

  step 'a lock is not inherited, and a child loses none'
  says a ok lock f write 0 10
  says a busy child f write 0 10
  says a ok child f write 20 10
  says b busy lock f write 0 10
  says b ok lock f write 20 10
  says b ok unlock f 20 10

  step 'closing releases'
  tell_agent b wait f write 0 10
  is_waiting b
  says a ok close f
  got_within b 5000
  says b ok unlock f 0 10
  says a ok open f "$1/locked"
  # Another descriptor of the same process does, too, as POSIX has it.
  says a ok open g "$1/locked"
  says a ok lock f write 0 10
  says a ok close g
  says b ok lock f write 0 10
  says b ok unlock f 0 10

  step '200 ranges'
  says a ok ranges f 200
  says b busy lock f write 3980 10
  says b ok lock f write 3990 10
  says b busy lock f read 0 0
  says b ok unlock f 3990 10
  says a ok unlock f 0 0
  says b ok lock f write 0 0
  says b ok unlock f 0 0

  step 'a process ends with its locks'
  says a ok lock f write 0 0
  tell_agent b wait f read 7 1
  is_waiting b
  agent_ends a
  got_within b 5000
  agent_ends b

  step 'flock'
  exec 5<>"$1/locked" 6<>"$2/locked"
  flock -n 5 || die 'a lock is not given'
  flock -n 6 && die 'two clients have the same lock'
  flock -u 5
  wait_for 5 flock -n 6 || die 'a lock that was given back is not given to the other client'
  flock -n 5 && die 'two clients have the same lock, again'
  exec 5>&- 6>&-
  rm "$1/locked"
}

# locks_with_server FILE: which a program of the server's machine locks and unlocks when it is told to.
locks_with_server() {
  agent a
  says a ok open f "$1"
  server_does lock
  says a busy lock f write 0 10
  tell_agent a wait f write 0 10
  is_waiting a
  server_does unlock
  got_within a 2000
  server_does busy
  says a ok unlock f 0 0
  server_does lock
  server_does unlock
  agent_ends a
}

# server_does WHAT: has the host do something with locks, and waits until it has.
server_does() {
  echo "@@local $1"
  local done
  read -r done <&3
  same "a program on the server: $1" done "$done"
}
