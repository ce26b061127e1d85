//! Conversations with broken messages: bytes changed, cut off and added at random, in whole packets and
//! in packets that the capture has in part.

use anyhow::{Result, ensure};
use fastrand::Rng;

use super::capture::Capture;
use super::conversation::{Frame, Pieces, frames};
use super::tshark::Tshark;
use crate::pcap;

/// How many times each recorded connection is broken.
const ROUNDS: u64 = 12;

/// Bytes at the beginning of a ULPDU in which most changes are made: its headers.
const HEADERS: usize = 200;

/// The control fields of DDP and RDMAP. They stay, so that the rest is read as what it was.
const CONTROL: usize = 2;

/// At least as often the dissector must have met something that it refuses.
const LEAST_FAULTS: usize = 100;

/// Texts with which it then reports a fault.
const FAULTS: [&str; 2] = ["The message ends before", "(Error/Malformed)"];

/// Has `tshark` read broken conversations in full; how many there were.
pub(super) fn check(tshark: &Tshark, recorded: &[Vec<Pieces>]) -> Result<usize> {
    let mut capture = Capture::new()?;
    let mut conversations = 0;
    for round in 0..ROUNDS {
        let mut random = Rng::with_seed(round);
        for pieces in recorded.iter().flatten() {
            conversations += 1;
            let mut connection = capture.connect()?;
            for (to, mut frame) in frames(pieces)? {
                if random.usize(..2) == 0 {
                    break_one(&mut frame, &mut random);
                }
                let bytes = frame.bytes()?;
                match random.usize(..16) {
                    0 => {
                        let captured = pcap::HEADERS + random.usize(..bytes.len());
                        connection.say_cut(to, &bytes, captured)?;
                    }
                    _ => connection.say(to, &bytes, pcap::MAX_PAYLOAD)?,
                }
            }
        }
    }
    let file = tshark.write("broken", &capture.finish())?;
    let text = tshark.details(&file)?;
    for fault in FAULTS {
        let met = text.matches(fault).count();
        ensure!(
            met >= LEAST_FAULTS,
            "only {met} times \"{fault}\" in {}",
            file.display()
        );
    }
    Ok(conversations)
}

fn break_one(frame: &mut Frame, random: &mut Rng) {
    let Frame::Ulpdu(bytes) = frame else {
        return;
    };
    match random.usize(..4) {
        0 => bytes.truncate(CONTROL + random.usize(..bytes.len() - CONTROL)),
        1 => bytes.extend(
            (0..random.usize(..64))
                .map(|_| random.u8(..))
                .collect::<Vec<_>>(),
        ),
        _ => {
            for _ in 0..=random.usize(..4) {
                let within = bytes.len().min(HEADERS) - CONTROL;
                bytes[CONTROL + random.usize(..within)] = match random.usize(..4) {
                    0 => 0xff,
                    1 => 0,
                    _ => random.u8(..),
                };
            }
        }
    }
}
