# Runs /lab/program over one software device, with the arguments of /lab/arguments, one in each line. Its environment has
# VERBS_IBV_DEVICE and VERBS_IBV_ADDRESS: the name of the device, and its address.
. /lab/lib.sh
"${LINK}_up"
verbs_up
mapfile -t arguments </lab/arguments
export VERBS_IBV_DEVICE=${LINK}0 VERBS_IBV_ADDRESS=$(address_of "$LINK")
export RUST_BACKTRACE=1
step "the program over $LINK"
/lab/program "${arguments[@]}"
status=$?
echo "--- ended with status $status; what is left of it in the kernel:"
rdma resource show
dmesg | grep -iE 'rdma|siw|rxe|ib_|BUG|WARN|hung' | tail -n 30
exit $status
