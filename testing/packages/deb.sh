#!/bin/bash
# Installs the Debian package in a clean Debian and uses it there.
#
#   deb.sh ROOT.tar PACKAGE.deb FOLDER
#
# To be run in namespaces of its own for mounts, processes and the network, by root of a user namespace at least;
# FOLDER is empty, and what is left there may be removed.
set -euo pipefail
archive=$1 package=$2 root=$3/root
step() { echo "deb: $*"; }
die() { echo "deb: FAILED: $*" >&2; exit 1; }

mkdir "$root"
# Root of a user namespace may have one user only.
case $(awk 'NR == 1 {print ($3 > 65535)}' /proc/self/uid_map) in
  1) owners=--same-owner ;;
  *) owners=--no-same-owner ;;
esac
tar -xf "$archive" -C "$root" --exclude='./dev/*' $owners
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
ip link set lo up
install -m 644 "$package" "$root/tmp/rpcrdma.deb"
run=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$(command -v chroot)" "$root")
in_root() { "${run[@]}" "$@"; }
url() { echo "nfs://127.0.0.1:$port/${1-}"; }

step 'install, with what it depends on'
in_root apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root install -y --no-install-recommends /tmp/rpcrdma.deb ||
  die 'apt-get install'
in_root dpkg --verify rpcrdma | tee "$3/differs"
[ ! -s "$3/differs" ] || die 'installed files differ from those of the package'
step 'the version names the commit of the program'
version=$(in_root dpkg-query -W -f '${Version}' rpcrdma)
said=$(in_root rpcrdma --version | head -n 1)
echo "$version: $said"
case $version in
  *+git*)
    commit=$(sed -E 's/.*\.([0-9a-f]{8})(\.changed)?-[0-9]+$/\1/' <<<"$version")
    [[ $said == *"($commit"* ]] || die "the program is of another commit: $said" ;;
esac
step 'documentation'
for page in README.md guide/README.md schemas/serve.schema.json examples/rpcrdma.toml; do
  [ -s "$root/usr/share/doc/rpcrdma/$page" ] || die "$page is missing"
done
step 'manual pages and completions'
for page in rpcrdma.1 rpcrdma-serve.1 rpcrdma.toml.5; do
  in_root env MANPAGER=cat man "${page##*.}" "${page%.*}" >"$3/page" || die "man ${page%.*}"
  grep -q 'SEE ALSO' "$3/page" || die "${page%.*} is not whole"
done
in_root bash -c '. /usr/share/bash-completion/completions/rpcrdma && complete -p rpcrdma' || die 'completions'
step 'the service is there and not enabled'
in_root test -e /usr/lib/systemd/system/rpcrdma.service || die 'no service'
in_root test -e /usr/lib/systemd/system/rpcrdma-gateway.service || die 'no service of the gateway'
[ -z "$(find "$root/etc/systemd" -name 'rpcrdma*')" ] || die 'something is enabled'
if in_root rpcrdma serve --config /etc/rpcrdma/rpcrdma.toml 2>"$3/refused"; then die 'it serves without exports'; fi
grep 'there has to be one at least' "$3/refused" || die 'the message is missing'

step 'serve, put, ls, get'
mkdir -p "$root/srv/data"
head -c 3000000 /dev/urandom >"$root/tmp/file"
"${run[@]}" rpcrdma serve /srv/data --listen 127.0.0.1:0 --mount-port 0 --json --state-dir /var/lib/rpcrdma >"$3/said" &
server=$!
for _ in {1..300}; do
  grep -q listening "$3/said" && break
  kill -0 $server || die 'it does not serve'
  sleep 0.1
done
port=$(sed -n 's/.*"listening":"127.0.0.1:\([0-9]*\)".*/\1/p' "$3/said")
[ -n "$port" ] || die 'it does not say where it listens'
in_root rpcrdma put /tmp/file "$(url)" || die put
in_root rpcrdma ls -l "$(url)" | tee "$3/listed"
grep -q ' 3000000 .* file$' "$3/listed" || die ls
in_root rpcrdma get "$(url file)" /tmp/back || die get
cmp "$root/tmp/file" "$root/tmp/back" && cmp "$root/tmp/file" "$root/srv/data/file" || die 'the data differs'
kill $server
wait $server || die 'it does not end well'

step 'purge'
in_root dpkg --purge rpcrdma || die 'dpkg --purge'
for left in etc/rpcrdma var/lib/rpcrdma usr/bin/rpcrdma; do
  [ ! -e "$root/$left" ] || die "$left is left"
done
[ -e "$root/srv/data/file" ] || die 'exported files are gone'
step ok
