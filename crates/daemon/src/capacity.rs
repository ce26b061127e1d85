//! Limits of the process on connections and open files.

use printing::units;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but the connections of clients and the files of exports: connections of
/// MOUNT, one event queue for each thread, the state on the disk.
pub(crate) const RESERVED: usize = 256;

/// Descriptors of an address to listen at beside the first: a listener for NFS, and one for MOUNT.
const OF_ADDRESS: usize = 2;

/// Descriptors that one file kept open takes at most.
const PER_FILE: usize = 3;

/// Descriptors of a connection over software iWARP or TCP: its socket.
pub(crate) const OF_SOFTWARE: usize = 1;

/// Descriptors of a connection over an RDMA device: the events of the connection manager, those of the device, and its
/// completions.
pub(crate) const OF_DEVICE: usize = 3;

/// Files that are kept open, however many connections are asked for.
const LEAST_FILES: usize = 64;

/// Most files kept open between calls: what `LocalFs` keeps by itself where it may.
const MOST_FILES: usize = 16_384;

/// Connections and open files that this process can have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Connections of clients.
    pub(crate) connections: usize,
    /// Files kept open, of all exports.
    pub(crate) open_files: usize,
    /// Why there are fewer connections than were asked for.
    pub(crate) short_of: Option<Short>,
}

/// The resource that limits the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The process may have so many descriptors.
    Descriptors(usize),
    /// So many bytes are all that Receives may take.
    Memory(usize),
}

impl Capacity {
    /// With as many descriptors as this process may have, which are raised to that now, and memory for
    /// so many connections of those that are wanted, in so many bytes. Any of them may come over an RDMA device, if
    /// those are used, and to any of so many addresses.
    pub(crate) fn find(
        wanted: usize,
        over_devices: bool,
        addresses: usize,
        (with_memory, bytes): (usize, usize),
    ) -> Self {
        let limit = raise_limit();
        let limit = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        let each = match over_devices {
            true => OF_DEVICE,
            false => OF_SOFTWARE,
        };
        let reserved = RESERVED + OF_ADDRESS * addresses.saturating_sub(1);
        Self::within(wanted, (each, reserved), limit, (with_memory, bytes))
    }

    /// The same with so many descriptors for each connection, and so many for everything else but files.
    fn within(
        wanted: usize,
        (each, reserved): (usize, usize),
        limit: usize,
        (with_memory, bytes): (usize, usize),
    ) -> Self {
        let left = limit.saturating_sub(reserved);
        let with_descriptors = (left.saturating_sub(PER_FILE * LEAST_FILES) / each).max(1);
        let connections = wanted.min(with_descriptors).min(with_memory);
        let open_files = left.saturating_sub(connections.saturating_mul(each)) / PER_FILE;
        Self {
            connections,
            open_files: open_files.min(limit / 4).clamp(LEAST_FILES, MOST_FILES),
            short_of: if connections == wanted {
                None
            } else if with_memory < with_descriptors {
                Some(Short::Memory(bytes))
            } else {
                Some(Short::Descriptors(limit))
            },
        }
    }

    /// A warning if there are too few descriptors to serve even one client.
    pub(crate) fn warning(&self) -> Option<String> {
        let Some(Short::Descriptors(limit)) = self.short_of else {
            return None;
        };
        let least = RESERVED + PER_FILE * LEAST_FILES + OF_DEVICE;
        (limit < least).then(|| {
            format!(
                "the limit of open files is {limit}, and less than {least} are too few: clients will be told to try \
                 again later (JUKEBOX); raise it, with LimitNOFILE= of the service or `ulimit -n`"
            )
        })
    }

    /// The connections, and why there are no more, in words.
    pub(crate) fn describe(&self) -> String {
        let connections = self.connections;
        match self.short_of {
            None => format!("{connections} connections"),
            Some(Short::Descriptors(limit)) => format!(
                "{connections} connections, as the limit of open files is {limit} (ulimit -Hn)"
            ),
            Some(Short::Memory(bytes)) => format!(
                "{connections} connections, as their Receives may take {} (fewer --credits \
                 take less)",
                units::size(bytes as u64)
            ),
        }
    }
}

/// Lets this process have as many descriptors as it may; how many that are.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, ?limit, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: (usize, usize) = (usize::MAX, 0);

    fn check(
        wanted: usize,
        limit: usize,
        memory: (usize, usize),
        expected: (usize, Option<Short>),
    ) {
        let capacity = Capacity::within(wanted, (OF_SOFTWARE, RESERVED), limit, memory);
        assert_eq!((capacity.connections, capacity.short_of), expected);
        let used = RESERVED + capacity.connections + PER_FILE * capacity.open_files;
        assert!(used <= limit || capacity.open_files == LEAST_FILES);
    }

    #[test]
    fn connections_are_as_many_as_there_are_descriptors_and_memory_for() {
        check(1024, 20_000, MEMORY, (1024, None));
        check(10_000, 20_000, MEMORY, (10_000, None));
        let short = Some(Short::Descriptors(1024));
        check(1024, 1024, MEMORY, (1024 - 256 - 192, short));
        check(100, 1024, MEMORY, (100, None));
        check(
            10_000,
            20_000,
            (514, 512 << 20),
            (514, Some(Short::Memory(512 << 20))),
        );
        check(10, 16, MEMORY, (1, Some(Short::Descriptors(16))));
    }

    #[test]
    fn files_leave_room_for_connections() {
        let files = |wanted, limit| {
            Capacity::within(wanted, (OF_SOFTWARE, RESERVED), limit, MEMORY).open_files
        };
        assert_eq!(files(1024, 20_000), 5000, "a quarter");
        assert_eq!(files(10_000, 20_000), (20_000 - 256 - 10_000) / 3);
        assert_eq!(files(1, usize::MAX), MOST_FILES);
        assert_eq!(files(1024, 1024), LEAST_FILES);
    }

    #[test]
    fn connections_over_devices_take_more_descriptors() {
        let of = |limit| Capacity::within(1024, (OF_DEVICE, RESERVED), limit, MEMORY);
        assert_eq!(of(1024).connections, (1024 - 256 - 192) / 3);
        assert_eq!(of(1024).short_of, Some(Short::Descriptors(1024)));
        let many = of(20_000);
        assert_eq!((many.connections, many.open_files), (1024, 5000));
        let few = of(4096);
        assert_eq!(few.open_files, (4096 - 256 - 3072) / 3);
    }

    #[test]
    fn further_addresses_take_descriptors_of_connections() {
        let of = |reserved| Capacity::within(1024, (OF_SOFTWARE, reserved), 1024, MEMORY);
        let further = of(RESERVED + 7 * OF_ADDRESS);
        assert_eq!(further.connections, of(RESERVED).connections - 14);
    }

    #[test]
    fn too_few_descriptors_for_one_client_are_a_warning() {
        let warning =
            |limit| Capacity::within(64, (OF_SOFTWARE, RESERVED), limit, MEMORY).warning();
        let said = warning(24).unwrap();
        assert!(
            said.contains("open files is 24") && said.contains("ulimit -n"),
            "{said}"
        );
        assert!(warning(450).is_some());
        assert_eq!(warning(451), None);
        assert_eq!(warning(20_000), None);
    }

    #[test]
    fn limit_is_reported_with_its_basis() {
        let of = |limit, memory| {
            Capacity::within(5000, (OF_SOFTWARE, RESERVED), limit, memory).describe()
        };
        assert_eq!(of(20_000, MEMORY), "5000 connections");
        assert!(of(1024, MEMORY).contains("576 connections, as the limit of open files is 1024"));
        assert!(
            of(20_000, (514, 512 << 20))
                .contains("514 connections, as their Receives may take 512")
        );
    }
}
