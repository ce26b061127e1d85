//! RPC-over-RDMA without I/O: headers, chunks, credits, Requester and Responder.
