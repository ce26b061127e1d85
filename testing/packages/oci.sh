#!/bin/bash
# Unpacks the image as an engine would, by skopeo and umoci, and uses its program with nothing else around it.
#
#   oci.sh IMAGE.oci.tar VERSION FOLDER
#
# To be run in namespaces of its own for mounts, processes and the network, by root of a user namespace at least;
# FOLDER is empty, and what is left there may be removed.
set -euo pipefail
archive=$1 version=$2 folder=$3
step() { echo "oci: $*"; }
die() { echo "oci: FAILED: $*" >&2; exit 1; }

step 'skopeo and umoci'
skopeo --insecure-policy copy -q "oci-archive:$archive:rpcrdma:$version" "oci:$folder/layout:rpcrdma:$version" ||
  die 'skopeo copy'
skopeo --insecure-policy copy -q "docker-archive:$archive" "oci:$folder/for-docker:rpcrdma" ||
  die 'skopeo copy, as docker load reads it'
umoci unpack --rootless --image "$folder/layout:rpcrdma:$version" "$folder/bundle" || die 'umoci unpack'
root=$folder/bundle/rootfs
(cd "$root" && find . -type f | sort)
step 'what an engine runs'
runs=$(jq -c '.process.args' "$folder/bundle/config.json")
[ "$runs" = '["/usr/bin/rpcrdma","serve","/export"]' ] || die "it would run $runs"
state=$(jq -r '.process.env[] | select(startswith("STATE_DIRECTORY="))' "$folder/bundle/config.json")

# What every engine has in its containers beside the image: /proc, names of hosts.
mkdir "$root/proc"
mount -t proc proc "$root/proc"
echo '127.0.0.1 localhost server.test' >"$root/etc/hosts"
ip link set lo up
run=(env -i "$state" "$(command -v chroot)" "$root" /usr/bin/rpcrdma)
in_root() { "${run[@]}" "$@"; }

step 'serve, put, ls, get'
head -c 3000000 /dev/urandom >"$root/tmp/file"
"${run[@]}" serve /export --manage-gids >"$folder/said" 2>&1 &
server=$!
for _ in {1..300}; do
  in_root ping --count 1 127.0.0.1 >"$folder/ping" 2>&1 && break
  kill -0 $server || { cat "$folder/said"; die 'it does not serve'; }
  sleep 0.1
done
in_root put /tmp/file nfs://127.0.0.1/ || die put
# By a name, which the program looks up without a library of the system.
in_root ls -l nfs://server.test/ | tee "$folder/listed"
grep -q ' 3000000 .* file$' "$folder/listed" || die ls
in_root get nfs://server.test/file /tmp/back || die get
cmp "$root/tmp/file" "$root/tmp/back" && cmp "$root/tmp/file" "$root/export/file" || die 'the data differs'
in_root stats | head -n 1
[ -s "$root/var/lib/rpcrdma/handle.key" ] || die 'no state'
kill $server
wait $server || die 'it does not end well'
step ok
