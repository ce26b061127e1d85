//! Memory that the peer may access: windows onto it, or registrations for one use.

#![expect(
    unsafe_code,
    reason = "memory is registered by its address, and copied while the device may use it"
)]

use crate::ending;
use crate::memory::Region;
use crate::posting::remote_access;
use crate::queue_pair::IbvQp;
use crate::sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND};
use crate::work::{Exposed, Work};
use buffer::{Buffer, Gather};
use std::io;
use std::ptr::{copy_nonoverlapping, with_exposed_provenance_mut};
use std::sync::Arc;
use verbs::{Access, Handle, Memory, NotPersistent, RegisterError, RemoteAddress};

/// Registered memory that is about to be exposed.
struct Prepared {
    region: Arc<Region>,
    copy: Option<Buffer>,
    start: usize,
    length: usize,
}

impl IbvQp {
    /// Opens memory to the peer.
    pub(crate) fn expose(&mut self, mut memory: Memory) -> Result<RemoteAddress, RegisterError> {
        if !self.is_open() {
            return Err(RegisterError::Closed(memory));
        }
        let in_parts = matches!(memory, Memory::Parts(_));
        if in_parts || memory.is_empty() || memory.len() > self.limits.max_region {
            return Err(RegisterError::Size(memory));
        }
        if self.exposed.len() >= self.limits.regions {
            return Err(RegisterError::Full(memory));
        }
        let prepared = match &mut memory {
            Memory::Source(pieces) => self.prepare_source(pieces),
            Memory::Sink(buffer) => self.prepare_buffer(buffer, Access::Write),
            Memory::Persistent(access, buffer) => self.prepare_buffer(buffer, *access),
            Memory::Parts(_) => unreachable!("refused above: `Limits::parts` is 0"),
        };
        let exposed = prepared.and_then(|prepared| Ok((prepared, self.new_window()?)));
        let (prepared, window) = match exposed {
            Ok(exposed) => exposed,
            // Its owner could not go on, and would not know why.
            Err(error) => {
                self.end(ending::system(error));
                return Err(RegisterError::Closed(memory));
            }
        };
        let Prepared {
            region,
            copy,
            start,
            length,
        } = prepared;
        let handle = Handle(match &window {
            Some(window) => window.next_key(),
            None => region.remote_key(),
        });
        if window.is_some() {
            self.queue.push_back(Work::Bind { handle });
        }
        let exposed = Exposed {
            window,
            region,
            _copy: copy,
            memory,
            start,
            length,
            ending: false,
        };
        self.exposed.insert(handle.0, exposed);
        Ok(RemoteAddress {
            handle,
            offset: start as u64,
        })
    }

    fn new_window(&mut self) -> io::Result<Option<crate::windows::FreeWindow>> {
        if !self.windows_used {
            return Ok(None);
        }
        let mut windows = std::mem::take(&mut self.windows);
        let window = match self.hardware() {
            Some(hardware) => windows.take(&hardware.adapter.domain),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.windows = windows;
        window.map(Some)
    }

    /// Access rights of a registration for one use.
    fn rights(&self, access: Access) -> u32 {
        let write = match access {
            Access::Read => 0,
            Access::Write => IBV_ACCESS_LOCAL_WRITE,
        };
        let remote = if self.windows_used {
            IBV_ACCESS_MW_BIND
        } else {
            remote_access(access)
        };
        write | remote
    }

    fn prepare_buffer(&mut self, buffer: &mut Buffer, access: Access) -> io::Result<Prepared> {
        let (windows_used, rights) = (self.windows_used, self.rights(access));
        let Some(hardware) = self.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let domain = &hardware.adapter.domain;
        let mut made = 0;
        let region = if windows_used {
            // SAFETY: The buffer goes to `exposed` with its region, which is dropped first.
            unsafe { domain.region_of(buffer, &mut made)? }
        } else {
            None
        };
        let memory = buffer.memory_mut();
        let (start, length) = (memory.as_mut_ptr(), memory.len());
        let region = match region {
            Some(region) => region,
            None => {
                made += 1;
                // SAFETY: The buffer goes to `exposed` with its region, which is dropped first. Until then nobody
                // looks at its memory but by raw pointers.
                Arc::new(unsafe { domain.register(start, length, rights)? })
            }
        };
        self.io.work.registrations += made;
        Ok(Prepared {
            region,
            copy: None,
            start: start.expose_provenance(),
            length,
        })
    }

    /// One piece is exposed where it is, if it can be registered. Several are copied into one.
    fn prepare_source(&mut self, pieces: &Gather) -> io::Result<Prepared> {
        let rights = self.rights(Access::Read);
        let (windows_used, pool) = (self.windows_used, self.pool.clone());
        let Some(hardware) = self.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let adapter = &hardware.adapter;
        let domain = &adapter.domain;
        let mut parts = pieces.iter().filter(|piece| !piece.is_empty());
        if let (Some(part), None) = (parts.next(), parts.next()) {
            // Software RoCE holds accesses to the bounds of the region, and not to those of the window.
            let found = if windows_used && !adapter.is_soft_roce {
                domain.find(part)
            } else {
                None
            };
            let mut made = 0;
            let registered = found.map(Ok).unwrap_or_else(|| {
                made += 1;
                // SAFETY: The bytes go to `exposed` with their region, which is dropped first. It gives nobody the
                // right to write.
                let region =
                    unsafe { domain.register(part.as_ptr().cast_mut(), part.len(), rights) };
                region.map(Arc::new)
            });
            match registered {
                Ok(region) => {
                    self.io.work.registrations += made;
                    return Ok(Prepared {
                        region,
                        copy: None,
                        start: part.as_ptr().expose_provenance(),
                        length: part.len(),
                    });
                }
                // Memory that is mapped for reading only cannot be registered for a window.
                Err(error) => tracing::debug!(%error, "a source is copied"),
            }
        }
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let mut copy = pool.take(length);
        for piece in pieces {
            copy.extend_from_slice(piece);
        }
        let start = copy.memory_mut().as_mut_ptr();
        // SAFETY: The copy goes to `exposed` with its region, which is dropped first.
        let region = unsafe { domain.register(start, length, rights)? };
        self.io.work.registrations += 1;
        self.io.bytes_copied += length as u64;
        Ok(Prepared {
            region: Arc::new(region),
            start: start.expose_provenance(),
            copy: Some(copy),
            length,
        })
    }

    /// Address at which a range of persistent memory begins.
    fn persistent(
        &self,
        handle: Handle,
        offset: usize,
        length: usize,
    ) -> Result<*mut u8, NotPersistent> {
        let exposed = self.exposed.get(&handle.0);
        let exposed = exposed.filter(|exposed| {
            let end = offset.checked_add(length);
            exposed.is_persistent() && end.is_some_and(|end| end <= exposed.length)
        });
        match exposed {
            Some(exposed) => Ok(with_exposed_provenance_mut(exposed.start + offset)),
            None => Err(NotPersistent(handle)),
        }
    }

    pub(crate) fn copy_to_exposed(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        let place = self.persistent(handle, offset, bytes.len())?;
        // SAFETY: The range is within memory that `exposed` owns and that nobody has a reference to. A peer that reads
        // it at the same time gets bytes from before or after, as the interface says.
        unsafe { copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        Ok(())
    }

    pub(crate) fn copy_from_exposed(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        let place = self.persistent(handle, offset, bytes.len())?;
        // SAFETY: As above. The protocol above copies what the peer has said that it has written.
        unsafe { copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}
