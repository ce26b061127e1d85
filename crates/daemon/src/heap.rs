//! Returns memory of closed connections to the system.

use std::time::Duration;

/// How often the connections are counted.
const LOOK: Duration = Duration::from_secs(5);

/// Closed connections for which it is worth the time that it takes.
const WORTH_IT: usize = 512;

/// Bytes that the process has to have in use beyond the fewest so far before it is worth it without that.
const MEMORY_WORTH_IT: u64 = 64 << 20;

/// How often it is done for the memory that is in use, at most: some of it may be needed. In looks.
const LOOKS_BETWEEN: u32 = 6;

/// Returns free memory to the system after many connections have gone, and now and then while the process
/// has much more in use than it had, for ever.
pub(crate) async fn trim_heap(connections: impl Fn() -> usize) {
    let mut memory = Memory::default();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        let resident = resident().unwrap_or(0);
        if memory.is_worth_it(connections(), resident) {
            syscalls::return_free_memory();
        }
    }
}

/// Bytes of memory that the process has in use.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Numbers of connections and of bytes that were seen so far.
#[derive(Default)]
struct Memory {
    /// Most connections since memory was returned for those that have gone.
    most: usize,
    /// Fewest bytes in use so far.
    fewest: Option<u64>,
    /// Looks since memory was returned.
    looks: u32,
}

impl Memory {
    /// Whether memory is to be returned, given how many connections and how many bytes in use there are.
    fn is_worth_it(&mut self, connections: usize, resident: u64) -> bool {
        self.most = self.most.max(connections);
        self.looks += 1;
        let fewest = self.fewest.map_or(resident, |fewest| fewest.min(resident));
        self.fewest = Some(fewest);
        let have_gone = self.most - connections >= WORTH_IT;
        let much = resident - fewest >= MEMORY_WORTH_IT && self.looks >= LOOKS_BETWEEN;
        if have_gone || much {
            self.most = connections;
            self.looks = 0;
        }
        have_gone || much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_whenever_many_connections_have_closed() {
        let mut memory = Memory::default();
        let mut look = |now| memory.is_worth_it(now, 1);
        let seen = [10, 5000, 4900, 4488, 4300, 3976, 0, 0, 511, 0, 512, 0];
        let worth_it = seen.map(&mut look);
        let when: Vec<usize> = (0..seen.len()).filter(|&at| worth_it[at]).collect();
        assert_eq!(when, [3, 5, 6, 11]);
    }

    #[test]
    fn memory_is_returned_now_and_then_while_much_more_is_in_use_than_before() {
        let mut memory = Memory::default();
        let mut look = |mib: u64| memory.is_worth_it(1, mib << 20);
        assert!(!look(10) && !look(600), "it has just begun");
        let until: Vec<bool> = (0..12).map(|_| look(600)).collect();
        let when: Vec<usize> = (0..until.len()).filter(|&at| until[at]).collect();
        assert_eq!(when, [3, 9]);
        assert!((0..20).all(|_| !look(73)), "it is not much");
    }

    #[test]
    fn process_knows_what_it_has_in_use() {
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20));
    }
}
