//! Sampling profiler of the process itself: records where its threads are when a timer of CPU time
//! expires.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize};
use std::time::Duration;

/// A sample: the position of a thread when the timer expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Address of the next instruction. For a thread in the kernel: the one after its system call.
    pub address: usize,
    /// The register with the result of a system call. It is meaningful only if the instruction
    /// before `address` is a system call; a negative value is then an error number.
    pub result: isize,
}

/// Largest number of samples: enough for 16 seconds at 4,000 per second.
const MAX_SAMPLES: usize = 1 << 16;

struct Slot {
    address: AtomicUsize,
    result: AtomicIsize,
}

/// Samples, written by the signal handler, which can use only atomics. A handler takes a slot and
/// writes the address last; zero is an unused slot.
static SLOTS: [Slot; MAX_SAMPLES] = [const {
    Slot {
        address: AtomicUsize::new(0),
        result: AtomicIsize::new(0),
    }
}; MAX_SAMPLES];

/// Number of samples taken, including those without a slot.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Whether a [`Sampling`] exists.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Sampling of all threads of the process, until it is stopped or dropped.
///
/// Uses `SIGPROF` and its timer. A thread that waits uses no CPU time and is not interrupted. The
/// kernel checks such timers at its ticks, which limits the samples per second to the number of
/// ticks: often 250.
#[derive(Debug)]
pub struct Sampling(());

impl Sampling {
    /// Starts to take a sample each time the process has used `interval` of CPU time.
    ///
    /// # Errors
    ///
    /// `ResourceBusy`: a `Sampling` exists, or other code handles `SIGPROF`. `InvalidInput`: the
    /// interval is shorter than a microsecond, or too long for the system. `Unsupported`: this
    /// processor is not supported.
    pub fn start(interval: Duration) -> io::Result<Self> {
        // An interval of zero would stop the timer.
        if interval.as_micros() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if RUNNING.swap(true, Acquire) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let sampling = Self(());
        // A handler of the sampling before that was held up until now may add one sample to this one.
        for slot in SLOTS.iter().take(TAKEN.swap(0, Relaxed)) {
            slot.address.store(0, Relaxed);
        }
        system::install_handler()?;
        system::set_timer(interval)?;
        Ok(sampling)
    }

    /// Samples taken so far.
    pub fn taken(&self) -> usize {
        TAKEN.load(Relaxed)
    }

    /// Ends it, and gives the samples. Past 65,536 they were not kept.
    pub fn stop(self) -> Vec<Sample> {
        self.stop_timer();
        let taken = self.taken().min(MAX_SAMPLES);
        let sample = |slot: &Slot| Sample {
            // The address comes first: it says that the result is there.
            address: slot.address.load(Acquire),
            result: slot.result.load(Relaxed),
        };
        // A handler that runs at this moment may not have written its slot.
        let samples = SLOTS.iter().take(taken).map(sample);
        samples.filter(|sample| sample.address != 0).collect()
    }

    fn stop_timer(&self) {
        // It cannot fail with these arguments. If it did, signals would go on and be ignored.
        let _ = system::set_timer(Duration::ZERO);
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.stop_timer();
        // The handler stays: a signal may be pending, and without a handler it would end the process.
        RUNNING.store(false, Release);
    }
}

/// Keeps one sample, in the handler.
fn keep(sample: Sample) {
    if !RUNNING.load(Relaxed) {
        return;
    }
    if let Some(slot) = SLOTS.get(TAKEN.fetch_add(1, Relaxed)) {
        slot.result.store(sample.result, Relaxed);
        slot.address.store(sample.address, Release);
    }
}

/// Addresses of the functions of the C library that copy and set memory, as this processor has them: its
/// library has several of each, whose names are often stripped.
pub fn memory_functions() -> [usize; 3] {
    [
        libc::memmove as *const () as usize,
        libc::memcpy as *const () as usize,
        libc::memset as *const () as usize,
    ]
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod system {
    use super::{Sample, keep};
    use std::ffi::{c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::time::Duration;

    /// Has the handler called, unless somebody else's is.
    pub(super) fn install_handler() -> io::Result<()> {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        let handler = handler as *const () as usize;
        let mut action = no_action();
        // SAFETY: nothing is changed, and `action` may be written until the call returns.
        #[allow(unsafe_code, reason = "handlers of signals have no safe wrapper")]
        let failed = unsafe { libc::sigaction(libc::SIGPROF, ptr::null(), &raw mut action) };
        result(failed)?;
        if ![libc::SIG_DFL, libc::SIG_IGN, handler].contains(&action.sa_sigaction) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        action = no_action();
        action.sa_sigaction = handler;
        // System calls that wait go on behind it, but those that never do, such as `epoll_wait`.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `action` is initialised and lives until the call returns; nothing is asked for in the
        // third argument. The handler has the signature that SA_SIGINFO demands, is a function and so
        // always there, and calls nothing that a signal handler may not: it reads its argument and uses
        // atomics, and leaves `errno` alone.
        #[allow(unsafe_code, reason = "handlers of signals have no safe wrapper")]
        let failed = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
        result(failed)
    }

    /// The default action, with no flags and an empty mask.
    fn no_action() -> libc::sigaction {
        // SAFETY: a `sigaction` is numbers, and an optional function, of which zero is none.
        #[allow(unsafe_code, reason = "`sigaction` has no constructor")]
        unsafe {
            MaybeUninit::zeroed().assume_init()
        }
    }

    /// Has the timer expire each time that so much CPU time was used; zero stops it.
    pub(super) fn set_timer(interval: Duration) -> io::Result<()> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let interval = libc::timeval {
            tv_sec: interval.as_secs().try_into().map_err(invalid)?,
            tv_usec: interval.subsec_micros().into(),
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: `timer` is initialised and lives until the call returns; nothing is asked for in the
        // third argument.
        #[allow(unsafe_code, reason = "this timer has no safe wrapper")]
        let failed =
            unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
        result(failed)
    }

    fn result(failed: c_int) -> io::Result<()> {
        match failed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the third argument of a handler that was installed with SA_SIGINFO points to the
        // registers of the interrupted thread, which the kernel wrote to its stack, and which stay there
        // until the handler returns. Nothing but two of them is read, and there is no reference to the
        // whole: the type of the C library is longer than what the kernel writes.
        #[allow(unsafe_code, reason = "the kernel passes a pointer")]
        let (address, result) = unsafe { registers(context) };
        keep(Sample {
            address: usize::from_ne_bytes(address),
            result: isize::from_ne_bytes(result),
        });
    }

    /// The bytes of the instruction pointer, and of the register with the result of a system call.
    ///
    /// # Safety
    ///
    /// The pointer is to the registers of a thread.
    #[allow(unsafe_code, reason = "the kernel passes a pointer")]
    unsafe fn registers(context: *const libc::ucontext_t) -> ([u8; 8], [u8; 8]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller vouches for the pointer.
        let (address, result) = unsafe {
            (
                (*context).uc_mcontext.gregs[libc::REG_RIP as usize],
                (*context).uc_mcontext.gregs[libc::REG_RAX as usize],
            )
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the caller vouches for the pointer.
        let (address, result) =
            unsafe { ((*context).uc_mcontext.pc, (*context).uc_mcontext.regs[0]) };
        (address.to_ne_bytes(), result.to_ne_bytes())
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod system {
    use std::io;
    use std::time::Duration;

    pub(super) fn install_handler() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn set_timer(_: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// One process has one profiler.
    fn one() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const INTERVAL: Duration = Duration::from_millis(1);

    /// Of so many samples one has to be of the test itself: others run beside it, in the same process.
    const SHARE: usize = 20;

    /// Whether an address is of the program itself.
    fn is_ours(address: usize) -> bool {
        let program = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] = [start, end].map(|n| usize::from_str_radix(n, 16).unwrap());
            rest.ends_with(program.to_str().unwrap()) && (start..end).contains(&address)
        })
    }

    #[test]
    fn computing_is_sampled_in_the_code_that_computes() {
        let _one = one();
        let sampling = Sampling::start(INTERVAL).unwrap();
        let mut sum = 0_u64;
        while sampling.taken() < 50 {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        let samples = sampling.stop();
        let ours = samples.iter().filter(|s| is_ours(s.address)).count();
        assert!(ours * SHARE > samples.len(), "{ours} of {}", samples.len());
    }

    #[test]
    fn sample_of_a_system_call_has_its_result() {
        let _one = one();
        let (mut socket, _peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let sampling = Sampling::start(INTERVAL).unwrap();
        while sampling.taken() < 50 {
            let empty = socket.read(&mut [0; 16]).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        }
        let would_block = -isize::try_from(libc::EAGAIN).unwrap();
        let samples = sampling.stop();
        let found = samples.iter().filter(|s| s.result == would_block).count();
        assert!(
            found * SHARE > samples.len(),
            "{found} of {}",
            samples.len()
        );
    }

    #[test]
    fn there_is_one_at_a_time() {
        let _one = one();
        let sampling = Sampling::start(INTERVAL).unwrap();
        let second = Sampling::start(INTERVAL).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        drop(sampling);
        Sampling::start(INTERVAL).unwrap().stop();
    }

    #[test]
    fn interval_that_the_system_takes_for_none_is_refused() {
        let _one = one();
        for interval in [Duration::ZERO, Duration::from_nanos(999)] {
            let refused = Sampling::start(interval).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn handler_of_somebody_else_is_left_alone() {
        extern "C" fn others(_: libc::c_int) {}
        let others: extern "C" fn(libc::c_int) = others;
        let others = others as *const () as usize;
        let handle_by = |handler| {
            // SAFETY: the handler does nothing, or is one that was there before.
            #[allow(unsafe_code, reason = "handlers of signals have no safe wrapper")]
            unsafe {
                libc::signal(libc::SIGPROF, handler)
            }
        };
        let _one = one();
        handle_by(others);
        let refused = Sampling::start(INTERVAL).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(handle_by(libc::SIG_IGN), others);
        Sampling::start(INTERVAL).unwrap().stop();
    }

    #[test]
    fn samples_past_the_last_slot_are_counted_and_not_kept() {
        let _one = one();
        let sampling = Sampling::start(Duration::from_secs(3600)).unwrap();
        for _ in 0..MAX_SAMPLES + 3 {
            keep(Sample {
                address: 1,
                result: 0,
            });
        }
        assert_eq!(sampling.taken(), MAX_SAMPLES + 3);
        assert_eq!(sampling.stop().len(), MAX_SAMPLES);
    }

    #[test]
    fn signal_after_the_end_is_ignored() {
        let _one = one();
        let sampling = Sampling::start(INTERVAL).unwrap();
        while sampling.taken() < 5 {
            std::hint::spin_loop();
        }
        sampling.stop();
        let taken = TAKEN.load(Relaxed);
        keep(Sample {
            address: 1,
            result: 0,
        });
        assert_eq!(TAKEN.load(Relaxed), taken);
    }
}
