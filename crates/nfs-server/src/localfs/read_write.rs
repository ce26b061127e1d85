//! READ and WRITE: at once where the kernel need not wait, otherwise as a job.

use super::LocalFs;
use super::operations::data::{self, INLINE_WRITE, INLINE_WRITE_IN_MEMORY};
use super::sys::{Pace, Stop};
use crate::fs::{Changed, FileId, Identity, Outcome, ReadOut, Seen, Stability, WriteOut};
use oncrpc::xdr::{Gather, gather_len};
use std::sync::atomic::Ordering::Relaxed;

impl LocalFs {
    pub(super) fn read_data(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        let begin = || {
            if !self.layers.volume.local {
                return Err(Stop::WouldBlock);
            }
            let mut reading =
                data::begin_read(&self.layers, who, file, offset, count, Pace::Quick)?;
            let done = data::read_on(&self.layers, &mut reading, Pace::Quick)?;
            Ok((reading, done))
        };
        let begun = begin();
        self.layers.files.shed_if_exhausted();
        match begun {
            Ok((reading, true)) => Outcome::Ready(reading.finish()),
            Ok((mut reading, false)) => self.slow(file, move |layers| {
                data::read_on(layers, &mut reading, Pace::Patient)?;
                Ok(reading.finish())
            }),
            Err(Stop::Fail(error)) => Outcome::Ready(Seen::failed(error)),
            Err(Stop::WouldBlock) => {
                let who = who.clone();
                self.slow(file, move |layers| {
                    let mut reading =
                        data::begin_read(layers, &who, file, offset, count, Pace::Patient)?;
                    data::read_on(layers, &mut reading, Pace::Patient)?;
                    Ok(reading.finish())
                })
            }
        }
    }

    pub(super) fn write_data(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        let len = gather_len(&data);
        let stability = match stability {
            Stability::Unstable => Stability::Unstable,
            // With the data alone, the file could have its old times after a crash, and clients
            // with older data cached would go on using that.
            Stability::DataSync | Stability::FileSync => Stability::FileSync,
        };
        let (most, stability) = match self.layers.volume.memory {
            // In memory no sync makes data more stable, so the client need not keep it until a
            // COMMIT. Smaller writes stay unstable, which keeps the file open for the next one.
            true if len > INLINE_WRITE => (INLINE_WRITE_IN_MEMORY, Stability::FileSync),
            true | false => (INLINE_WRITE, stability),
        };
        let quick = len <= most
            && match self.layers.volume.memory {
                // File systems in memory do not support `RWF_NOWAIT`.
                true => self.layers.volume.changes_at_once(),
                false => {
                    stability == Stability::Unstable
                        && self.layers.volume.local
                        && self.layers.quick_writes.load(Relaxed)
                }
            };
        let mut written = 0;
        if quick {
            match data::write(
                &self.layers,
                who,
                file,
                (offset, &data),
                &mut written,
                stability,
                Pace::Quick,
            ) {
                Ok(changed) => return Outcome::Ready(changed),
                Err(Stop::Fail(error)) => return Outcome::Ready(Changed::failed(error)),
                Err(Stop::WouldBlock) => {}
            }
        }
        let who = who.clone();
        self.slow(file, move |layers| {
            let mut written = written;
            data::write(
                layers,
                &who,
                file,
                (offset, &data),
                &mut written,
                stability,
                Pace::Patient,
            )
        })
    }
}
