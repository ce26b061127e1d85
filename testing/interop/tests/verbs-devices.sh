# libibverbs and librdmacm on both software devices: what ibv_devinfo sees, and rping in both modes.
. /lab/lib.sh
PINGS=100
rxe_up
siw_up
verbs_up
for type in rxe siw; do
  step "ibv_devinfo of $type"
  ibv_devinfo -v -d ${type}0 >/tmp/devinfo || die 'ibv_devinfo fails'
  cat /tmp/devinfo
  grep -q 'PORT_ACTIVE' /tmp/devinfo || die 'the port is not active'
  address=$(address_of $type)
  step "rping over $type"
  rping -s -a "$address" -C $PINGS -V >/tmp/server 2>&1 &
  server=$!
  # It says nothing when it listens: until then the client is refused.
  wait_for 10 rping -c -a "$address" -C $PINGS -V ||
    die "no client of rping connects: $(cat /tmp/server)"
  wait $server || die "rping as a server: $(cat /tmp/server)"
  rdma link show ${type}0/1
  rdma resource show
done
same 'memory windows of rxe' 1 "$(ibv_devinfo -v -d rxe0 | grep -c 'MEM_WINDOW_TYPE_2B')"
same 'memory windows of siw' 0 "$(ibv_devinfo -v -d siw0 | grep -c 'MEM_WINDOW')"
