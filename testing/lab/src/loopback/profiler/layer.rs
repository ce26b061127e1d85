//! Layers, and which of them a place in the program belongs to.
//!
//! A place is a chain of functions, each inlined into the next. It belongs to the innermost one that is
//! part of a known layer. The standard library and small libraries are part of none, since their code does
//! the work of the function it is inlined into.

use serde::{Deserialize, Serialize};

/// A part of the program, or of what it has the system do, in the order of the tables.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Layer {
    KernelWrite,
    KernelRead,
    KernelEpoll,
    KernelOther,
    Copies,
    Crc,
    IwarpProto,
    VerbsIwarp,
    Verbs,
    Buffer,
    RpcrdmaProto,
    Rpcrdma,
    Oncrpc,
    NfsProto,
    NfsClient,
    NfsServer,
    Lab,
    Tokio,
    Std,
    CLibrary,
    Unknown,
    Waiting,
}

impl Layer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KernelWrite => "kernel: write",
            Self::KernelRead => "kernel: read",
            Self::KernelEpoll => "kernel: epoll",
            Self::KernelOther => "kernel: other",
            Self::Copies => "copies (memmove)",
            Self::Crc => "CRC",
            Self::IwarpProto => "iwarp-proto",
            Self::VerbsIwarp => "verbs-iwarp",
            Self::Verbs => "verbs",
            Self::Buffer => "buffer",
            Self::RpcrdmaProto => "rpcrdma-proto",
            Self::Rpcrdma => "rpcrdma",
            Self::Oncrpc => "oncrpc",
            Self::NfsProto => "nfs-proto",
            Self::NfsClient => "nfs-client",
            Self::NfsServer => "nfs-server",
            Self::Lab => "lab",
            Self::Tokio => "tokio",
            Self::Std => "std",
            Self::CLibrary => "allocator (libc)",
            Self::Unknown => "unknown",
            Self::Waiting => "waiting",
        }
    }

    /// The layer that a crate is, or belongs to.
    fn of_crate(name: &str) -> Option<Self> {
        Some(match name.replace('-', "_").as_str() {
            "crc_fast" => Self::Crc,
            "iwarp_proto" => Self::IwarpProto,
            "verbs_iwarp" => Self::VerbsIwarp,
            "verbs" | "rpcrdma_verbs" => Self::Verbs,
            "buffer" | "rpcrdma_buffer" => Self::Buffer,
            "rpcrdma_proto" => Self::RpcrdmaProto,
            "rpcrdma" => Self::Rpcrdma,
            "oncrpc" => Self::Oncrpc,
            "nfs_proto" => Self::NfsProto,
            "nfs_client" => Self::NfsClient,
            "nfs_server" => Self::NfsServer,
            "lab" => Self::Lab,
            "tokio" | "mio" => Self::Tokio,
            "rustix" => Self::KernelOther,
            _ => return None,
        })
    }

    /// The kind of a system call, or of a function of the C library that makes one.
    fn of_system_call(name: &str) -> Option<Self> {
        Some(match name {
            "write" | "writev" | "send" | "sendto" | "sendmsg" => Self::KernelWrite,
            "read" | "readv" | "recv" | "recvfrom" | "recvmsg" => Self::KernelRead,
            "epoll_wait" | "epoll_pwait" | "epoll_ctl" => Self::KernelEpoll,
            "sched_yield" => Self::Waiting,
            "syscall" | "ioctl" | "poll" | "close" => Self::KernelOther,
            _ => return None,
        })
    }

    /// The layer of a function of the C library.
    fn of_c_function(name: &str) -> Option<Self> {
        let copies = ["memmove", "memcpy", "memset"];
        if copies.iter().any(|copy| name.contains(copy)) {
            return Some(Self::Copies);
        }
        let name = name.trim_start_matches('_');
        let name = ["GI_", "libc_"].iter().fold(name, |name, prefix| {
            name.strip_prefix(prefix).unwrap_or(name)
        });
        Self::of_system_call(name)
    }
}

/// One function of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// Of a function that was not inlined, its whole path with types; otherwise its bare name.
    pub(super) function: String,
    /// The source file of the place.
    pub(super) file: String,
}

impl Frame {
    /// A function of which nothing else is known.
    pub(crate) fn of_function(name: &str) -> Self {
        Self {
            function: name.to_owned(),
            file: String::new(),
        }
    }

    /// The crate that the source file belongs to: the directory above `src`, without a version.
    fn crate_of_file(&self) -> &str {
        let Some((above, _)) = self.file.rsplit_once("/src/") else {
            return "";
        };
        let name = above.rsplit('/').next().unwrap_or(above);
        match name.rsplit_once('-') {
            Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
            _ => name,
        }
    }

    /// The name of the function without its path and types.
    fn bare_name(&self) -> &str {
        let path = self.function.split('<').next().unwrap_or_default();
        path.rsplit("::").next().unwrap_or_default()
    }

    /// Whether it does nothing but let time pass.
    fn spins(&self) -> bool {
        self.file.ends_with("rpcrdma/src/driver/spin.rs")
            || matches!(self.bare_name(), "spin_loop" | "_mm_pause")
    }

    /// The first known crate among the paths in the name of a function that was not inlined, types and
    /// all. That of `<a::A as b::B>::f` is `a`, if both are known, and that of `drop_in_place<a::A>` too.
    fn layer_of_path(&self) -> Option<Layer> {
        let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let paths = self.function.split(|c| !in_path(c));
        let crates = paths.filter_map(|path| Some(path.split_once("::")?.0));
        crates.filter_map(Layer::of_crate).next()
    }
}

/// Code to which the instructions of a place belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// The C library, in one of its functions that copy or set memory.
    Memory,
    /// The C library otherwise.
    CLibrary,
    /// Code that the kernel lends every process, to read its clock.
    Vdso,
    /// The program itself, or nobody knows.
    Program,
}

/// The layer of a place: the chain of functions there, innermost first.
pub(crate) fn layer(frames: &[Frame], module: Module) -> Layer {
    for (at, frame) in frames.iter().enumerate() {
        if frame.spins() {
            return Layer::Waiting;
        }
        match Layer::of_crate(frame.crate_of_file()) {
            Some(Layer::KernelOther) => return system_call(&frames[at..]),
            Some(layer) => return layer,
            None => {}
        }
    }
    let outermost = frames.last();
    let by_name = outermost.and_then(|frame| match frame.function.contains("::") {
        true => frame.layer_of_path(),
        false => Layer::of_c_function(&frame.function),
    });
    by_name.unwrap_or(match module {
        Module::Memory => Layer::Copies,
        Module::CLibrary => Layer::CLibrary,
        Module::Vdso => Layer::Std,
        Module::Program if outermost.is_some_and(|frame| !frame.function.is_empty()) => Layer::Std,
        Module::Program => Layer::Unknown,
    })
}

/// The kind of system call that a wrapper makes. Wrappers are inlined into each other, and one of them has
/// the name of the call.
fn system_call(frames: &[Frame]) -> Layer {
    let wrappers = frames
        .iter()
        .take_while(|frame| Layer::of_crate(frame.crate_of_file()) == Some(Layer::KernelOther));
    let kinds = wrappers.filter_map(|frame| Layer::of_system_call(frame.bare_name()));
    kinds.into_iter().next().unwrap_or(Layer::KernelOther)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layer of functions inlined into each other, as `(function, file)`, innermost first.
    fn of(frames: &[(&str, &str)]) -> Layer {
        within(frames, Module::Program)
    }

    fn within(frames: &[(&str, &str)], module: Module) -> Layer {
        let frame = |&(function, file): &(&str, &str)| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
        };
        layer(&frames.iter().map(frame).collect::<Vec<_>>(), module)
    }

    const CORE: &str = "/rustc/5980/library/core/src/ptr/mod.rs";
    const ALLOC: &str = "/rustc/5980/library/alloc/src/vec/mod.rs";

    #[test]
    fn file_of_a_crate_names_its_layer() {
        let cases = [
            ("crates/iwarp-proto/src/fpdu.rs", Layer::IwarpProto),
            (
                "/src/here/crates/verbs-iwarp/src/socket.rs",
                Layer::VerbsIwarp,
            ),
            (
                "/r/registry/src/index-1/rpcrdma-proto-0.1.0/src/plan/mod.rs",
                Layer::RpcrdmaProto,
            ),
            (
                "/r/registry/src/index-1/rpcrdma-verbs-0.1.0/src/lib.rs",
                Layer::Verbs,
            ),
            (
                "/r/registry/src/index-1/tokio-1.54.1/src/task/mod.rs",
                Layer::Tokio,
            ),
            (
                "/r/registry/src/index-1/crc-fast-1.10.0/src/lib.rs",
                Layer::Crc,
            ),
            ("testing/lab/src/loopback/raw.rs", Layer::Lab),
        ];
        for (file, expected) in cases {
            assert_eq!(of(&[("poll", file)]), expected, "{file}");
        }
    }

    #[test]
    fn path_of_a_generic_function_names_its_layer() {
        let cases = [
            ("<rpcrdma_proto::x as verbs::Y>::z", Layer::RpcrdmaProto),
            (
                "<alloc::vec::Vec<u8> as oncrpc::xdr::Encode>::encode",
                Layer::Oncrpc,
            ),
            (
                "core::ptr::drop_in_place<nfs_client::Nfs3<rpcrdma::Client>>",
                Layer::NfsClient,
            ),
            (
                "tokio::runtime::task::poll<rpcrdma::client::pump::{{closure}}>",
                Layer::Tokio,
            ),
            ("alloc::raw_vec::RawVec<T,A>::grow_one", Layer::Std),
        ];
        for (function, expected) in cases {
            assert_eq!(of(&[(function, CORE)]), expected, "{function}");
        }
    }

    #[test]
    fn code_of_the_standard_library_belongs_to_the_function_it_is_inlined_into() {
        let requester = ("call", "crates/rpcrdma-proto/src/requester.rs");
        let driver = ("turn", "crates/rpcrdma/src/driver/mod.rs");
        assert_eq!(
            of(&[("push", ALLOC), requester, driver]),
            Layer::RpcrdmaProto
        );
        // The type of an inlined function says nothing about who does the work.
        let taken = ("take<alloc::sync::Arc<tokio::io::ScheduledIo>>", CORE);
        assert_eq!(of(&[taken, driver]), Layer::Rpcrdma);
    }

    #[test]
    fn system_calls_are_told_apart_by_their_wrappers() {
        let rustix = "/r/registry/src/index-1/rustix-1.1.6/src/backend/linux_raw/net/syscalls.rs";
        let asm = "/r/registry/src/index-1/rustix-1.1.6/src/backend/linux_raw/arch/x86_64.rs";
        let socket = ("write", "crates/verbs-iwarp/src/socket.rs");
        let wrapped = |name| of(&[("syscall6", asm), (name, rustix), socket]);
        assert_eq!(wrapped("recv"), Layer::KernelRead);
        assert_eq!(wrapped("sendmsg"), Layer::KernelWrite);
        assert_eq!(
            wrapped("rustix::io::read_write::readv<i32>"),
            Layer::KernelRead
        );
        assert_eq!(wrapped("fstat"), Layer::KernelOther);
        let c = |name| within(&[(name, "")], Module::CLibrary);
        assert_eq!(c("epoll_wait"), Layer::KernelEpoll);
        assert_eq!(c("__libc_read"), Layer::KernelRead);
        assert_eq!(c("__sched_yield"), Layer::Waiting);
    }

    #[test]
    fn memory_and_waiting_are_apart_from_who_asks_for_them() {
        let driver = ("turn", "crates/rpcrdma/src/driver/mod.rs");
        let hint = "/rustc/5980/library/core/src/hint.rs";
        assert_eq!(of(&[("spin_loop", hint), driver]), Layer::Waiting);
        assert_eq!(
            of(&[("idle", "crates/rpcrdma/src/driver/spin.rs"), driver]),
            Layer::Waiting
        );
        let named = "__memmove_avx_unaligned_erms";
        assert_eq!(within(&[(named, "")], Module::CLibrary), Layer::Copies);
        assert_eq!(within(&[], Module::Memory), Layer::Copies);
        assert_eq!(
            within(&[("_int_malloc", "malloc.c")], Module::CLibrary),
            Layer::CLibrary
        );
    }

    #[test]
    fn place_without_symbols_is_of_no_layer() {
        assert_eq!(of(&[]), Layer::Unknown);
        assert_eq!(within(&[], Module::Vdso), Layer::Std);
    }
}
