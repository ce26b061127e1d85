# nfs-ganesha for what is measured beside it, for scripts in network, mount and process namespaces of their own, where the
# ports are free and nothing outlives them:  . ganesha.sh
#
#   WORK   a directory for its configuration and the logs
#
# What such a script prints for the program that runs it goes to file descriptor 3, and all else to standard error.
exec 3>&1 1>&2

NFS=127.0.0.1:2049
MOUNT=127.0.0.1:20048

die() {
  echo "${0##*/}: $*"
  tail -n 20 "$WORK"/*.log
  exit 1
}

# wait_for COMMAND...: until it succeeds; half a minute at most.
wait_for() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  die "this does not come about: $*"
}

# exported NUMBER DIRECTORY PSEUDO: an export, as ganesha's configuration has it.
exported() {
  echo "EXPORT { Export_Id = $1; Path = $2; Pseudo = $3; Access_Type = RW; Squash = no_root_squash;
  SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }"
}

# ganesha_up EXPORTS [PARAMETERS]: it serves version 3 over TCP.
ganesha_up() {
  ip link set lo up
  mount -t tmpfs none /run
  cat >"$WORK/ganesha.conf" <<CONF
NFS_Core_Param { Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; ${2:-} }
NFSv4 { Graceless = true; }
$1
CONF
  rpcbind -f &
  wait_for rpcinfo -p
  ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$WORK/ganesha.log" -p /run/ganesha.pid -N NIV_EVENT &
  wait_for rpcinfo -t 127.0.0.1 nfs 3
  wait_for rpcinfo -t 127.0.0.1 mountd 3
}
