//! Prints how long a scan of common COMPOUNDs takes, in nanoseconds per message.
//!
//! `cargo run --release -p nfs-proto --example scan_speed`

use nfs_proto::scan::{CallScan, ReplyScan, ScannedCall};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 200_000;

fn main() {
    let sequence = [&words(&[53])[..], &[7; 16], &words(&[1, 0, 0, 0])].concat();
    let putfh = [&words(&[22, 28])[..], &[7; 28]].concat();
    let getattr = words(&[9, 2, 0x0010_011a, 0x0030_a23a]);
    let stateid = [7; 16];
    let read = [&words(&[25])[..], &stateid, &words(&[0, 0, 1 << 20])].concat();
    let write = [&words(&[38])[..], &stateid, &words(&[0, 0, 2, 1 << 16])].concat();
    let write = [write, vec![7; 1 << 16]].concat();

    let of_getattr = call(&[&sequence, &putfh, &getattr]);
    let of_read = call(&[&sequence, &putfh, &read]);
    let of_write = call(&[&sequence, &putfh, &write, &getattr]);
    println!("GETATTR call        {:6.0} ns", per_call(&of_getattr));
    println!("READ call           {:6.0} ns", per_call(&of_read));
    println!("WRITE call, 64 KiB  {:6.0} ns", per_call(&of_write));

    let result = [&words(&[53, 0])[..], &[7; 16], &words(&[1, 0, 0, 0, 0])].concat();
    let data = [words(&[25, 0, 1, 1 << 16]), vec![7; 1 << 16]].concat();
    let header = words(&[9, 1, 0, 0, 0, 0, 0, 0, 3]);
    let reply = [header, result, words(&[22, 0]), data].concat();
    println!(
        "READ reply, 64 KiB  {:6.0} ns",
        per_reply(&scanned(&of_read), &reply)
    );
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A call with AUTH_SYS and an empty tag.
fn call(operations: &[&[u8]]) -> Vec<u8> {
    let mut call = words(&[9, 0, 2, 100_003, 4, 1, 1, 24, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2]);
    call.extend(words(&[u32::try_from(operations.len()).unwrap_or(0)]));
    call.extend(operations.concat());
    call
}

fn scanned(call: &[u8]) -> ScannedCall {
    let mut scan = CallScan::default();
    scan.push(black_box(call));
    scan.finish().expect("a call")
}

fn per_call(call: &[u8]) -> f64 {
    assert!(scanned(call).reply.is_some(), "all of it is known");
    timed(|| drop(black_box(scanned(call))))
}

fn per_reply(call: &ScannedCall, reply: &[u8]) -> f64 {
    let scanned = || {
        let mut scan = ReplyScan::new(call);
        scan.push(black_box(reply));
        scan.finish()
    };
    assert_eq!(scanned().results.len(), 1);
    timed(|| drop(black_box(scanned())))
}

/// Nanoseconds of one run: the best of five averages.
fn timed(run: impl Fn()) -> f64 {
    let once = || {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}
