# A Kerberos realm for a server on this machine, "host", and a client, "guest", within the namespaces of the
# script that sources it. $KERBEROS is the directory for all of it; in the end it has for the guest:
#
#   krb5.conf      its configuration; the KDC is at 10.0.2.2
#   guest.keytab   the key of the machine
#   user.keytab    the key of "user", uid 1000

REALM=LAB.TEST

# The name, the users and their domain as they are on a server of this realm.
mkdir -p "$KERBEROS"
hostname host
cp /etc/hosts /etc/passwd "$KERBEROS"
echo '127.0.0.1 host' >>"$KERBEROS/hosts"
echo 'user:x:1000:1000::/:/usr/sbin/nologin' >"$KERBEROS/passwd"
grep -v ':1000:' /etc/passwd >>"$KERBEROS/passwd"
printf '[General]\nDomain = lab.test\nLocal-Realms = %s\n[Translation]\nMethod = nsswitch\n' $REALM >"$KERBEROS/idmapd.conf"
[ -e /etc/idmapd.conf ] || die 'no /etc/idmapd.conf, of the package libnfsidmap1 or nfs-common'
for file in hosts passwd idmapd.conf; do
  mount --bind "$KERBEROS/$file" /etc/$file
done

# configuration ADDRESS: of a member of the realm with the KDC there.
configuration() {
  cat <<CONF
[libdefaults]
  default_realm = $REALM
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  ignore_acceptor_hostname = true
  permitted_enctypes = aes256-cts-hmac-sha1-96
  default_ccache_name = FILE:/tmp/krb5cc_%{uid}
[realms]
  $REALM = {
    kdc = $1:88
  }
[domain_realm]
  host = $REALM
  guest = $REALM
CONF
}
configuration 10.0.2.2 >"$KERBEROS/krb5.conf"
configuration 127.0.0.1 >"$KERBEROS/server.conf"
cat >"$KERBEROS/kdc.conf" <<CONF
[kdcdefaults]
  kdc_listen = 127.0.0.1:88
  kdc_tcp_listen = 127.0.0.1:88
[realms]
  $REALM = {
    database_name = $KERBEROS/principal
    key_stash_file = $KERBEROS/stash
    acl_file = $KERBEROS/acl
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }
[logging]
  kdc = FILE:$KERBEROS/kdc.log
CONF
export KRB5_CONFIG="$KERBEROS/server.conf" KRB5_KDC_PROFILE="$KERBEROS/kdc.conf"
kdb5_util create -s -P master >"$KERBEROS/made.log" 2>&1 || die 'no database of principals'
admin() { kadmin.local -q "$*" >>"$KERBEROS/made.log" 2>&1 || die "kadmin.local: $*"; }
admin addprinc -randkey nfs/host
admin addprinc -randkey nfs/guest
admin addprinc -randkey user
admin ktadd -k "$KERBEROS/server.keytab" nfs/host
admin ktadd -k "$KERBEROS/guest.keytab" nfs/guest
admin ktadd -k "$KERBEROS/user.keytab" user
krb5kdc -n &
wait_for kinit -k -t "$KERBEROS/server.keytab" -c "FILE:$KERBEROS/cache" nfs/host
