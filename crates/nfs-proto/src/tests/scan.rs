//! Scans of calls and replies that pass by.

mod compound;
mod legacy;
mod messages;
mod operations;
mod session;
mod xdr;

use crate::scan::{CallScan, ItemPlace, ReplyScan, ScannedCall, ScannedReply};
use buffer::Buffer;
use oncrpc::xdr::Payload;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn stream(payload: &Payload) -> Vec<u8> {
    let mut out = Buffer::default();
    payload.copy_stream_into(&mut out);
    out.to_vec()
}

fn place(offset: usize, length: usize) -> ItemPlace {
    ItemPlace { offset, length }
}

/// Scans a call in pieces of one size.
fn scan(call: &[u8], piece: usize) -> Option<ScannedCall> {
    let mut scan = CallScan::default();
    call.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish()
}

fn scan_reply(call: &ScannedCall, reply: &[u8], piece: usize) -> ScannedReply {
    let mut scan = ReplyScan::new(call);
    reply.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish()
}
