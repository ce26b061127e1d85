//! Standard streams that were closed when the process began.
//!
//! The standard library opens `/dev/null` in the place of a closed standard stream before `main`, so
//! that no file gets its number. A program then reads nothing and takes that for an empty input, or
//! writes an output that is lost. So this looks at the descriptors before the library does.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// One of the descriptors 0, 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

/// A bit for each descriptor that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Notes which of the descriptors are closed.
extern "C" fn look() {
    let mut closed = 0;
    for fd in 0..=2 {
        // SAFETY: F_GETFD takes no pointer, and any number: of one that is no descriptor it says so.
        #[allow(
            unsafe_code,
            reason = "descriptors that may be closed have no safe wrapper"
        )]
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        closed |= u8::from(flags == -1) << fd;
    }
    CLOSED.store(closed, Relaxed);
}

/// The loader calls what is in this section before `main`, and so before the standard library begins.
#[allow(unsafe_code, reason = "there is no safe way to run before the library")]
// SAFETY: the section is an array of pointers to functions of the C calling convention, which may be
// called without arguments. The C library is initialised by then; `look` uses it and an atomic alone.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Returns whether a standard stream was closed when the process began. Since then it is `/dev/null`.
pub fn was_closed(stream: StandardStream) -> bool {
    // A use of it, so that it is linked with this function.
    std::hint::black_box(&raw const LOOK);
    CLOSED.load(Relaxed) & 1 << stream as u8 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// In this environment the test below is the process whose streams are closed.
    const CHILD: &str = "STANDARD_STREAMS_OF_A_TEST";

    #[test]
    fn streams_that_were_closed_are_known() {
        if let Ok(closed) = std::env::var(CHILD) {
            use StandardStream::{Error, Input, Output};
            for (stream, number) in [(Input, '0'), (Output, '1'), (Error, '2')] {
                assert_eq!(was_closed(stream), closed.contains(number), "{stream:?}");
            }
            return;
        }
        for (closed, script) in [
            ("", "exec \"$@\""),
            ("0", "exec \"$@\" <&-"),
            ("1", "exec \"$@\" >&-"),
            ("02", "exec \"$@\" <&- 2>&-"),
        ] {
            let this = std::env::current_exe().unwrap();
            let name = "standard_streams::tests::streams_that_were_closed_are_known";
            let status = Command::new("sh")
                .args(["-c", script, "sh"])
                .arg(this)
                .args(["--exact", name])
                .env(CHILD, closed)
                .status()
                .unwrap();
            assert!(status.success(), "{script}");
        }
    }
}
