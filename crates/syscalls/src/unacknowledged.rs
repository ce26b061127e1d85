//! Bytes in the send queue of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the number of bytes that were written to a TCP socket and that its peer has not
/// acknowledged (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
///
/// If the descriptor is not a connected socket.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one `int` through the pointer, which is valid for the call.
    #[allow(unsafe_code, reason = "this call has no safe wrapper")]
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match failed {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn bytes_for_which_the_peer_has_no_room_are_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(written) = near.write(&[0; 1 << 16]) {
            sent += written;
        }
        assert!(unacknowledged(near.as_fd()).unwrap() > 0);
        std::io::copy(&mut (&mut far).take(sent as u64), &mut std::io::sink()).unwrap();
        while unacknowledged(near.as_fd()).unwrap() > 0 {
            std::thread::yield_now();
        }
    }
}
