//! Usual calls, whose times are shown beside those of a mix.

use super::mix::Call;
use oncrpc::xdr::padded;

/// A READ of version 3 of so many bytes, whose client does not expect more.
pub(super) fn read(bytes: usize) -> Call {
    Call {
        reply: 128 + padded(bytes),
        result: bytes,
        room: 128,
        result_room: bytes,
        ..call("READ", bytes, 140)
    }
}

/// A WRITE of version 3 of so many bytes.
pub(super) fn write(bytes: usize) -> Call {
    Call {
        argument: bytes,
        reply: 160,
        room: 200,
        ..call("WRITE", bytes, 152 + padded(bytes))
    }
}

/// A COMPOUND of version 4.2 with GETATTR, whose reply is small and might be 2.7 KiB.
pub(super) fn getattr() -> Call {
    Call {
        nfs: "4.2".into(),
        reply: 300,
        room: 2700,
        ..call("GETATTR", 0, 180)
    }
}

/// A COMPOUND of version 4.2 with OPEN, whose reply is small and might be 7 KiB.
pub(super) fn open() -> Call {
    Call {
        nfs: "4.2".into(),
        reply: 384,
        room: 7168,
        ..call("OPEN", 0, 300)
    }
}

fn call(operation: &str, bytes: usize, call: usize) -> Call {
    let operations = match bytes {
        0 => operation.to_owned(),
        bytes => format!("{operation} of {} KiB", bytes >> 10),
    };
    Call {
        nfs: "3".into(),
        part: String::new(),
        calls: 1,
        call,
        argument: 0,
        reply: 0,
        result: 0,
        room: 0,
        result_room: 0,
        operations,
    }
}

/// Those that are shown.
pub(super) fn all() -> Vec<Call> {
    let read = [4, 8, 32, 128].map(|kib| read(kib << 10));
    let write = [4, 8, 32, 128].map(|kib| write(kib << 10));
    let small = [getattr(), open()];
    small.into_iter().chain(read).chain(write).collect()
}
