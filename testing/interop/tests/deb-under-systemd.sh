# The services of our Debian package under systemd, with Linux' NFS client on it over siw in the same machine.
. /lab/lib.sh

CONFIG=/etc/rpcrdma/rpcrdma.toml
PAIRS=/etc/rpcrdma/gateway.toml
UNITS='rpcrdma.service rpcrdma-rdma.socket rpcrdma-mount.socket rpcrdma-gateway.service'

# What systemd knows of the service.
of_service() { systemctl show -P "$1" rpcrdma.service; }
# A failure, with what the service has logged.
failed() {
  systemctl --no-pager --full status $UNITS
  journalctl --no-pager -u rpcrdma.service -u rpcrdma-gateway.service | tail -n 40
  die "$@"
}
status_is() { [ "$(of_service StatusText)" = "$1" ]; }
gateway_status_has() { systemctl show -P StatusText rpcrdma-gateway.service | grep -q "$1"; }
# Whether somebody listens at this port of 127.0.0.1.
gateway_listens() { grep -q "0100007F:$(printf %04X "$1") 00000000:0000 0A" /proc/net/tcp; }
pid_is_another() { local pid; pid=$(of_service MainPID); [ "$pid" != 0 ] && [ "$pid" != "$1" ]; }

# configure LISTEN EXPORT...: a file that exports these directories of /srv to this machine, read-write.
configure() {
  {
    printf '[server]\n%s\nallow = ["%s"]\n' "$1" "$GUEST_IP"
    shift
    local name
    for name; do
      printf '\n[[export]]\npath = "/srv/%s"\nname = "/%s"\nsquash = "none"\n' "$name" "$name"
    done
  } >$CONFIG
}

# A client that writes, reads, makes, renames and removes until there is /run/enough. Any failure is noted.
work() {
  local i=0
  until [ -e /run/enough ]; do
    i=$((i + 1))
    dd if=/tmp/data of=/mnt/work-new bs=256k conv=fsync 2>>/run/work.err &&
      mv /mnt/work-new /mnt/work && cmp /tmp/data /mnt/work && mkdir /mnt/made && rmdir /mnt/made ||
      { echo "round $i" >>/run/work.err.failed; return 1; }
    echo "$i" >/run/rounds
  done
}
rounds_after() { [ "$(cat /run/rounds 2>/dev/null || echo 0)" -gt "$1" ]; }
# Waits until a round that has begun after now is whole.
go_on() {
  local now
  now=$(cat /run/rounds 2>/dev/null || echo 0)
  wait_for 120 rounds_after $((now + 1)) || failed "the client does not go on after $1"
}

step 'install'
dpkg -i /lab/rpcrdma.deb || die 'dpkg -i'
for unit in $UNITS; do
  same "$unit" disabled "$(systemctl is-enabled $unit)"
  same "$unit" inactive "$(systemctl is-active $unit)"
done

step 'a file without exports'
systemctl start rpcrdma && die 'it starts without exports'
journalctl -u rpcrdma | grep -q 'there has to be one at least' || failed 'the message is missing'
same 'starts again' 0 "$(of_service NRestarts)"
systemctl reset-failed rpcrdma

step 'siw link'
siw_up
step 'start'
mkdir /srv/data /srv/more
configure "listen = \"$GUEST_IP\"" data
systemctl start rpcrdma || failed 'it does not start'
same state active "$(systemctl is-active rpcrdma)"
same type notify "$(of_service Type)"
same STATUS 'serving /data' "$(of_service StatusText)"
systemctl --no-pager status rpcrdma | grep 'Status: "serving /data"' || failed 'no STATUS in systemctl status'
echo "@@exposure $(systemd-analyze security rpcrdma.service --no-pager | sed -n 's/.*exposure level for rpcrdma.service: \([0-9.]*\).*/\1/p')"
[ -s /var/lib/rpcrdma/handle.key ] || failed 'no state'
rpcrdma stats | head -n 1 || failed 'rpcrdma stats'

step 'mount'
mount_v3 "$GUEST_IP" 20049 20048 /data
dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null
cp /tmp/data /mnt/file || failed 'write'
drop_caches
cmp /tmp/data /mnt/file || failed 'read'
cmp /tmp/data /srv/data/file || die 'what the server has differs'
# What the service may not do by itself, a client may: files of others, their groups, devices, set-user-id.
chown 1000:1000 /mnt/file && chmod 4711 /mnt/file && mknod /mnt/null c 1 3 || failed 'rights of root'
same 'mode, owner, device' '4711 1000:1000 c' \
  "$(stat -c '%a %u:%g' /srv/data/file) $(stat -c %F /srv/data/null | cut -c1)"
mkdir -m 777 /mnt/open && setpriv --reuid 1000 --regid 1000 --clear-groups touch /mnt/open/of-user || failed 'as a user'
same owner 1000:1000 "$(stat -c %u:%g /srv/data/open/of-user)"

work &
step 'reload'
go_on 'the start'
configure "listen = \"$GUEST_IP\"" data more
systemctl reload rpcrdma || failed 'it does not reload'
wait_for 20 status_is 'serving 2 exports' || failed "STATUS is $(of_service StatusText)"
pid=$(of_service MainPID)
echo 'nonsense = 1' >>$CONFIG
systemctl reload rpcrdma && failed 'it takes a wrong file'
same state active "$(systemctl is-active rpcrdma)"
same STATUS 'serving 2 exports' "$(of_service StatusText)"
same process "$pid" "$(of_service MainPID)"
go_on 'a reload'

step 'journal'
journalctl --no-pager -o json "RPCRDMA_FILE=$CONFIG" | tail -n 1 | tee /run/record
for field in '"_SYSTEMD_UNIT":"rpcrdma.service"' '"SYSLOG_IDENTIFIER":"rpcrdma"' '"PRIORITY":"6"' '"MESSAGE":"exports read again'; do
  grep -qF "$field" /run/record || failed "the journal has no $field"
done

step 'restart under the mount'
configure "listen = \"$GUEST_IP\"" data more
systemctl restart rpcrdma || failed 'it does not restart'
go_on 'a restart'

step 'watchdog'
mkdir -p /run/systemd/system/rpcrdma.service.d
printf '[Service]\nWatchdogSec=2\nRestartSec=0\n' >/run/systemd/system/rpcrdma.service.d/test.conf
systemctl daemon-reload
systemctl restart rpcrdma || failed 'it does not restart'
pid=$(of_service MainPID)
go_on 'another restart'
same 'restarts by the watchdog' 0 "$(of_service NRestarts)"
kill -STOP "$pid"
wait_for 60 pid_is_another "$pid" || failed 'the watchdog does nothing'
go_on 'the watchdog'
same 'restarts by the watchdog' 1 "$(of_service NRestarts)"
rm -r /run/systemd/system/rpcrdma.service.d
systemctl daemon-reload

step 'sockets'
systemctl stop rpcrdma || failed 'it does not stop'
same state inactive "$(systemctl is-active rpcrdma)"
configure '' data more
systemctl start rpcrdma-rdma.socket rpcrdma-mount.socket || failed 'the sockets do not start'
same state inactive "$(systemctl is-active rpcrdma)"
# Nobody starts the service: the client, which still has its mount, comes back.
go_on 'sockets that start the service'
same state active "$(systemctl is-active rpcrdma)"
systemctl restart rpcrdma || failed 'it does not restart with sockets'
go_on 'a restart with sockets'
touch /run/enough
wait %1 || { cat /run/work.err /run/work.err.failed; failed 'a call of the client failed'; }
cat /run/rounds
umount /mnt || die umount
# MOUNT by its socket alone.
systemctl stop rpcrdma || failed 'it does not stop with sockets'
mount_v3 "$GUEST_IP" 20049 20048 /more
touch /mnt/file && [ -e /srv/more/file ] || failed 'write after MOUNT'
umount /mnt || die umount

step 'gateway'
systemctl stop rpcrdma-rdma.socket rpcrdma-mount.socket rpcrdma || failed 'it does not stop'
# The gateway passes on calls of other users than its own.
configure "listen = \"$GUEST_IP\"
trust_local = true" data
systemctl start rpcrdma || failed 'it does not start'
systemctl start rpcrdma-gateway && failed 'the gateway starts without pairs'
systemctl reset-failed rpcrdma-gateway
printf '[[pair]]\nlisten = "tcp://127.0.0.1:2049"\nupstream = "rdma://%s:20049"\n' "$GUEST_IP" >>$PAIRS
systemctl start rpcrdma-gateway || failed 'the gateway does not start'
same state active "$(systemctl is-active rpcrdma-gateway)"
same type notify "$(systemctl show -P Type rpcrdma-gateway)"
systemctl --no-pager status rpcrdma-gateway
echo "exposure of the gateway: $(systemd-analyze security rpcrdma-gateway.service --no-pager | sed -n 's/.*exposure level for rpcrdma-gateway.service: \([0-9.]*\).*/\1/p')"
over_tcp="vers=3,nolock,proto=tcp,port=2049,mountproto=tcp,mountport=2049"
mount.nfs 127.0.0.1:/data /mnt -o "$over_tcp" || failed 'mount through the gateway'
cmp /tmp/data /mnt/file || failed 'read through the gateway'
systemctl reload rpcrdma-gateway || failed 'the gateway does not reload'
echo 'nonsense = 1' >>$PAIRS
systemctl reload rpcrdma-gateway && failed 'the gateway takes a wrong file'
sed -i '/^nonsense/d' $PAIRS
# A pair that cannot be started stops no other one.
cp $PAIRS /run/pairs
printf '[[pair]]\nlisten = "tcp://127.0.0.1:2050"\nupstream = "rdma://no-such-host.invalid"\n' >>$PAIRS
printf '[[pair]]\nlisten = "tcp://127.0.0.1:2051"\nupstream = "rdma://%s:20049"\n' "$GUEST_IP" >>$PAIRS
systemctl reload rpcrdma-gateway || failed 'a pair that cannot be started stops the reload'
wait_for 60 gateway_listens 2051 || failed 'the other pair is not served'
wait_for 20 gateway_status_has 'no-such-host.invalid' || failed "STATUS is $(systemctl show -P StatusText rpcrdma-gateway.service)"
cp /run/pairs $PAIRS
systemctl reload rpcrdma-gateway || failed 'the gateway does not reload again'
cp /tmp/data /mnt/through && cmp /tmp/data /srv/data/through || failed 'write through the gateway'

step 'upgrade'
pid=$(of_service MainPID)
dpkg -i /lab/rpcrdma.deb || failed 'dpkg -i'
wait_for 20 pid_is_another "$pid" || failed 'the service was not restarted'
same state active "$(systemctl is-active rpcrdma)"
same state active "$(systemctl is-active rpcrdma-gateway)"
grep -q '^upstream' $PAIRS || die 'the upgrade has changed the file of pairs'
rm /mnt/through || failed 'a call through the gateway after an upgrade'
umount /mnt || die umount
grep -q /srv/data $CONFIG || die 'the upgrade has changed the file of exports'

step 'remove'
dpkg --purge rpcrdma || die 'dpkg --purge'
for unit in $UNITS; do
  [ "$(systemctl is-active $unit)" != active ] || die "$unit is left"
done
[ ! -e /var/lib/rpcrdma ] && [ ! -e /etc/rpcrdma ] && [ ! -e /usr/bin/rpcrdma ] || die 'files are left'
[ -e /srv/data/file ] || die 'exported files are gone'
journalctl --no-pager -p warning -t rpcrdma
exit 0
