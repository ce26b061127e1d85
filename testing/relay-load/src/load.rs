//! One file on a server, and what is measured with it.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nfs_client::Export;
use nfs_proto::{FileHandle, SetAttributes, Stable};
use serde_json::json;

use crate::connection::Connection;

/// Bytes of one READ and WRITE.
const BLOCK: u32 = 1 << 20;

/// READs and WRITEs in flight.
const DEPTH: usize = 8;

/// Calls of a warm-up are this fraction of the measured time.
const WARM_UP: u32 = 10;

/// A file of so many blocks.
pub(crate) struct File {
    export: Export<Connection>,
    handle: FileHandle,
    blocks: u64,
}

impl File {
    /// Finds the file, or makes an empty one.
    ///
    /// # Errors
    ///
    /// It is not there and cannot be made, or the server transfers less than a block with a call.
    pub(crate) async fn open(export: Export<Connection>, name: &str, blocks: u64) -> Result<Self> {
        let info = export.info();
        ensure!(
            info.read_max >= BLOCK && info.write_max >= BLOCK,
            "READs of {} and WRITEs of {} bytes are the largest here",
            info.read_max,
            info.write_max
        );
        let handle = match export.stat(name).await {
            Ok(node) => node.handle,
            Err(_) => {
                let all = SetAttributes::default();
                export.write_all(name, Bytes::new(), all).await?;
                export.stat(name).await?.handle
            }
        };
        Ok(Self {
            export,
            handle,
            blocks,
        })
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.blocks * u64::from(BLOCK)
    }

    /// Writes the whole file, reads it, and compares.
    ///
    /// # Errors
    ///
    /// A call failed, or other data came back.
    pub(crate) async fn check(&self) -> Result<()> {
        for number in 0..self.blocks {
            self.write_block(number, &block(number)).await?;
        }
        for number in 0..self.blocks {
            let offset = number * u64::from(BLOCK);
            let read = self.export.nfs().read(self.handle, offset, BLOCK).await?;
            let same = read.data.iter().flatten().eq(&block(number));
            ensure!(
                same,
                "block {number} is read with other data than was written"
            );
        }
        say("check", self.blocks as f64);
        Ok(())
    }

    /// Median time of NULL, one call after the other.
    ///
    /// # Errors
    ///
    /// A call failed. So for all that is measured.
    pub(crate) async fn null(&self, time: Duration) -> Result<()> {
        let nfs = self.export.nfs();
        say("null", median(time, async || Ok(nfs.null().await?)).await?);
        Ok(())
    }

    /// Median time of GETATTR, one call after the other.
    pub(crate) async fn getattr(&self, time: Duration) -> Result<()> {
        let nfs = self.export.nfs();
        let call = async || {
            nfs.get_attributes(self.handle).await?;
            Ok(())
        };
        say("getattr", median(time, call).await?);
        Ok(())
    }

    /// Rate of READs.
    pub(crate) async fn read(&self, time: Duration) -> Result<()> {
        let call = async |number: u64| {
            self.read_part(number % self.blocks * u64::from(BLOCK), BLOCK)
                .await?;
            Ok(())
        };
        say("read", rate(time, call).await?);
        Ok(())
    }

    /// Reads a part of the file, and returns its first word.
    ///
    /// # Errors
    ///
    /// The call failed, or another number of bytes came back.
    pub(crate) async fn read_part(&self, offset: u64, len: u32) -> Result<u64> {
        let read = self.export.nfs().read(self.handle, offset, len).await?;
        let got: usize = read.data.iter().map(Bytes::len).sum();
        ensure!(got == len as usize, "a READ came with {got} bytes");
        let mut word = [0; 8];
        for (byte, read) in word.iter_mut().zip(read.data.iter().flatten()) {
            *byte = *read;
        }
        Ok(u64::from_be_bytes(word))
    }

    /// Rate of WRITEs.
    pub(crate) async fn write(&self, time: Duration) -> Result<()> {
        let data = block(0);
        let call = async |number: u64| self.write_block(number % self.blocks, &data).await;
        say("write", rate(time, call).await?);
        Ok(())
    }

    async fn write_block(&self, number: u64, data: &Bytes) -> Result<()> {
        let offset = number * u64::from(BLOCK);
        let data = std::iter::once(data.clone()).collect();
        let nfs = self.export.nfs();
        let wrote = { nfs.write(self.handle, offset, data, Stable::Unstable) }.await?;
        ensure!(
            wrote.count == BLOCK as usize,
            "a WRITE wrote {} bytes",
            wrote.count
        );
        Ok(())
    }
}

/// Data that differs from block to block and within it.
fn block(number: u64) -> Bytes {
    let first = number * u64::from(BLOCK);
    let words = (0..u64::from(BLOCK / 8)).map(|at| word(first + at * 8));
    words.flat_map(u64::to_be_bytes).collect()
}

/// The word at this offset of the file.
pub(crate) fn word(offset: u64) -> u64 {
    let (number, at) = (offset / u64::from(BLOCK), offset % u64::from(BLOCK) / 8);
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number
}

/// Microseconds of a call, as the median of all that are made within this time.
async fn median(time: Duration, call: impl AsyncFn() -> Result<()>) -> Result<f64> {
    let warm = Instant::now();
    while warm.elapsed() < time / WARM_UP {
        call().await?;
    }
    let mut took = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let start = Instant::now();
        call().await?;
        took.push(start.elapsed());
    }
    took.sort();
    let median = took.get(took.len() / 2).context("no call was made")?;
    Ok(median.as_secs_f64() * 1e6)
}

/// MiB in a second of calls for one block, of which [`DEPTH`] are in flight.
async fn rate(time: Duration, call: impl AsyncFn(u64) -> Result<()>) -> Result<f64> {
    let next = Cell::new(0_u64);
    let done = Cell::new(0_u32);
    let start = Instant::now();
    // Set when the warm-up is over: when, and how many calls had been made.
    let begun = Cell::new(None);
    let one_after_the_other = async || {
        while start.elapsed() < time / WARM_UP + time {
            if begun.get().is_none() && start.elapsed() >= time / WARM_UP {
                begun.set(Some((Instant::now(), done.get())));
            }
            let number = next.replace(next.get() + 1);
            call(number).await?;
            done.set(done.get() + 1);
        }
        anyhow::Ok(())
    };
    all(std::array::from_fn::<_, DEPTH, _>(|_| {
        one_after_the_other()
    }))
    .await?;
    let (begun, before) = begun.get().context("no call was made")?;
    let blocks = f64::from(done.get() - before);
    Ok(blocks * f64::from(BLOCK >> 20) / begun.elapsed().as_secs_f64())
}

/// Runs futures on this task until all have ended.
async fn all<F: Future<Output = Result<()>>, const N: usize>(futures: [F; N]) -> Result<()> {
    let mut running: Vec<_> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    std::future::poll_fn(|cx| {
        for slot in &mut running {
            let Some(future) = slot else { continue };
            if let std::task::Poll::Ready(result) = future.as_mut().poll(cx) {
                *slot = None;
                result?;
            }
        }
        match running.iter().all(Option::is_none) {
            true => std::task::Poll::Ready(Ok(())),
            false => std::task::Poll::Pending,
        }
    })
    .await
}

fn say(what: &str, value: f64) {
    println!("{}", json!({ "what": what, "value": value }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_the_file_is_known_by_its_first_word() {
        let data = block(3);
        let at = 5 * 4096;
        assert_eq!(data[at..at + 8], word((3 << 20) + (5 << 12)).to_be_bytes());
        let parts = 1 << 16;
        let words: std::collections::HashSet<u64> =
            (0..parts).map(|part| word(part << 12)).collect();
        assert_eq!(words.len() as u64, parts);
    }
}
