//! Protection domains, and memory that is registered in them.
//!
//! The memory of a pooled buffer is registered when it is first used, and stays registered as long as it exists: the
//! registration is attached to it. Other memory is registered for one use. No registration outlives its memory, so
//! that an address within a registered range is an address of that memory, for as long as somebody holds it.

#![expect(
    unsafe_code,
    reason = "memory is registered with a library in C, by its address"
)]

use crate::library::Libraries;
use crate::shortage::Object;
use crate::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_MW_TYPE_2, ibv_context, ibv_mr, ibv_mw, ibv_pd,
};
use buffer::Buffer;
use libc::c_int;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A protection domain of a device.
struct RawDomain {
    libraries: &'static Libraries,
    domain: NonNull<ibv_pd>,
}

// SAFETY: The verbs of libibverbs are thread-safe (ibv_alloc_pd(3) and its like keep no state of a thread).
unsafe impl Send for RawDomain {}
// SAFETY: As above.
unsafe impl Sync for RawDomain {}

impl Drop for RawDomain {
    fn drop(&mut self) {
        // SAFETY: The domain came from `ibv_alloc_pd`. Regions and windows in it hold this value, and the queue pair's
        // owner drops that first.
        let failed = unsafe { (self.libraries.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
        if failed != 0 {
            tracing::warn!(error = failed, "a protection domain is still in use");
        }
    }
}

/// A protection domain with the registrations that belong to buffers.
pub(crate) struct Domain {
    raw: Arc<RawDomain>,
    regions: Arc<Mutex<Regions>>,
    /// Access rights of the regions of buffers.
    access: u32,
}

/// Regions of the memory of buffers, by the address of their first byte. Regions are dropped under the lock, so that
/// none is left in the domain when its owner has emptied the table.
type Regions = BTreeMap<usize, Arc<Region>>;

impl Domain {
    /// Allocates a domain of a device, which must stay open as long as the domain exists.
    ///
    /// # Safety
    ///
    /// The device is open until the domain and everything in it is dropped.
    pub(crate) unsafe fn new(
        libraries: &'static Libraries,
        context: NonNull<ibv_context>,
        has_windows: bool,
    ) -> io::Result<Self> {
        // SAFETY: The device is open.
        let domain = unsafe { (libraries.verbs.ibv_alloc_pd)(context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| Object::Domain.refused_now())?;
        let binding = if has_windows { IBV_ACCESS_MW_BIND } else { 0 };
        Ok(Self {
            raw: Arc::new(RawDomain { libraries, domain }),
            regions: Arc::default(),
            access: IBV_ACCESS_LOCAL_WRITE | binding,
        })
    }

    pub(crate) fn as_ptr(&self) -> NonNull<ibv_pd> {
        self.raw.domain
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region of a buffer's whole memory, which is registered if it is not yet: until the memory is freed, if it
    /// belongs to a pool. `None` for no memory. Adds what was registered to `made`.
    ///
    /// # Safety
    ///
    /// The buffer is dropped behind the region.
    pub(crate) unsafe fn region_of(
        &self,
        buffer: &mut Buffer,
        made: &mut u64,
    ) -> io::Result<Option<Arc<Region>>> {
        let memory = buffer.whole_memory_mut();
        if memory.is_empty() {
            return Ok(None);
        }
        let (start, length) = (memory.as_mut_ptr(), memory.len());
        if let Some(region) = self.regions().get(&(start as usize)) {
            return Ok(Some(Arc::clone(region)));
        }
        // SAFETY: The memory is the buffer's own. With memory of a pool the region leaves the table before that is
        // freed; the caller keeps the buffer as long as it keeps the region.
        let region = Arc::new(unsafe { self.register(start, length, self.access)? });
        *made += 1;
        let mark = Mark {
            regions: Arc::downgrade(&self.regions),
            start: start as usize,
        };
        // Memory of no pool is registered for this use only.
        if buffer.attach(mark).is_ok() {
            // Behind the mark of before, which takes its own entry out.
            self.regions().insert(start as usize, Arc::clone(&region));
        }
        Ok(Some(region))
    }

    /// The region of a buffer in which these bytes are, if one is registered.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<Arc<Region>> {
        let start = bytes.as_ptr() as usize;
        let regions = self.regions();
        let (first, region) = regions.range(..=start).next_back()?;
        let end = start.checked_add(bytes.len())?;
        (end <= first + region.length).then(|| Arc::clone(region))
    }

    /// Registers memory for one use.
    ///
    /// # Safety
    ///
    /// The memory is valid until the region is dropped. If `access` lets the device or the peer write, nobody else has
    /// a reference to it.
    pub(crate) unsafe fn register(
        &self,
        start: *mut u8,
        length: usize,
        access: u32,
    ) -> io::Result<Region> {
        let access = c_int::try_from(access).unwrap_or_default();
        // SAFETY: The domain is valid; the caller answers for the memory.
        let region = unsafe {
            (self.raw.libraries.verbs.ibv_reg_mr)(
                self.raw.domain.as_ptr(),
                start.cast(),
                length,
                access,
            )
        };
        let region = NonNull::new(region).ok_or_else(|| Object::Region.refused_now())?;
        Ok(Region {
            domain: Arc::clone(&self.raw),
            region,
            length,
        })
    }

    /// Allocates a memory window of type 2, bound to nothing.
    pub(crate) fn window(&self) -> io::Result<Window> {
        let domain = self.raw.domain;
        // SAFETY: The domain is valid, and its device open.
        let (context, ops) = unsafe {
            let context = (*domain.as_ptr()).context;
            (context, &(*context).ops)
        };
        let (Some(alloc), Some(dealloc)) = (ops.alloc_mw, ops.dealloc_mw) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: The domain is valid.
        let window = unsafe { alloc(domain.as_ptr(), IBV_MW_TYPE_2) };
        let window = NonNull::new(window).ok_or_else(|| Object::Window.refused_now())?;
        // SAFETY: The window is valid and nobody else has it. `ibv_alloc_mw` leaves these fields to its caller.
        unsafe {
            (*window.as_ptr()).context = context;
            (*window.as_ptr()).pd = domain.as_ptr();
            (*window.as_ptr()).r#type = IBV_MW_TYPE_2;
        }
        Ok(Window {
            _domain: Arc::clone(&self.raw),
            window,
            dealloc,
        })
    }
}

impl Drop for Domain {
    /// Buffers may outlive the domain, in their pools. Their regions may not.
    fn drop(&mut self) {
        self.regions().clear();
    }
}

/// Is attached to the memory of a buffer that is registered.
struct Mark {
    regions: Weak<Mutex<Regions>>,
    start: usize,
}

impl Drop for Mark {
    /// The memory is about to be freed, or to be registered elsewhere.
    fn drop(&mut self) {
        if let Some(regions) = self.regions.upgrade() {
            let mut regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
            regions.remove(&self.start);
        }
    }
}

/// Registered memory (memory region).
pub(crate) struct Region {
    domain: Arc<RawDomain>,
    region: NonNull<ibv_mr>,
    length: usize,
}

// SAFETY: A region is used by its keys, and deregistered from whatever thread has it last.
unsafe impl Send for Region {}
// SAFETY: As above; nothing changes it.
unsafe impl Sync for Region {}

impl Region {
    /// Key for the device.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: The region is valid until it is dropped.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// Key for the peer.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: The region is valid until it is dropped.
        unsafe { (*self.region.as_ptr()).rkey }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<ibv_mr> {
        self.region
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let verbs = &self.domain.libraries.verbs;
        // SAFETY: The region came from `ibv_reg_mr`. Windows bound to it are gone: their owner drops them first.
        let failed = unsafe { (verbs.ibv_dereg_mr)(self.region.as_ptr()) };
        if failed != 0 {
            tracing::warn!(error = failed, "memory could not be deregistered");
        }
    }
}

/// A memory window of type 2.
pub(crate) struct Window {
    _domain: Arc<RawDomain>,
    window: NonNull<ibv_mw>,
    dealloc: unsafe extern "C" fn(*mut ibv_mw) -> c_int,
}

// SAFETY: A window has one owner, who may be on any thread.
unsafe impl Send for Window {}

impl Window {
    /// Key for the peer, as it was at the last binding.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: The window is valid until it is dropped.
        unsafe { (*self.window.as_ptr()).rkey }
    }

    /// Notes the key of a binding that was posted: the next one refers to it.
    pub(crate) fn set_key(&mut self, key: u32) {
        // SAFETY: The window is valid until it is dropped, and the library reads the key in calls of this thread only.
        unsafe { (*self.window.as_ptr()).rkey = key };
    }

    pub(crate) fn as_ptr(&self) -> NonNull<ibv_mw> {
        self.window
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: The window came from the driver's `alloc_mw`. One that is still bound loses its binding.
        let failed = unsafe { (self.dealloc)(self.window.as_ptr()) };
        if failed != 0 {
            tracing::warn!(error = failed, "a memory window could not be given back");
        }
    }
}
