# Prepares the network, runs /lab/script, reports its status to the host and waits to be switched off.
ip link set lo up
modprobe -q virtio_pci
modprobe -q virtio_net
for _ in {1..50}; do
  [ -e /sys/class/net/eth0 ] && break
  sleep 0.2
done
# The addresses of QEMU's user-mode network; the host is 10.0.2.2.
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
# Under emulation on a busy host a processor may come up whose timer never fires: then this does not end.
for processor in 1 2; do taskset $processor sleep 0.1; done
echo '@@up'
set -a
. /lab/env
set +a
cd /lab || exit
bash /lab/script
printf '@@status %d\n' $?
# The host ends the machine as soon as it has read the line above.
sleep 60
poweroff -f
