//! The file of the device, which is removed with it, and the descriptors that librdmacm has of it.

#![expect(
    unsafe_code,
    reason = "descriptors belong to an object that its users know by a pointer"
)]

use super::{Fake, PATIENCE, cm, device_entry, with};
use crate::device_events;
use crate::sys::ibv_context;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Instant;

impl Fake {
    /// The kernel takes the device away from all who have it, and there is none until [`Fake::plug_in`].
    pub(crate) fn unplug(&self) {
        with(|model| model.has_device = false);
        cm::removal();
        self.take_from_programs();
    }

    /// The same before the connection manager is told, if the device has a file.
    pub(crate) fn take_from_programs(&self) {
        if let Some(fd) = with(|model| model.device_file.as_ref().map(OwnedFd::as_raw_fd)) {
            std::fs::remove_file(device_entry(fd, 0)).unwrap();
        }
    }

    /// The device has a file, so that its removal can be seen. The test removes it, and waits until it is let go.
    pub(crate) fn give_device_a_file(&self) {
        let file = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
        let fd = file.as_raw_fd();
        std::fs::write(device_entry(fd, 0), "").unwrap();
        with(|model| {
            // SAFETY: The context lives as long as the model.
            unsafe { (*(model.context as *mut ibv_context)).cmd_fd = fd };
            model.device_file = Some(file);
        });
    }

    /// The device is removed and returns, with the same number, between two looks for it.
    pub(crate) fn replug(&self) {
        let fd = with(|model| model.device_file.as_ref().map(OwnedFd::as_raw_fd));
        let entry = device_entry(fd.expect("a device with a file"), 0);
        let returned = entry.with_extension("returned");
        std::fs::write(&returned, "").unwrap();
        std::fs::rename(&returned, &entry).unwrap();
    }

    /// librdmacm closes the device, and descriptors that others open get its numbers: one of the same device and another
    /// counter of events.
    pub(crate) fn reuse_descriptors(&self) {
        let file = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
        with(|model| {
            let events = model.descriptors[&model.context].as_raw_fd();
            let device = model.device_file.as_ref().expect("a device with a file");
            // SAFETY: The descriptors are open, and the model's own. The new counter is owned by nobody else.
            unsafe {
                let counter = OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC));
                libc::dup3(counter.as_raw_fd(), events, libc::O_CLOEXEC);
                libc::dup3(file.as_raw_fd(), device.as_raw_fd(), libc::O_CLOEXEC);
            }
        });
    }

    /// Waits until the removal of the device is known.
    pub(crate) fn until_removal_is_known(&self) {
        self.until_device(|removed| removed == Some(true));
    }

    /// Waits until nobody has the device in use, or waits for its removal.
    pub(crate) fn until_device_is_unwatched(&self) {
        self.until_device(|removed| removed.is_none());
    }

    fn until_device(&self, is_so: impl Fn(Option<bool>) -> bool) {
        let context = with(|model| model.context);
        let begun = Instant::now();
        while !is_so(device_events::is_removed(context)) {
            assert!(begun.elapsed() < PATIENCE, "the device is as it was");
            std::thread::yield_now();
        }
    }

    /// There is a device again, which librdmacm opens when it is needed: without a file of this model.
    pub(crate) fn plug_in(&self) {
        with(|model| {
            model.has_device = true;
            // SAFETY: The context lives as long as the model.
            unsafe { (*(model.context as *mut ibv_context)).cmd_fd = -1 };
        });
    }

    /// Whether the descriptors of the device that librdmacm has open lead to it no more.
    pub(crate) fn device_is_let_go(&self) -> bool {
        let leads_nowhere = |fd: &OwnedFd| {
            let target = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            target.is_ok_and(|target| target == Path::new("/dev/null"))
        };
        with(|model| {
            leads_nowhere(&model.descriptors[&model.context])
                && model.device_file.as_ref().is_some_and(leads_nowhere)
        })
    }

    /// Waits for that, which takes as long as a look for the device.
    pub(crate) fn until_device_is_let_go(&self) {
        let begun = Instant::now();
        while !self.device_is_let_go() {
            assert!(begun.elapsed() < PATIENCE, "the device is not let go");
            std::thread::yield_now();
        }
    }
}
