//! The data of a stream, a FIFO or a device on its way to a server: read in order, to its end.

use super::Put;
use crate::attributes::Wanted;
use crate::error::{Context, Error, Result};
use crate::made_names::Made;
use crate::show;
use buffer::{Buffer, Pool};
use nfs_proto::FileHandle;
use oncrpc::xdr::Gather;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tokio::sync::mpsc;

/// Bytes of a piece.
const READ_SIZE: usize = 1 << 20;

impl Put {
    /// Copies what is read from here.
    pub(super) async fn stream(
        &self,
        source: &Path,
        wanted: &Wanted,
        (dir, to, made): (FileHandle, &[u8], &Made),
    ) -> Result<()> {
        let to = (&*self.export, dir, to);
        let sent =
            self.shared
                .upload(to, made, 0, wanted, None, async |upload| {
                    let mut pieces = read(source, self.input.clone(), &self.pool)?;
                    while let Some(piece) = pieces.recv().await {
                        let piece = match self.input {
                            Some(_) => piece.map_err(Error::Input)?,
                            None => piece
                                .with_context(|| format!("{}: cannot read", show::path(source)))?,
                        };
                        let len = piece.len() as u64;
                        upload.write(Gather::from_elem(piece.freeze(), 1)).await?;
                        self.shared.events.transferred(len);
                    }
                    Ok(())
                });
        sent.await?.set
    }
}

/// Reads on a thread of its own, one piece ahead. Nobody waits for the thread after an interrupt: it may wait for
/// a writer for ever.
fn read(
    source: &Path,
    input: Option<Arc<File>>,
    pool: &Pool,
) -> Result<mpsc::Receiver<io::Result<Buffer>>> {
    let (pieces, next) = mpsc::channel(1);
    let (source, pool) = (source.to_owned(), pool.clone());
    let read = move || {
        let opened = match input {
            Some(input) => Ok(input),
            None => File::open(&source).map(Arc::new),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                // Nobody wants to know after an interrupt.
                let _ = pieces.blocking_send(Err(error));
                return;
            }
        };
        loop {
            let piece = read_piece(&file, &pool);
            let is_last = !matches!(&piece, Ok(piece) if piece.len() == READ_SIZE);
            if matches!(&piece, Ok(piece) if piece.is_empty())
                || pieces.blocking_send(piece).is_err()
                || is_last
            {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("input".to_owned()).spawn(read);
    thread.context("cannot start a thread")?;
    Ok(next)
}

/// A whole piece, or what there is before the end.
fn read_piece(mut file: &File, pool: &Pool) -> io::Result<Buffer> {
    let mut piece = pool.take(READ_SIZE);
    let mut len = 0;
    while len < READ_SIZE {
        match file.read(&mut piece.memory_mut()[len..READ_SIZE]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.set_len(len);
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pieces_are_whole_however_little_comes_at_a_time() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let data: Vec<u8> = (0..=250).cycle().take(READ_SIZE + 77).collect();
        let sent = data.clone();
        let writes = thread::spawn(move || {
            for part in sent.chunks(1000) {
                writer.write_all(part).unwrap();
            }
        });
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let pool = Pool::new(0);
        let read = || read_piece(&file, &pool).unwrap().to_vec();
        let pieces = [read(), read(), read()];
        writes.join().unwrap();
        assert_eq!(pieces.concat(), data);
        assert_eq!(pieces[1].len(), 77);
        assert!(pieces[2].is_empty());
    }
}
