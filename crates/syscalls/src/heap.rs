//! The heap of the process.

/// Returns free memory of the heap to the system. Takes milliseconds per 100 MiB, during which
/// threads that allocate may wait.
///
/// glibc returns only free memory at the end of its heaps by itself, and keeps free memory before
/// an allocation that is still in use. Other allocators keep less memory; with them this does
/// nothing.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` has no preconditions and may be called from any thread. It touches only
        // memory that nothing refers to. Its result says whether any was returned, which changes nothing.
        #[allow(unsafe_code, reason = "the C library has no safe wrapper for it")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("there is /proc");
        let pages = statm.split(' ').nth(1).expect("the second field");
        pages.parse::<usize>().expect("a number") * 4096
    }

    #[test]
    fn memory_that_is_free_before_some_in_use_is_returned() {
        const SIZE: usize = 64 << 10;
        let mut all: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; SIZE]).collect();
        let last = all.pop();
        let before = resident();
        drop(all);
        return_free_memory();
        let returned = before.saturating_sub(resident());
        assert!(returned > 512 * SIZE, "{returned} bytes");
        drop(last);
    }
}
