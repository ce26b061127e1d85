# Runs programs, one after the other, as $RUNS has them: LINK:N is /lab/program-N over that device, with the arguments of
# /lab/arguments-N, one in each line. Its environment has VERBS_IBV_DEVICE and VERBS_IBV_ADDRESS: the name of the device,
# and its address.
. /lab/lib.sh
verbs_up
export RUST_BACKTRACE=1
# As a server has it that uses RDMA devices.
ulimit -l unlimited
# Without the numbers of devices: one that was removed comes back with another.
resources() { rdma resource show | sed 's/^[0-9]*: //'; }
for run in $RUNS; do
  link=${run%:*} number=${run#*:}
  "${link}_up"
  before=$(resources)
  export VERBS_IBV_DEVICE=${link}0 VERBS_IBV_ADDRESS=$(address_of "$link")
  mapfile -t arguments <"/lab/arguments-$number"
  step "the program over $link"
  "/lab/program-$number" "${arguments[@]}" || die "the program over $link: status $?"
  echo "--- the program over $link ended with status 0"
  same 'objects of the kernel' "$before" "$(resources)"
  link_down "$link"
done
dmesg | grep -iE 'rdma|siw|rxe|ib_|BUG|WARN|hung' | tail -n 30
exit 0
