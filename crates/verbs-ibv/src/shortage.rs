//! Objects of a device that cannot be made: what was refused, why, and what to do.

use std::fmt;
use std::io;

/// An object that the device, the kernel or a library makes for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    EventChannel,
    Identifier,
    Domain,
    CompletionChannel,
    CompletionQueue,
    QueuePair,
    Region,
    Window,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EventChannel => "channel to the RDMA connection manager",
            Self::Identifier => "identifier of the RDMA connection manager (CM ID)",
            Self::Domain => "protection domain",
            Self::CompletionChannel => "completion channel",
            Self::CompletionQueue => "completion queue",
            Self::QueuePair => "queue pair",
            Self::Region => "memory region",
            Self::Window => "memory window",
        })
    }
}

impl Object {
    /// The error of a call that should have made this, with its cause and its remedy. The kind stays.
    pub(crate) fn refused(self, error: &io::Error) -> io::Error {
        let text = match self.remedy(error) {
            Some(remedy) => format!("no further {self} can be made: {error}; {remedy}"),
            None => format!("no further {self} can be made: {error}"),
        };
        io::Error::new(error.kind(), text)
    }

    /// The same for the error number of the thread, just after the call.
    pub(crate) fn refused_now(self) -> io::Error {
        self.refused(&io::Error::last_os_error())
    }

    fn remedy(self, error: &io::Error) -> Option<&'static str> {
        Some(match (error.raw_os_error()?, self) {
            (libc::EMFILE | libc::ENFILE, _) => {
                "raise the limit of open files (ulimit -n, LimitNOFILE= of a service)"
            }
            (libc::ENOENT | libc::ENXIO | libc::ENODEV, Self::EventChannel) => {
                "load the module rdma_ucm (modprobe rdma_ucm)"
            }
            (libc::EACCES | libc::EPERM, Self::EventChannel | Self::Identifier) => {
                "/dev/infiniband/rdma_cm must be readable and writable for this user"
            }
            // With a limit of 0, some kernels do not even count.
            (libc::ENOMEM | libc::EPERM, Self::Region) => {
                "raise the limit of locked memory (ulimit -l, LimitMEMLOCK= of a service)"
            }
            (libc::EACCES | libc::EPERM, _) => {
                "/dev/infiniband/uverbs* must be readable and writable for this user"
            }
            (libc::EAGAIN, _) => {
                "a limit of locked memory (ulimit -l, LimitMEMLOCK= of a service) or of RDMA objects of its control group (rdma.max) is reached: raise it"
            }
            // Drivers lock the memory of queues.
            (libc::ENOMEM, Self::CompletionQueue | Self::QueuePair) => {
                "the device is used up, which `rdma resource` shows, or the limit of locked memory (ulimit -l, LimitMEMLOCK= of a service): have fewer connections, ask for fewer credits, or raise the limit"
            }
            (libc::EINVAL, Self::CompletionQueue | Self::QueuePair) => {
                "the device has no queue of this size: ask for fewer credits"
            }
            (libc::EINVAL, Self::Window) => "the device has no memory windows of type 2",
            (libc::ENOMEM | libc::ENOSPC | libc::ENOBUFS, _) => {
                "the device is used up: `rdma resource` shows by how many objects; have fewer connections"
            }
            (libc::ENODEV | libc::EIO | libc::ENXIO, _) => {
                "the device was removed or failed: `rdma link` lists those that are there"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Object; 8] = [
        Object::EventChannel,
        Object::Identifier,
        Object::Domain,
        Object::CompletionChannel,
        Object::CompletionQueue,
        Object::QueuePair,
        Object::Region,
        Object::Window,
    ];

    #[test]
    fn shortage_of_any_object_names_cause_and_remedy_in_one_line() {
        let errors = [
            libc::ENOMEM,
            libc::EPERM,
            libc::EAGAIN,
            libc::ENOSPC,
            libc::EMFILE,
            libc::ENODEV,
        ];
        for object in ALL {
            for number in errors {
                let error = io::Error::from_raw_os_error(number);
                let text = object.refused(&error).to_string();
                let (what, remedy) = text.split_once("; ").expect("a remedy");
                assert!(what.contains(&object.to_string()), "{text}");
                assert!(what.contains(&error.to_string()), "{text}");
                assert!(!remedy.is_empty() && !text.contains('\n'), "{text}");
            }
        }
    }

    #[test]
    fn kind_of_the_error_stays() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let refused = Object::QueuePair.refused(&error);
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
