//! MPA frames over a socket.

use iwarp_proto::mpa::{Frame, FrameError, FrameReader};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes to read at a time: the longest frame.
const CHUNK: usize = 20 + iwarp_proto::mpa::MAX_PRIVATE_DATA;

/// How long a peer is given to read a last frame before the connection is dropped.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(1);

/// Why there is no frame.
pub(crate) enum NoFrame {
    /// The peer closed the stream before it sent anything.
    Closed,
    /// The peer closed the stream within a frame.
    Torn,
    /// The peer sent something that is no valid frame.
    Frame(FrameError),
    /// The TCP connection failed.
    Io(io::Error),
}

/// Reads one frame and not a byte more. What came is in the reader, however it ends.
pub(crate) async fn read_frame(
    stream: &mut TcpStream,
    reader: &mut FrameReader,
) -> Result<Frame, NoFrame> {
    let mut chunk = [0; CHUNK];
    loop {
        let wanted = reader.wanted().min(CHUNK);
        let read = match stream.read(&mut chunk[..wanted]).await {
            Ok(read) => read,
            // An old peer may drop what it does not understand without reading all of it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(NoFrame::Io(error)),
        };
        if read == 0 {
            return Err(match reader.is_empty() {
                true => NoFrame::Closed,
                false => NoFrame::Torn,
            });
        }
        if let Some(frame) = reader.take(&chunk[..read]).map_err(NoFrame::Frame)? {
            return Ok(frame);
        }
    }
}

/// Writes one frame.
pub(crate) async fn write_frame(stream: &mut TcpStream, frame: &Frame) -> io::Result<()> {
    stream.write_all(&frame.emit()).await
}

/// Closes our half and waits for the peer to close its own, so that it reads our last words: a
/// socket that is dropped with bytes unread takes them back.
pub(crate) async fn last_word(mut stream: TcpStream) {
    let end = async {
        stream.shutdown().await?;
        let mut chunk = [0; CHUNK];
        while stream.read(&mut chunk).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether the peer was in time, or is gone, it is over.
    let _ = tokio::time::timeout(LAST_WORD, end).await;
}
