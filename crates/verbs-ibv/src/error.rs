//! Why RDMA hardware cannot be used.

/// Packages that have what is missing, for messages.
const PACKAGES: &str = "install libibverbs1, ibverbs-providers and librdmacm1 (Debian, Ubuntu), or libibverbs and \
                        librdmacm (Fedora, RHEL)";

/// Why RDMA devices cannot be listed or used. Its text is one line, and names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A library of rdma-core cannot be loaded.
    #[error("cannot load {library}: {reason}; {PACKAGES}")]
    NoLibrary {
        /// File name of the library.
        library: &'static str,
        /// Message of the dynamic linker.
        reason: String,
    },
    /// A library of rdma-core is older than what this crate needs.
    #[error("{library} has no function {function}: rdma-core 32 or later is needed; {PACKAGES}")]
    TooOld {
        /// File name of the library.
        library: &'static str,
        /// The function it lacks.
        function: &'static str,
    },
    /// There are no bindings for this platform.
    #[error("RDMA devices can be used on 64-bit Linux only")]
    Platform,
    /// There is no device.
    #[error(
        "there is no RDMA device; for one in software on a network interface: rdma link add rxe0 type rxe netdev eth0"
    )]
    NoDevice,
    /// There is no device of this name.
    #[error("there is no RDMA device {device}; there are: {devices}")]
    NoSuchDevice {
        /// The name that was asked for.
        device: String,
        /// Names of the devices, with commas.
        devices: String,
    },
    /// The connection manager cannot be used.
    #[error("{reason}")]
    ConnectionManager {
        /// Message with a remedy.
        reason: String,
    },
    /// The list of devices could not be read.
    #[error(
        "cannot list RDMA devices: {reason}; load the modules ib_uverbs and rdma_ucm (modprobe ib_uverbs rdma_ucm)"
    )]
    List {
        /// Message of the system.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn no_library(library: &'static str, error: &libloading::Error) -> Self {
        let reason = error.to_string();
        // The linker begins with the name, which the message has already.
        let reason = reason.strip_prefix(library).unwrap_or(&reason);
        let reason = reason.trim_start_matches([':', ' ']).to_owned();
        Self::NoLibrary { library, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_names_the_packages_in_one_line() {
        let library = "libibverbs.so.1";
        let text = OpenError::NoLibrary {
            library,
            reason: "cannot open shared object file: No such file or directory".into(),
        }
        .to_string();
        assert!(
            text.starts_with("cannot load libibverbs.so.1: cannot open"),
            "{text}"
        );
        assert!(
            text.contains("ibverbs-providers") && text.contains("librdmacm1"),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
    }
}
