//! Decisions behind this crate, with their reasons.
//!
//! - **The libraries of rdma-core are loaded at run time** (`library.rs`), so that one program builds and runs everywhere. The
//!   bindings are a few hundred lines by hand, because what bindgen makes of the headers is large, and most of the calls
//!   that matter are inline functions, which it leaves out. Sizes and offsets are asserted when the crate is compiled.
//! - **What the device knows of is owned by the queue pair** until its completion comes. If completions do not come, the
//!   device's queue pair is destroyed first, and then the memory is given back. Values that wrap pointers own what they
//!   need, and drop it in order: windows, regions, queue pair, completion queue, protection domain, identifier.
//! - **The memory of pools is registered when it is first used**, for as long as it exists: the registration is attached to
//!   it (`Buffer::attach`) and dropped right before it is freed. A range of addresses that is registered therefore always is
//!   the memory that was registered, and pieces of it are found by address. Other memory is copied, up to 16 KiB, or
//!   registered for one use.
//! - **Memory is exposed by windows of type 2**, bound to one connection, where the device has them. Others (siw) get a
//!   registration per use, in a protection domain of one connection, so that a handle is valid on that connection only;
//!   their peers cannot invalidate it. Sources are registered for one use over software RoCE, which holds accesses to the
//!   bounds of the region below a window, and not to those of the window.
//! - **Reads wait above the device** until as few are outstanding as the peer serves: in its queue, what was posted behind
//!   them would wait too. What is posted is given to the device in one chain per turn, of which the last request, one in
//!   sixteen, and whatever frees memory is signalled.
//! - **A removed device is let go** (`device_events.rs`). Connections end and give everything back at the event of the
//!   connection manager. librdmacm keeps the device open, for which the kernel waits with some drivers (rxe, siw), so that
//!   its descriptors are replaced by `/dev/null`. A listener listens again when the device is back.
//! - **A peer may invalidate if every device that may be used has windows**: private data says so before it is known which
//!   device leads to the peer.
//! - **By default a client tries devices, then software iWARP** (`connect.rs` of `rpcrdma-cli`), if no server was found over a
//!   device; one that refused is not asked again. The connection manager decides by the route whether there is a device.
//!   iWARP devices are left out (`Config::without_iwarp`): software iWARP reaches the same servers. The libraries are loaded
//!   only if `/sys/class/infiniband` has another device.
//! - **Several addresses are one server** (`Server::listen_also`): what clients share is keyed by the client, not by the listener. A
//!   pair of a gateway with several addresses is a pair for each (`plan::at_each`), so that a reload touches only those that
//!   change. A client has no VRF: with one address in two VRFs, two machines share rights and limits. Local users do not, as
//!   the kernel is asked in the VRF of the connection.
//! - **By default a server listens over software iWARP, then over devices at the same port** (`any::DeviceListeners` of `rpcrdma`). A wildcard is
//!   replaced by the addresses of devices: a wildcard listener of the connection manager is for all devices, and fails as a
//!   whole if an iWARP device cannot have the TCP port; if such a device is added later, the connection manager cannot use it.
//!   Connections from the server's own machine are refused over devices, because their user cannot be identified there; a
//!   client that is refused at an address of its own machine goes on with software iWARP.
//! - **Who broke a rule is concluded from the device**: an InfiniBand queue pair that stops by itself refused something of
//!   the peer. iWARP devices stop in any case, and the connection manager tells whether the peer has closed. A message
//!   without a Receive is reported to its sender only, and an owner that ends a connection cannot tell the peer why
//!   (`verbs_conformance::Blame`).
//! - **Failures of devices are tested with a model of the libraries** (`verbs-ibv/src/fake`), a table of functions in the
//!   place of libibverbs and librdmacm. It fails the call that a test names, or each call in turn, and refuses what drivers
//!   refuse, as to deregister a region with a window bound to it. It checks the order in which objects are destroyed, that
//!   events are acknowledged, that memory stays registered while a queue pair has work with it, and that nothing is left at
//!   the end. Tests let connection requests, messages, completions and events come or stay
//!   away. It moves no data but into Receives: software RoCE and siw are for that.
