//! An NFS server with arbitrary calls.

use crate::memory::within_and_back;
use crate::script::Script;
use crate::site::{EXPORT, Site, flat};
use buffer::{Buffer, Gather};
use bytes::Bytes;
use nfs_proto::{
    Arguments, FileHandle, MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3, NFSACL_PROGRAM, Wire, acl,
    args, mount,
};
use oncrpc::xdr::{Parts, Payload, Reader, Writer};
use oncrpc::{
    AcceptStatus, AuthSys, CallHeader, Credential, Procedure, Reply, ReplyHeader, ReplyStatus,
    write_call,
};
use std::ops::RangeInclusive;

/// Memory for the file system, and a READ and a listing of the largest size.
const MEMORY: usize = 12 << 20;

/// Calls that are made.
const CALLS: usize = 60;

/// Handles that are remembered.
const HANDLES: usize = 16;

/// CREATE to LINK: they must not be executed twice.
const ONCE: RangeInclusive<u32> = 8..=15;

/// A handle of our server begins like this: its length and its format.
const HANDLE_BEGINS: [u8; 8] = [0, 0, 0, 48, 0, 0, 0, 2];

/// A script of calls.
pub fn nfs_dispatch(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut script = Script::new(bytes);
        let mut caller = User {
            site: Site::new(),
            handles: Vec::new(),
            xid: 0,
        };
        caller.mount();
        for _ in 0..CALLS {
            if script.is_over() {
                break;
            }
            caller.call(&mut script);
        }
    });
}

struct User {
    site: Site,
    handles: Vec<FileHandle>,
    xid: u32,
}

/// Kinds of arguments, in their order.
#[derive(Clone, Copy)]
enum Field {
    Handle,
    Name,
    Attributes,
    Guard,
    Word,
    Long,
    Data,
    How,
    Node,
    List,
}

use Field::{Attributes, Data, Guard, Handle, How, List, Long, Name, Node, Word};

/// The arguments of each procedure.
const ARGUMENTS: [&[Field]; 22] = [
    &[],
    &[Handle],
    &[Handle, Attributes, Guard],
    &[Handle, Name],
    &[Handle, Word],
    &[Handle],
    &[Handle, Long, Word],
    &[Handle, Long, Data],
    &[Handle, Name, How],
    &[Handle, Name, Attributes],
    &[Handle, Name, Attributes, Name],
    &[Handle, Name, Node],
    &[Handle, Name],
    &[Handle, Name],
    &[Handle, Name, Handle, Name],
    &[Handle, Handle, Name],
    &[Handle, Long, Long, Word],
    &[Handle, Long, Long, Word, Word],
    &[Handle],
    &[Handle],
    &[Handle],
    &[Handle, Long, Word],
];

/// The same of NFSACL.
const ARGUMENTS_OF_ACL: [&[Field]; 3] = [&[], &[Handle, Word], &[Handle, Word, List, List]];

/// A byte that chooses the procedure chooses NFSACL from here on.
const NFSACL_FROM: u8 = 240;

/// Which argument may travel by reference (RFC 8267 §4).
const SYMLINK: u32 = 10;

impl User {
    fn mount(&mut self) {
        let target = procedure(MOUNT_PROGRAM, MOUNT_V3, 1);
        let mut w = Writer::default();
        write_call(&mut w, 1, target, &Credential::None);
        w.opaque(EXPORT.as_bytes());
        self.exchange(w.finish());
        assert_eq!(self.handles.len(), 1, "the root");
    }

    fn call(&mut self, script: &mut Script<'_>) {
        self.xid += 1;
        let program = script.pick(&[NFS_PROGRAM, NFS_PROGRAM, NFS_PROGRAM, MOUNT_PROGRAM]);
        let proc = script.byte();
        let (program, proc) = match proc {
            NFSACL_FROM.. => (NFSACL_PROGRAM, proc % 4),
            _ => (program, proc % 24),
        };
        let version = script.pick(&[NFS_V3, NFS_V3, NFS_V3, NFS_V3, NFS_V3, NFS_V3, 2]);
        let target = procedure(program, version, proc.into());
        let credential = credential(script);
        let mut w = Writer::default();
        write_call(&mut w, self.xid, target, &credential);
        let begins = w.len();
        let fields = match program {
            NFS_PROGRAM => Some(&ARGUMENTS[..]),
            NFSACL_PROGRAM => Some(&ARGUMENTS_OF_ACL[..]),
            _ => None,
        };
        if let Some(fields) = fields {
            for field in fields.get(usize::from(proc)).copied().unwrap_or(&[]) {
                self.field(script, &mut w, *field, target.proc);
            }
        } else {
            w.opaque(script.pick(&[&b"/data"[..], b"/data/dir", b"/", b"/data/../x", b""]));
        }
        let mut call = w.finish();
        if script.one_in(6) {
            call = spoil(script, call, begins);
        }
        if script.one_in(3) {
            call = Payload::new(flat(&call), 0);
        }
        let again = (program == NFS_PROGRAM && ONCE.contains(&target.proc) && script.flag())
            .then(|| Payload::new(flat(&call), 0));
        let inline = call.items().is_empty();
        let reply = self.exchange(call);
        // What cannot be told apart by its bytes travelled in the same way.
        if let (Some(again), Some(reply), true) = (again, reply, inline) {
            self.site.reconnect();
            let second = self.exchange(again).expect("it was answered before");
            assert_eq!(second.to_vec(), reply.to_vec(), "executed twice");
        }
    }

    fn field(&self, script: &mut Script<'_>, w: &mut Writer, field: Field, proc: u32) {
        match field {
            Handle => {
                let index = usize::from(script.byte());
                match index {
                    0..250 => self.handles[index % self.handles.len()].write(w),
                    _ => w.opaque(script.take(48)),
                }
            }
            // The text of a link is not the first name there.
            Name if proc == SYMLINK && w.len() > 200 && script.flag() => {
                w.item(item(script.some(300)));
            }
            Name => w.opaque(match script.byte() {
                0..200 => script.pick(&[&b"a"[..], b"b", b"c", b"dir", b"link"]),
                200..220 => script.pick(&[&b"."[..], b"..", b"", b"a/b", b"\0"]),
                220.. => script.some(300),
            }),
            Attributes => {
                let set = script.byte();
                for bit in [1, 2, 4] {
                    w.option((set & bit != 0).then(|| script.number()), Writer::u32);
                }
                w.option((set & 8 != 0).then(|| script.long()), Writer::u64);
                for bit in [16, 32] {
                    match set & bit {
                        0 => w.u32(0),
                        _ if script.flag() => w.u32(1),
                        _ => {
                            w.u32(2);
                            w.u32(script.number());
                            w.u32(script.number());
                        }
                    }
                }
            }
            Guard => {
                let guard = script.one_in(4).then(|| script.long());
                w.option(guard, Writer::u64);
            }
            Word => w.u32(script.number()),
            Long => w.u64(script.long()),
            Data => {
                let len = script.pick(&[0, 1, 100, 5000, 70_000]);
                let count = script.pick(&[len, len, len, 7]);
                w.u32(count);
                w.u32(script.pick(&[0, 1, 2, 2, 2, 3]));
                w.item(item(&vec![script.byte(); len as usize]));
            }
            How => {
                let how = script.pick(&[0, 0, 1, 2, 3]);
                w.u32(how);
                match how {
                    2 => w.u64(script.long()),
                    _ => self.field(script, w, Attributes, proc),
                }
            }
            List => {
                let entries = script.pick(&[0, 3, 4, 5, 1025]);
                w.u32(script.pick(&[entries, entries, 0, 4]));
                w.u32(entries);
                for kind in [1, 4, 0x10, 0x20, 2, 8]
                    .into_iter()
                    .cycle()
                    .take(entries as usize)
                {
                    w.u32(if script.one_in(8) {
                        script.number()
                    } else {
                        kind
                    });
                    w.u32(script.number());
                    w.u32(script.byte().into());
                }
            }
            Node => {
                let kind = script.byte() % 9;
                w.u32(kind.into());
                if matches!(kind, 3 | 4 | 6 | 7) {
                    self.field(script, w, Attributes, proc);
                }
                if matches!(kind, 3 | 4) {
                    w.u64(script.long());
                }
            }
        }
    }

    /// Makes a call; its reply in bytes, if it has one.
    fn exchange(&mut self, call: Payload) -> Option<Buffer> {
        let stream = flat(&call);
        let items = call.items().len();
        let reply = match self.site.answer(call) {
            Reply::Message(reply) => reply,
            Reply::Ineligible => {
                assert!(items > 0, "only by-reference items are not eligible");
                return None;
            }
            Reply::TooLarge(_) => panic!("there is room for every reply"),
            Reply::Nothing => {
                assert!(CallHeader::parse(&mut Reader::new(&stream)).is_err());
                return None;
            }
        };
        let mut r = Reader::from(&reply);
        let header = ReplyHeader::parse(&mut r).expect("a good reply");
        assert_eq!(header.xid.to_be_bytes(), stream[..4]);
        if header.status == ReplyStatus::accepted(AcceptStatus::Success) {
            judge(&stream, &reply);
        }
        let bytes = flat(&reply);
        self.remember(&bytes);
        Some(bytes)
    }

    /// The handles in a reply.
    fn remember(&mut self, reply: &[u8]) {
        for (at, begins) in reply.windows(HANDLE_BEGINS.len()).enumerate().step_by(4) {
            if begins != HANDLE_BEGINS {
                continue;
            }
            let handle = reply.get(at + 4..at + 52).and_then(FileHandle::new);
            if let Some(handle) = handle
                && !self.handles.contains(&handle)
            {
                if self.handles.len() == HANDLES {
                    self.handles.remove(1);
                }
                self.handles.push(handle);
            }
        }
    }
}

fn procedure(prog: u32, vers: u32, proc: u32) -> Procedure {
    Procedure { prog, vers, proc }
}

fn credential(script: &mut Script<'_>) -> Credential {
    match script.byte() {
        0..200 => Credential::Sys(AuthSys::default()),
        200..240 => Credential::Sys(AuthSys {
            uid: script.number(),
            gid: script.number(),
            ..AuthSys::default()
        }),
        240..250 => Credential::None,
        250.. => Credential::Other {
            flavour: 6,
            body: Box::default(),
        },
    }
}

fn item(bytes: &[u8]) -> Gather {
    Gather::from_elem(Bytes::copy_from_slice(bytes), 1)
}

/// A word of the arguments changes, or their end is missing.
fn spoil(script: &mut Script<'_>, call: Payload, begins: usize) -> Payload {
    let Parts {
        mut head,
        start,
        items,
        ..
    } = call.into_parts();
    let words = (head.len() - begins) / 4;
    let at = begins + 4 * script.below(words.min(200));
    if script.flag() {
        let word = script.number().to_be_bytes();
        if let Some(place) = head.get_mut(at..at + 4) {
            place.copy_from_slice(&word);
        }
    } else if items.is_empty() {
        head.truncate(at);
    }
    Payload::with_items(head, start, items)
}

/// A call that was executed has results of its procedure, within the bound that a client
/// computes.
fn judge(call: &[u8], reply: &Payload) {
    let mut r = Reader::new(call);
    let header = CallHeader::parse(&mut r).expect("it was executed");
    let args = r.rest();
    match (header.prog, header.proc) {
        (NFS_PROGRAM, 1) => results::<args::GetAttr>(args, reply),
        (NFS_PROGRAM, 2) => results::<args::SetAttr>(args, reply),
        (NFS_PROGRAM, 3) => results::<args::Lookup<'_>>(args, reply),
        (NFS_PROGRAM, 4) => results::<args::CheckAccess>(args, reply),
        (NFS_PROGRAM, 5) => results::<args::ReadLink>(args, reply),
        (NFS_PROGRAM, 6) => results::<args::Read>(args, reply),
        (NFS_PROGRAM, 7) => results::<args::Write<'_>>(args, reply),
        (NFS_PROGRAM, 8) => results::<args::Create<'_>>(args, reply),
        (NFS_PROGRAM, 9) => results::<args::MkDir<'_>>(args, reply),
        (NFS_PROGRAM, 10) => results::<args::Symlink<'_>>(args, reply),
        (NFS_PROGRAM, 11) => results::<args::MkNod<'_>>(args, reply),
        (NFS_PROGRAM, 12) => results::<args::Remove<'_>>(args, reply),
        (NFS_PROGRAM, 13) => results::<args::RmDir<'_>>(args, reply),
        (NFS_PROGRAM, 14) => results::<args::Rename<'_>>(args, reply),
        (NFS_PROGRAM, 15) => results::<args::Link<'_>>(args, reply),
        (NFS_PROGRAM, 16) => results::<args::ReadDir>(args, reply),
        (NFS_PROGRAM, 17) => results::<args::ReadDirPlus>(args, reply),
        (NFS_PROGRAM, 18) => results::<args::FsStat>(args, reply),
        (NFS_PROGRAM, 19) => results::<args::FsInfo>(args, reply),
        (NFS_PROGRAM, 20) => results::<args::PathConf>(args, reply),
        (NFS_PROGRAM, 21) => results::<args::Commit>(args, reply),
        (MOUNT_PROGRAM, 1) => results::<mount::Mount<'_>>(args, reply),
        (MOUNT_PROGRAM, 3) => results::<mount::Unmount<'_>>(args, reply),
        (MOUNT_PROGRAM, 2) => results::<mount::Dump>(args, reply),
        (MOUNT_PROGRAM, 5) => results::<mount::Export>(args, reply),
        (NFSACL_PROGRAM, 1) => results::<acl::GetAcl>(args, reply),
        (NFSACL_PROGRAM, 2) => results::<acl::SetAcl>(args, reply),
        (NFS_PROGRAM | NFSACL_PROGRAM, 0) | (MOUNT_PROGRAM, 0 | 4) => {}
        (prog, proc) => panic!("procedure {proc} of {prog} is none"),
    }
}

fn results<'a, A: Arguments<'a>>(args: &'a [u8], reply: &Payload) {
    let mut r = Reader::new(args);
    let args = A::parse(&mut r).expect("it was executed with its arguments");
    r.finish().expect("and with nothing behind them");
    let bound = args.reply_bound();
    assert!(reply.head().len() <= bound.fixed, "{} fits", A::NAME);
    assert!(reply.items().len() <= bound.results.len());
    for (item, most) in reply.items().iter().zip(&bound.results) {
        assert!(item.len() <= *most, "the data of {} fits", A::NAME);
    }
    let mut r = Reader::from(reply);
    ReplyHeader::parse(&mut r).expect("it was read before");
    let results = A::Reply::parse(&mut r);
    assert!(results.is_ok(), "results of {}", A::NAME);
    assert!(r.finish().is_ok(), "{} has nothing behind them", A::NAME);
}
