# Linux' NFS client at work on a server behind a gateway that wants Kerberos, whose keys are beside this script.
#
#   MOUNTS   VERSION:SECURITY..., as vers= and sec= have them
#
# The other variables are those of work.sh.
. /lab/lib.sh
. /lab/work.sh

export KRB5_CONFIG=/lab/krb5.conf

# A process of ours asks for the tickets that the kernel needs.
gssd_up() {
  modprobe rpcsec_gss_krb5 || die 'cannot load rpcsec_gss_krb5'
  mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs || die 'no rpc_pipefs'
  rpc.gssd -f -D -vv -k /lab/guest.keytab 2>/run/gssd.log &
  GSSD=$!
  wait_for 20 gssd_listens || die 'rpc.gssd does not listen to the kernel'
}
# Until then the kernel denies what needs a ticket.
gssd_listens() { ls -l /proc/$GSSD/fd | grep -q rpc_pipefs/gssd/; }

# Another user's calls have a context of their own, with keys of their own.
as_user() { su -s /bin/bash user -c "$1"; }
work_more() {
  mkdir -m 777 /mnt/w/open
  as_user ': >/mnt/w/open/early' 2>/dev/null && die 'a user without a ticket makes a file'
  as_user 'KRB5_CONFIG=/lab/krb5.conf kinit -k -t /lab/user.keytab user' || die 'no ticket for the user'
  as_user 'head -c 300000 /tmp/data >/mnt/w/open/mine' || die 'a user with a ticket cannot write'
  drop_caches
  as_user 'head -c 300000 /tmp/data | cmp - /mnt/w/open/mine' || die 'what the user wrote differs'
  echo secret >/mnt/w/secret
  chmod 600 /mnt/w/secret
  as_user 'cat /mnt/w/secret' 2>/dev/null && die 'a user reads what is not theirs'
  # The client knows names of users only; the host sees the number.
  echo '@@made w/open/mine'
  read -r _ <&3
  rm /tmp/krb5cc_1000
}

step 'siw link'
[ "$PROTO" != rdma ] || siw_up
gssd_up
work_begin
chmod 644 /tmp/data
for mount in $MOUNTS; do
  work_in "${mount%:*}" "sec=${mount#*:}"
done
step 'without Kerberos'
mount.nfs "$SERVER:/export" /mnt -o "vers=4.2,proto=$PROTO,port=$PORT,sec=sys,retry=0" && ls /mnt &&
  die 'the server takes calls without Kerberos'
cat /run/gssd.log
exit 0
