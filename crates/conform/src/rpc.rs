//! RPC messages in words (RFC 5531 §9).

/// A call with AUTH_NONE, without arguments.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32) -> Vec<u32> {
    vec![xid, 0, 2, program, version, procedure, 0, 0, 0, 0]
}

/// A call with these arguments behind it.
pub fn call_with(xid: u32, target: [u32; 3], arguments: &[u32]) -> Vec<u32> {
    let [program, version, procedure] = target;
    [&call(xid, program, version, procedure), arguments].concat()
}

/// An accepted reply of this status with an empty verifier.
pub fn accepted(xid: u32, status: u32, rest: &[u32]) -> Vec<u32> {
    [&[xid, 1, 0, 0, 0, status], rest].concat()
}

/// A denied reply.
pub fn denied(xid: u32, rest: &[u32]) -> Vec<u32> {
    [&[xid, 1, 1], rest].concat()
}

/// Values of `accept_stat`.
pub mod accept {
    /// SUCCESS.
    pub const SUCCESS: u32 = 0;
    /// PROG_UNAVAIL.
    pub const PROG_UNAVAIL: u32 = 1;
    /// PROG_MISMATCH.
    pub const PROG_MISMATCH: u32 = 2;
    /// PROC_UNAVAIL.
    pub const PROC_UNAVAIL: u32 = 3;
    /// GARBAGE_ARGS.
    pub const GARBAGE_ARGS: u32 = 4;
}

/// An RPC-over-RDMA header of version one without chunks, before an RPC message.
pub fn msg(xid: u32, credits: u32, message: &[u32]) -> Vec<u32> {
    [&[xid, 1, credits, 0, 0, 0, 0], message].concat()
}

/// Opaque data of variable length (RFC 4506 §4.10).
///
/// # Panics
///
/// If it is longer than a length can say.
pub fn opaque(bytes: &[u8]) -> Vec<u32> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    let length = u32::try_from(bytes.len()).expect("test data is short");
    [vec![length], crate::as_words(&padded)].concat()
}

/// An RPC message in words, whatever it is.
pub(crate) fn describe(stream: &[u8]) -> String {
    let word = |at: usize| {
        let bytes = stream.get(4 * at..).and_then(<[u8]>::first_chunk);
        bytes.copied().map(u32::from_be_bytes)
    };
    let len = stream.len();
    match (word(1), word(2)) {
        (Some(0), Some(2)) => match (word(3), word(4), word(5)) {
            (Some(program), Some(version), Some(procedure)) => {
                format!(
                    "call of program {program} version {version} procedure {procedure}, {len} octets"
                )
            }
            _ => format!("a call that is cut off, {len} octets"),
        },
        (Some(1), Some(0)) => {
            // Behind the verifier (RFC 5531 §9).
            let verifier = word(4).unwrap_or(0) as usize;
            let status = verifier.checked_add(20).and_then(|at| word(at.div_ceil(4)));
            let status = match status {
                Some(accept::SUCCESS) => "SUCCESS",
                Some(accept::PROG_UNAVAIL) => "PROG_UNAVAIL",
                Some(accept::PROG_MISMATCH) => "PROG_MISMATCH",
                Some(accept::PROC_UNAVAIL) => "PROC_UNAVAIL",
                Some(accept::GARBAGE_ARGS) => "GARBAGE_ARGS",
                Some(_) => "an unknown status",
                None => "no status",
            };
            format!("reply, {status}, {len} octets")
        }
        (Some(1), Some(1)) => format!("denied reply, {len} octets"),
        _ => format!("{len} octets that are no RPC message"),
    }
}
