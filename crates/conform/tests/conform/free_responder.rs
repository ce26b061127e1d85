//! Each of these cases passes against a server that does otherwise than ours, as far as the texts let it.

use crate::faulty::{Faults, Faulty};
use crate::responder::Served;
use conform::{Level, Report, Verdict};

/// A server that uses its freedom passes the cases.
#[track_caller]
fn passes(faults: Faults, codes: &[&str]) -> Report {
    let report = Served::over(Faulty::with(faults)).run(codes);
    assert_eq!(report.findings.len(), codes.len(), "{codes:?}");
    for finding in &report.findings {
        assert_eq!(finding.verdict, Verdict::Pass, "{finding:?}");
    }
    report
}

#[track_caller]
fn receiving(received: fn(&mut Vec<u8>), codes: &[&str]) {
    passes(Faults::receiving(received), codes);
}

/// Makes a READ or WRITE of NFS version 3 one of at most so many octets, so that the server reads or writes no more
/// (RFC 1813 §3.3.6, §3.3.7).
pub(crate) fn at_most<const MOST: u32>(message: &mut Vec<u8>) {
    if !message.len().is_multiple_of(4) {
        return;
    }
    let mut words = conform::as_words(message);
    let calls = |procedure| {
        let target = [100_003, 3, procedure];
        words.windows(3).any(|words| words == target)
    };
    let (reads, writes) = (calls(6), calls(7));
    if let [.., count] = &mut words[..]
        && reads
    {
        *count = MOST.min(*count);
    }
    if writes {
        let arguments = words.len() - 3;
        for at in [arguments, arguments + 2] {
            words[at] = words[at].min(MOST);
        }
        // The Read list, behind the direction in version two.
        let mut at = match words[1] {
            2 => 5,
            _ => 4,
        };
        let mut left = MOST;
        while words[at] == 1 {
            words[at + 3] = words[at + 3].min(left);
            left -= words[at + 3];
            at += 6;
        }
    }
    *message = conform::words(&words);
}

#[test]
fn server_may_write_less_than_it_is_given() {
    receiving(
        at_most::<301>,
        &["NFS-01", "NFS-02", "NFS-03", "NFS-04", "NFS-05", "V2-15"],
    );
}

#[test]
fn server_may_read_less_than_it_is_asked_for() {
    receiving(
        at_most::<301>,
        &[
            "NFS-07", "NFS-09", "NFS-10", "NFS-11", "NFS-12", "NFS-13", "NFS-14", "NFS-15",
            "NFS-16", "NFS-23", "NFS-24", "PD-08", "PD-09", "PD-10", "XCH-12",
        ],
    );
    // Each with more than the inline threshold, so that the Reply chunk is needed.
    receiving(at_most::<5001>, &["NFS-18", "NFS-19", "NFS-23", "NFS-24"]);
    // Lengths without roundup.
    receiving(at_most::<300>, &["NFS-11"]);
}

#[test]
fn reply_chunk_that_a_short_read_does_not_need_is_not_judged() {
    let faults = Faults::receiving(at_most::<300>);
    let report = Served::over(Faulty::with(faults)).run(&["NFS-18", "NFS-19"]);
    for finding in &report.findings {
        assert_eq!(finding.verdict, Verdict::Skip, "{finding:?}");
    }
}

#[test]
fn unused_write_chunk_may_have_been_written_to() {
    let faults = Faults {
        scribbles: true,
        ..Faults::default()
    };
    passes(faults, &["WRCH-01", "WRCH-05", "WRCH-06"]);
}

#[test]
fn call_of_a_user_may_be_denied() {
    let sent: fn(&mut Vec<u32>) = |message| {
        // Behind the header: MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
        if let [_, 1, _, 0, 0, 1, 1, ..] = message[..] {
            message.truncate(14);
            message.extend([1, 1, 1, 5]);
        }
    };
    passes(Faults::sending(sent), &["WRCH-05", "WRCH-06"]);
}

#[test]
fn mark_beyond_one_may_be_taken_for_a_valid_one() {
    let received: fn(&mut Vec<u8>) = |message| {
        for at in (16..28).step_by(4) {
            if message.get(at..at + 4) == Some(&[0, 0, 0, 2]) {
                message[at + 3] = 0;
            }
        }
    };
    let report = passes(Faults::receiving(received), &["HDR-14", "HDR-15", "HDR-16"]);
    for finding in &report.findings {
        assert_eq!(finding.level, Level::Robustness, "{finding:?}");
    }
}

#[test]
fn large_read_chunk_may_be_pulled_until_its_memory_ends() {
    fn segment_has(message: &mut [u8], length: u32) {
        if let Some(place) = message.get_mut(28..32)
            && *place == u32::MAX.to_be_bytes()
        {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
    // The call alone, and beyond it, which ends the connection.
    receiving(|message| segment_has(message, 40), &["RDCH-09"]);
    receiving(|message| segment_has(message, 8192), &["RDCH-09"]);
}

#[test]
fn private_data_behind_something_else_may_be_taken_for_none() {
    let told: fn(&mut Vec<u8>) = |data| {
        if !data.starts_with(&[0xf6, 0xab, 0x0e, 0x18]) {
            data.clear();
        }
    };
    let faults = Faults {
        told: Some(told),
        ..Faults::default()
    };
    let report = passes(faults, &["PD-03", "PD-05"]);
    let level = |code| {
        let found = report.findings.iter().find(|finding| finding.code == code);
        found.map(|finding| finding.level)
    };
    assert_eq!(level("PD-03"), Some(Level::Must));
    assert_eq!(level("PD-05"), Some(Level::Robustness));
}
