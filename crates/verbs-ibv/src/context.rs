//! Owned values around the list of devices and an open device.

#![expect(
    unsafe_code,
    reason = "devices belong to a library in C, which is called through pointers"
)]

use crate::error::OpenError;
use crate::library::Libraries;
use crate::sys::{
    IBV_MW_TYPE_2, ibv_context, ibv_device, ibv_device_attr, ibv_gid_entry, ibv_pd, ibv_port_attr,
};
use libc::c_int;
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::ptr::NonNull;

/// Entries of the table of addresses of one device that are read, whatever the device claims: as many as fit into an
/// attribute of a command, whose length has 16 bits.
const MAX_GID_ENTRIES: usize = u16::MAX as usize / size_of::<ibv_gid_entry>();

/// The devices of this machine at one time.
pub(crate) struct DeviceList {
    libraries: &'static Libraries,
    list: NonNull<*mut ibv_device>,
    length: usize,
}

impl DeviceList {
    pub(crate) fn new(libraries: &'static Libraries) -> Result<Self, OpenError> {
        let mut length: c_int = 0;
        // SAFETY: The function writes the length to a valid place, and returns null or a list of that length.
        let list = unsafe { (libraries.verbs.ibv_get_device_list)(&raw mut length) };
        let Some(list) = NonNull::new(list) else {
            let reason = io::Error::last_os_error().to_string();
            return Err(OpenError::List { reason });
        };
        let length = usize::try_from(length).unwrap_or(0);
        Ok(Self {
            libraries,
            list,
            length,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    fn device(&self, index: usize) -> NonNull<ibv_device> {
        assert!(index < self.length, "the list has {} devices", self.length);
        // SAFETY: The list has `length` pointers, none of which is null, until it is freed on drop.
        unsafe { NonNull::new_unchecked(*self.list.as_ptr().add(index)) }
    }

    pub(crate) fn name(&self, index: usize) -> String {
        // SAFETY: The device is valid while the list is; its name is a string with an end, inside of it.
        let name = unsafe {
            CStr::from_ptr((self.libraries.verbs.ibv_get_device_name)(
                self.device(index).as_ptr(),
            ))
        };
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn node_type(&self, index: usize) -> c_int {
        // SAFETY: The device is valid while the list is.
        unsafe { (*self.device(index).as_ptr()).node_type }
    }

    pub(crate) fn transport_type(&self, index: usize) -> c_int {
        // SAFETY: The device is valid while the list is.
        unsafe { (*self.device(index).as_ptr()).transport_type }
    }

    /// Opens a device. It stays open when the list is dropped.
    pub(crate) fn open(&self, index: usize) -> io::Result<Context> {
        // SAFETY: The device is valid while the list is. What is opened holds the device itself.
        let context =
            unsafe { (self.libraries.verbs.ibv_open_device)(self.device(index).as_ptr()) };
        let context = NonNull::new(context).ok_or_else(io::Error::last_os_error)?;
        Ok(Context {
            libraries: self.libraries,
            context,
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: The list came from `ibv_get_device_list` and nobody uses it any more.
        unsafe { (self.libraries.verbs.ibv_free_device_list)(self.list.as_ptr()) };
    }
}

/// An open device.
pub(crate) struct Context {
    libraries: &'static Libraries,
    context: NonNull<ibv_context>,
}

impl Context {
    pub(crate) fn attributes(&self) -> io::Result<ibv_device_attr> {
        device_attributes(self.libraries, self.context)
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<ibv_port_attr> {
        port_attributes(self.libraries, self.context, number)
    }

    /// The addresses of a port. A device whose table cannot be read has none.
    pub(crate) fn gids(&self, port: u8, attributes: &ibv_port_attr) -> Vec<ibv_gid_entry> {
        if attributes.gid_tbl_len <= 0 {
            return Vec::new();
        }
        let mut entries = vec![ibv_gid_entry::default(); MAX_GID_ENTRIES];
        // SAFETY: The device is open, and there is room for as many entries of this size as are asked for.
        let found = unsafe {
            (self.libraries.verbs._ibv_query_gid_table)(
                self.context.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        entries.truncate(usize::try_from(found).unwrap_or(0));
        entries.retain(|entry| entry.port_num == u32::from(port));
        entries
    }

    /// Allocates a memory window of type 2 and gives it back.
    pub(crate) fn try_window(&self) -> io::Result<()> {
        let domain = Domain::new(self)?;
        // SAFETY: The device is open, and its table of functions does not change.
        let ops = unsafe { &(*self.context.as_ptr()).ops };
        let (Some(alloc), Some(dealloc)) = (ops.alloc_mw, ops.dealloc_mw) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: The protection domain is valid. The caller of `ibv_alloc_mw` completes what the driver leaves out.
        let window = unsafe { alloc(domain.domain.as_ptr(), IBV_MW_TYPE_2) };
        let window = NonNull::new(window).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: The window was just allocated and is bound to nothing.
        let failed = unsafe {
            (*window.as_ptr()).context = self.context.as_ptr();
            (*window.as_ptr()).pd = domain.domain.as_ptr();
            (*window.as_ptr()).r#type = IBV_MW_TYPE_2;
            dealloc(window.as_ptr())
        };
        if failed == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(failed))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: The device was opened by `ibv_open_device`, and all that was made of it borrows this value.
        unsafe { (self.libraries.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// A protection domain of an open device, for a moment.
struct Domain<'a> {
    context: &'a Context,
    domain: NonNull<ibv_pd>,
}

impl<'a> Domain<'a> {
    fn new(context: &'a Context) -> io::Result<Self> {
        // SAFETY: The device is open.
        let domain = unsafe { (context.libraries.verbs.ibv_alloc_pd)(context.context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { context, domain })
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: The domain came from `ibv_alloc_pd`, and nothing of it is left.
        unsafe { (self.context.libraries.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Attributes of an open device, whoever opened it.
pub(crate) fn device_attributes(
    libraries: &Libraries,
    context: NonNull<ibv_context>,
) -> io::Result<ibv_device_attr> {
    // SAFETY: All fields are numbers, for which zero is valid.
    let mut attributes: ibv_device_attr = unsafe { zeroed() };
    // SAFETY: The caller has the device open; the function writes one structure of this layout.
    let failed =
        unsafe { (libraries.verbs.ibv_query_device)(context.as_ptr(), &raw mut attributes) };
    if failed == 0 {
        Ok(attributes)
    } else {
        Err(io::Error::from_raw_os_error(failed))
    }
}

/// Attributes of a port of an open device, whoever opened it.
pub(crate) fn port_attributes(
    libraries: &Libraries,
    context: NonNull<ibv_context>,
    port: u8,
) -> io::Result<ibv_port_attr> {
    // SAFETY: All fields are numbers, for which zero is valid.
    let mut attributes: ibv_port_attr = unsafe { zeroed() };
    // SAFETY: The caller has the device open; the function writes at most one structure of this layout: it leaves out
    // the last fields, which came later.
    let failed =
        unsafe { (libraries.verbs.ibv_query_port)(context.as_ptr(), port, &raw mut attributes) };
    if failed == 0 {
        Ok(attributes)
    } else {
        Err(io::Error::from_raw_os_error(failed))
    }
}

/// Transport of an open device, whoever opened it.
pub(crate) fn transport_of(context: NonNull<ibv_context>) -> c_int {
    // SAFETY: The caller has the device open, which so has a description.
    unsafe { (*(*context.as_ptr()).device).transport_type }
}

/// Name of an open device, whoever opened it.
pub(crate) fn device_name(libraries: &Libraries, context: NonNull<ibv_context>) -> String {
    // SAFETY: The caller has the device open, which so has a description; the name is a string with an end in it.
    let name = unsafe {
        CStr::from_ptr((libraries.verbs.ibv_get_device_name)(
            (*context.as_ptr()).device,
        ))
    };
    name.to_string_lossy().into_owned()
}

/// Name of a network interface.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: There is room for the longest name and its end.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: The function wrote a string with an end to `name`.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}
