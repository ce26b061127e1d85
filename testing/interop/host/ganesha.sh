# nfs-ganesha in namespaces of its own, where ports are free and nothing outlives it. It reads commands from
# standard input, and answers each with a line.
#
#   WORK       a directory for its configuration, state and log
#   EXPORT     the directory that it exports as /export
#   LOG        its log
#   NFS_PORT, MOUNT_PORT   where it listens
#   KERBEROS   if set, a directory for a realm of its own (kerberos.sh); the export is for its members only
#
#   restart    it ends and comes back
#   kill       it is killed and comes back
set -eu

say() { printf '%s\n' "$*"; }

die() {
  say "failed: $*"
  tail -n 20 "$LOG" >&2
  exit 1
}

# wait_for COMMAND...: until it succeeds; a minute at most.
wait_for() {
  local end=$(($(uptime_seconds) + 60))
  until "$@" >/dev/null 2>&1; do
    [ "$(uptime_seconds)" -lt "$end" ] || die "this does not come about: $*"
    sleep 0.1
  done
}

uptime_seconds() { cut -d . -f 1 /proc/uptime; }

ip link set lo up
mount -t tmpfs none /run
SECURITY=sys
REALM_CONF=
if [ -n "${KERBEROS:-}" ]; then
  . "${0%/*}/kerberos.sh"
  SECURITY='krb5, krb5i, krb5p'
  REALM_CONF="NFS_KRB5 { PrincipalName = nfs; KeytabPath = \"$KERBEROS/server.keytab\"; Active_krb5 = true; }
DIRECTORY_SERVICES { DomainName = lab.test; }"
fi
cat >"$WORK/ganesha.conf" <<CONF
NFS_Core_Param { Protocols = 3, 4; NFS_Port = $NFS_PORT; MNT_Port = $MOUNT_PORT; Enable_NLM = false; Enable_RQUOTA = false;
  mount_path_pseudo = true; }
NFSv4 { Grace_Period = 3; Lease_Lifetime = 6; Minor_Versions = 0, 1, 2; RecoveryRoot = "$WORK/recovery"; }
EXPORT { Export_Id = 1; Path = $EXPORT; Pseudo = /export; Access_Type = RW; Squash = no_root_squash;
  SecType = $SECURITY; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; } }
$REALM_CONF
CONF
mkdir -p "$WORK/recovery"

ganesha_up() {
  ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$LOG" -p "/run/ganesha.pid" -N NIV_EVENT &
  GANESHA=$!
  wait_for rpcinfo -t 127.0.0.1 nfs 3
  wait_for rpcinfo -t 127.0.0.1 mountd 3
}

# Its end by a signal, and what is left of it.
ganesha_ends() {
  kill "-$1" "$GANESHA"
  wait "$GANESHA" || true
  rm -f /run/ganesha.pid
}

rpcbind -f &
wait_for rpcinfo -p
ganesha_up
say ready
while read -r command; do
  case $command in
    restart) ganesha_ends TERM ;;
    kill) ganesha_ends KILL ;;
    *) die "unknown command $command" ;;
  esac
  ganesha_up
  say done
done
