//! Clients that guess, flood and lie: nothing comes of it, and others are served meanwhile.

use super::*;
use nfs_proto::v4::acl::{Ace, AceFlags, AceMask, AceType};
use nfs_proto::v4::directory::{CreateArgs, CreateType, ReadDirArgs};
use nfs_proto::v4::file::{ReadArgs, SetAttrArgs, WriteArgs};
use nfs_proto::v4::lock::TestStateIdArgs;
use nfs_proto::v4::open::CloseArgs;
use nfs_proto::v4::session::{DestroyClientIdArgs, DestroySessionArgs};
use nfs_proto::v4::{Array, Fattr, Principal, StateId};
use nfs_proto::{Cookie, CookieVerifier, Stable};
use nfs4_state::limits::Limits;

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

/// A server of files in memory, with these limits.
fn limited(limits: Limits) -> Site {
    let options = ExportOptions::default().with_squash(Squash::None);
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(32 << 20));
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/srv/data", Arc::clone(&fs), options)
        .unwrap();
    let settings = Nfs4Settings {
        limits,
        ..Nfs4Settings::default()
    };
    let state = Nfs4State::open(settings).unwrap();
    let nfs = Nfs4::new(exports, Pool::new(1 << 20), state);
    Site {
        programs: Programs::new().with(nfs.clone()),
        nfs,
        fs,
        _dir: None,
    }
}

fn caller(host: u8) -> Caller {
    Caller::new(([127, 0, 0, host], 700).into())
}

fn exchange_as(owner: &[u8]) -> ArgOp<'_> {
    ArgOp::ExchangeId(ExchangeIdArgs {
        owner: ClientOwner {
            verifier: Verifier([1; 8]),
            owner: Identifier::new(owner).unwrap(),
        },
        flags: ExchangeFlags::empty(),
        protect: ProtectArgs::None,
        implementation: None,
    })
}

fn close(state: StateId) -> ArgOp<'static> {
    ArgOp::Close(CloseArgs { seqid: 0, state })
}

/// The honest client makes a file, writes it, and reads it.
fn is_served(honest: &Client<'_>) {
    let state = honest.open("honest", BOTH).state;
    let write = ArgOp::Write(WriteArgs {
        state,
        offset: 0,
        stable: Stable::Unstable,
        data: b"data"[..].into(),
    });
    let read = ArgOp::Read(ReadArgs {
        state,
        offset: 0,
        count: 100,
    });
    let found = honest.at(&["honest"], vec![write, read]);
    let ResOp::Read(Ok(read)) = found.last() else {
        panic!("{found:?}");
    };
    assert_eq!(&*read.data.0.to_vec(), b"data");
    honest.at(&["honest"], vec![close(state)]).ok();
}

#[test]
fn ids_of_others_are_of_no_use() {
    let site = Site::in_memory();
    let (honest, other) = (site.client(b"honest"), site.client(b"other"));
    let state = honest.open("f", BOTH).state;
    let bad = |operation: ArgOp<'_>| other.at(&["f"], vec![operation]).status();
    assert_eq!(bad(close(state)), Err(Status::BadStateId));
    let write = ArgOp::Write(WriteArgs {
        state,
        offset: 0,
        stable: Stable::Unstable,
        data: b"mine"[..].into(),
    });
    assert_eq!(bad(write), Err(Status::BadStateId));
    for byte in 0..12 {
        let mut guess = state;
        guess.other[byte] ^= 1;
        let mine = honest.at(&["f"], vec![close(guess)]);
        assert_eq!(mine.status(), Err(Status::BadStateId), "{byte}");
    }
    for byte in 0..16 {
        let mut session = honest.session;
        session.0[byte] ^= 1;
        let destroy = vec![ArgOp::DestroySession(DestroySessionArgs { session })];
        let destroyed = site.call(&other.caller, destroy);
        assert_eq!(destroyed.status(), Err(Status::BadSession));
    }
    for client in 0..64 {
        let client = ClientId(client);
        let destroy = vec![ArgOp::DestroyClientId(DestroyClientIdArgs { client })];
        let destroyed = site.call(&other.caller, destroy);
        assert_eq!(destroyed.status(), Err(Status::StaleClientId));
    }
    honest.at(&["f"], vec![close(state)]).ok();
}

#[test]
fn silent_client_ids_leave_room_for_others() {
    let site = limited(Limits {
        clients: 100,
        ..Limits::default()
    });
    let mut refused = 0;
    for number in 0..1000 {
        let owner = format!("silent {number}");
        let answer = site.call(&caller(2), vec![exchange_as(owner.as_bytes())]);
        match answer.status() {
            Ok(()) => {}
            status => {
                assert_eq!(status, Err(Status::Delay));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 950, "half of what there is");
    is_served(&site.client(b"honest"));
}

#[test]
fn storm_of_sessions_is_bounded_for_a_client_and_an_address() {
    let site = limited(Limits {
        sessions: 40,
        ..Limits::default()
    });
    let flood = caller(2);
    let id = site.call(&flood, vec![exchange_as(b"flood")]);
    let ResOp::ExchangeId(Ok(known)) = id.only() else {
        panic!("{id:?}");
    };
    let mut sequence = known.sequence;
    let mut made = 0;
    for _ in 0..500 {
        let created = site.call(&flood, vec![create_session(known.client, sequence)]);
        match created.status() {
            Ok(()) => {
                made += 1;
                sequence = SequenceId(sequence.0 + 1);
            }
            status => assert_eq!(status, Err(Status::NoSpace)),
        }
    }
    assert_eq!(made, 20, "half of what there is");
    is_served(&site.client(b"honest"));
}

#[test]
fn endless_opens_of_one_address_leave_room_for_others() {
    let site = limited(Limits {
        states: 200,
        ..Limits::default()
    });
    let greedy = site.client_from(b"greedy", caller(2));
    let owners: Vec<_> = (0..300).map(|number| format!("owner {number}")).collect();
    let mut refused = 0;
    for owner in &owners {
        let open = ArgOp::Open(OpenArgs {
            seqid: 0,
            access: BOTH,
            deny: ShareDeny::empty(),
            owner: StateOwner {
                client: ClientId(0),
                owner: Identifier::new(owner.as_bytes()).unwrap(),
            },
            how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::default())),
            claim: OpenClaim::Null(name("f")),
        });
        match greedy.at(&[], vec![open]).status() {
            Ok(()) => {}
            status => {
                assert_eq!(status, Err(Status::Delay));
                refused += 1;
            }
        }
    }
    assert!(refused >= 200, "{refused}");
    is_served(&site.client(b"honest"));
}

#[test]
fn slots_that_wait_keep_nobody_else_waiting() {
    let [_, site] = Site::all();
    let (slow, honest) = (site.client(b"slow"), site.client(b"honest"));
    let mut jobs = Vec::new();
    for slot in 1..64 {
        let directory = format!("d{slot}");
        let sequence = ArgOp::Sequence(SequenceArgs {
            session: slow.session,
            sequence: SequenceId(1),
            slot: SlotId(slot),
            highest_slot: SlotId(63),
            cache_this: true,
        });
        let create = ArgOp::Create(CreateArgs {
            kind: CreateType::Directory,
            name: name(&directory),
            attributes: Fattr::default(),
        });
        let operations = vec![
            sequence,
            ArgOp::PutRootFh,
            lookup("srv"),
            lookup("data"),
            create,
        ];
        match site.programs.call(compound(2, operations), &slow.caller) {
            Answer::Deferred(job) => jobs.push(job),
            _ => panic!("a directory of a disk is made by a job"),
        }
    }
    is_served(&honest);
    for job in jobs {
        Results::of(Respond::wait(job).expect("a reply")).ok();
    }
    is_served(&slow);
}

#[test]
fn compound_with_too_many_operations_is_refused() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    for (operations, expected) in [
        (7, Ok(())),
        (8, Err(Status::TooManyOperations)),
        (255, Err(Status::TooManyOperations)),
    ] {
        let sequence = client.sequence.get() + 1;
        let mut all = vec![client.sequence(sequence, true)];
        all.extend((0..operations).map(|_| ArgOp::PutRootFh));
        let answer = site.call(&client.caller, all);
        assert_eq!(answer.status(), expected, "{operations}");
        // The request that was refused has not used its slot (RFC 8881 §2.10.6.1.2).
        client.sequence.set(match expected {
            Ok(()) => sequence,
            Err(_) => sequence - 1,
        });
    }
    for operations in [257, 5000] {
        let more = compound(2, vec![ArgOp::PutRootFh; operations]);
        let Answer::Now(Reply::Message(reply)) = site.programs.call(more, &client.caller) else {
            panic!("it is answered at once");
        };
        assert!(read_reply(&reply, 7).is_err(), "arguments that are none");
    }
    is_served(&client);
}

/// A COMPOUND whose last operation is written by hand.
fn by_hand(client: &Client<'_>, write: impl FnOnce(&mut Writer)) -> Result<(), Status> {
    client.sequence.set(client.sequence.get() + 1);
    let mut w = Writer::default();
    let procedure = RpcProcedure {
        prog: NFS_PROGRAM,
        vers: 4,
        proc: 1,
    };
    write_call(&mut w, 7, procedure, &root());
    let at = w.len() + 8;
    let mut call = CallWriter::new(&mut w, Tag::default(), 2);
    call.push(client.sequence(client.sequence.get(), true));
    call.push(ArgOp::PutRootFh);
    call.push(lookup("srv"));
    call.push(lookup("data"));
    call.finish();
    w.patch_u32(at, 5);
    write(&mut w);
    let Answer::Now(reply) = client.site.programs.call(w.finish(), &client.caller) else {
        panic!("it is answered at once");
    };
    Results::of(reply).status()
}

#[test]
fn lying_lengths_are_bad_xdr_and_free_their_slot() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let lies: [(u32, &[u32]); 10] = [
        // GETATTR with a bitmap of 2^32 - 1 words, and of more than there are.
        (9, &[u32::MAX]),
        (9, &[3, 0]),
        // LOOKUP of a name of 4 GiB, and of 2 GiB.
        (15, &[u32::MAX]),
        (15, &[0x8000_0000]),
        // PUTFH of a handle of 129 bytes.
        (22, &[129, 0, 0]),
        // SETATTR with attributes of 4 GiB.
        (34, &[0, 0, 0, 0, 1, 0x10, u32::MAX]),
        // OPEN with an owner of 1025 bytes.
        (18, &[0, 1, 0, 0, 0, 1025]),
        // TEST_STATEID of 2^32 - 1 state ids, and of 4097.
        (55, &[u32::MAX]),
        (55, &[4097]),
        // READDIR that ends in the middle.
        (26, &[0, 0, 0]),
    ];
    for (operation, words) in lies {
        let status = by_hand(&client, |w| {
            w.u32(operation);
            words.iter().for_each(|&word| w.u32(word));
        });
        assert_eq!(status, Err(Status::BadXdr), "{operation}: {words:?}");
    }
    is_served(&client);
}

#[test]
fn names_of_any_length_are_answered() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let names: Vec<_> = [255, 256, 4096].map(|len| "n".repeat(len)).into();
    let answers = names.iter().map(|of| {
        let create = ArgOp::Create(CreateArgs {
            kind: CreateType::Directory,
            name: Filename::new(of.as_bytes()).unwrap_or_else(|| name("n")),
            attributes: Fattr::default(),
        });
        client.at(&[], vec![create]).status()
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers[..2], [Ok(()), Err(Status::NameTooLong)]);
    for len in [0, 4096, 65_536] {
        let status = by_hand(&client, |w| {
            w.u32(15);
            w.opaque(&vec![b'n'; len]);
        });
        assert!(
            matches!(
                status,
                Err(Status::Invalid | Status::NameTooLong | Status::BadXdr)
            ),
            "{len}: {status:?}"
        );
    }
    is_served(&client);
}

#[test]
fn largest_lists_are_answered() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let state = client.open("f", BOTH).state;
    let states = vec![state; 4096];
    let test = ArgOp::TestStateId(TestStateIdArgs {
        states: Array::new(&states).unwrap(),
    });
    // Too large to be kept: the client is told before anything is done.
    let tested = client.run(vec![test.clone()]).status();
    assert_eq!(tested, Err(Status::ReplyTooBigToCache));
    let sequence = client.sequence.get() + 1;
    client.sequence.set(sequence);
    let tested = site.call(&client.caller, vec![client.sequence(sequence, false), test]);
    let ResOp::TestStateId(Ok(tested)) = tested.last() else {
        panic!("{tested:?}");
    };
    assert!(tested.statuses.iter().all(|status| status.is_ok()));
    let aces = vec![
        Ace {
            kind: AceType(0),
            flags: AceFlags::empty(),
            mask: AceMask::READ_DATA,
            who: Principal::new(b"1000").unwrap(),
        };
        1024
    ];
    let list = [Attribute::Acl(Array::new(&aces).unwrap())];
    let set = ArgOp::SetAttr(SetAttrArgs {
        state: StateId::default(),
        attributes: Fattr::new(&list).unwrap(),
    });
    assert!(client.at(&["f"], vec![set]).status().is_err());
    is_served(&client);
}

#[test]
fn directory_is_listed_within_any_size() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.open("f", BOTH);
    let list = |dir_count, max_count| {
        let read = ArgOp::ReadDir(ReadDirArgs {
            cookie: Cookie(0),
            verifier: CookieVerifier::default(),
            dir_count,
            max_count,
            wanted: Bitmap::default(),
        });
        client.at(&[], vec![read]).status()
    };
    for small in [0, 1, 15] {
        assert_eq!(list(0, small), Err(Status::TooSmall), "{small}");
    }
    for count in [0, 1, u32::MAX] {
        assert_eq!(list(count, u32::MAX), Ok(()), "{count}");
    }
    // One entry fits: its name is not kept from it by those that version 4 has no entries for.
    assert_eq!(list(1, 48), Ok(()));
    is_served(&client);
}

#[test]
fn locks_at_the_edges_of_64_bits_are_right() {
    for site in Site::all() {
        let (one, two) = (site.client(b"one"), site.client(b"two"));
        let (mine, theirs) = (one.open("f", BOTH).state, two.open("f", BOTH).state);
        let lock = |client: &Client<'_>, open, offset, length| {
            let lock = super::lock(open, LockType::Write, offset, length);
            client.at(&["f"], vec![lock]).status()
        };
        for (offset, length) in [(0, 0), (2, u64::MAX - 1), (u64::MAX, 1), (u64::MAX - 1, 3)] {
            let status = lock(&one, mine, offset, length);
            assert_eq!(status, Err(Status::Invalid), "{offset} {length}");
        }
        assert_eq!(lock(&one, mine, u64::MAX, u64::MAX), Ok(()));
        assert_eq!(lock(&two, theirs, 0, u64::MAX), Err(Status::Denied));
        assert_eq!(lock(&two, theirs, 0, u64::MAX - 1), Ok(()));
        assert_eq!(lock(&one, mine, u64::MAX - 2, 1), Err(Status::Denied));
    }
}

#[test]
fn open_that_is_refused_for_want_of_room_makes_no_file() {
    let site = limited(Limits {
        states: 1,
        ..Limits::default()
    });
    let client = site.client(b"one");
    client.open("f", BOTH);
    let guarded = || {
        let ArgOp::Open(open) = open("g", BOTH, ShareDeny::empty()) else {
            unreachable!("it is an OPEN");
        };
        ArgOp::Open(OpenArgs {
            how: OpenHow::Create(CreateHow::Guarded(v4::fattr::Fattr::default())),
            ..open
        })
    };
    // A program that creates the file must not hear that somebody else has.
    for _ in 0..2 {
        let refused = client.at(&[], vec![guarded()]);
        assert_eq!(refused.status(), Err(Status::Delay));
    }
}

#[test]
fn owner_that_comes_again_and_again_with_another_verifier_has_one_client_id() {
    let site = limited(Limits {
        clients: 4,
        ..Limits::default()
    });
    let flood = caller(2);
    for verifier in 0..200_u8 {
        let ArgOp::ExchangeId(exchange) = exchange_as(b"flood") else {
            unreachable!("it is an EXCHANGE_ID");
        };
        let again = ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier([verifier; 8]),
                ..exchange.owner
            },
            ..exchange
        });
        site.call(&flood, vec![again]).ok();
    }
    assert_eq!(site.nfs.inner.state.usage().clients, 1);
    is_served(&site.client(b"honest"));
}

#[test]
fn owner_of_another_user_is_not_taken_over() {
    let site = Site::in_memory();
    let honest = site.client(b"honest");
    let state = honest.open("f", BOTH).state;
    for uid in 1..20 {
        let stolen = site.call_as(&caller(2), uid, uid, vec![exchange_as(b"honest")]);
        assert_eq!(stolen.status(), Err(Status::ClientIdInUse));
    }
    honest.at(&["f"], vec![close(state)]).ok();
    is_served(&honest);
}

#[test]
fn slots_of_many_sessions_that_wait_keep_nobody_else_waiting() {
    const SESSIONS: u32 = 16;
    let [_, site] = Site::all();
    let honest = site.client(b"honest");
    let flood = caller(2);
    let known = site.call(&flood, vec![exchange_as(b"flood")]);
    let ResOp::ExchangeId(Ok(known)) = known.only() else {
        panic!("{known:?}");
    };
    let mut jobs = Vec::new();
    for number in 0..SESSIONS {
        let sequence = SequenceId(known.sequence.0 + number);
        let created = site.call(&flood, vec![create_session(known.client, sequence)]);
        let ResOp::CreateSession(Ok(session)) = created.only() else {
            panic!("{created:?}");
        };
        for slot in 0..session.fore.max_requests {
            let sequence = ArgOp::Sequence(SequenceArgs {
                session: session.session,
                sequence: SequenceId(1),
                slot: SlotId(slot),
                highest_slot: SlotId(slot),
                cache_this: false,
            });
            let directory = format!("d{number}-{slot}");
            let create = ArgOp::Create(CreateArgs {
                kind: CreateType::Directory,
                name: name(&directory),
                attributes: Fattr::default(),
            });
            let path = [ArgOp::PutRootFh, lookup("srv"), lookup("data")];
            let operations = [vec![sequence], path.into(), vec![create]].concat();
            match site.programs.call(compound(2, operations), &flood) {
                Answer::Deferred(job) => jobs.push(job),
                _ => panic!("a directory of a disk is made by a job"),
            }
        }
        // None of all these calls has a thread so far.
        is_served(&honest);
    }
    assert_eq!(jobs.len(), SESSIONS as usize * 64);
    for job in jobs {
        // No RECLAIM_COMPLETE is needed to make a directory.
        Results::of(Respond::wait(job).expect("a reply")).ok();
    }
    is_served(&honest);
}

/// Locks as many ranges as it may, which do not touch.
#[test]
fn storm_of_ranges_in_one_file_ends_at_its_limit_and_leaves_other_files_alone() {
    const MAX: u64 = nfs4_state::limits::MAX_LOCKS_PER_FILE as u64;
    let site = Site::in_memory();
    let greedy = site.client_from(b"greedy", caller(2));
    let state = greedy.open("f", BOTH).state;
    let mut lock = super::lock(state, LockType::Write, 0, 1);
    let (mut made, mut refused) = (0, 0);
    for place in (0..2 * MAX).rev() {
        if let ArgOp::Lock(args) = &mut lock {
            args.offset = 2 * place;
        }
        let locked = greedy.at(&["f"], vec![lock.clone()]);
        match locked.last() {
            ResOp::Lock(Ok(state)) => {
                made += 1;
                if let ArgOp::Lock(args) = &mut lock {
                    args.locker = Locker::Existing(v4::lock::ExistingLockOwner {
                        state,
                        lock_seqid: 0,
                    });
                }
            }
            other => {
                assert_eq!(other.status(), Err(Status::Delay));
                refused += 1;
                if refused > 10 {
                    break;
                }
            }
        }
    }
    assert!((MAX - 2..=MAX).contains(&made), "{made}");
    let honest = site.client(b"honest");
    let other = honest.open("g", BOTH).state;
    let lock = super::lock(other, LockType::Write, 0, u64::MAX);
    honest.at(&["g"], vec![lock]).ok();
    is_served(&honest);
    // One CLOSE frees all.
    greedy.at(&["f"], vec![close(state)]).ok();
    assert_eq!(site.nfs.inner.state.usage().locks, 1);
}

#[test]
fn directory_is_listed_with_all_attributes_within_what_the_client_takes() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    for number in 0..600 {
        let made = format!("{number:0200}");
        let create = ArgOp::Create(CreateArgs {
            kind: CreateType::Directory,
            name: name(&made),
            attributes: Fattr::default(),
        });
        client.at(&[], vec![create]).ok();
    }
    let can_be_read = |&number: &u32| attributes::check_get(&Bitmap::of([number])).is_ok();
    let (mut cookie, mut verifier) = (0, CookieVerifier::default());
    let (mut seen, mut calls) = (0, 0);
    loop {
        let read = ArgOp::ReadDir(ReadDirArgs {
            cookie: Cookie(cookie),
            verifier,
            dir_count: u32::MAX,
            max_count: u32::MAX,
            // Also those that nobody knows, but none that can only be set.
            wanted: Bitmap::of((0..8 * 32).filter(can_be_read)),
        });
        let sequence = client.sequence.get() + 1;
        client.sequence.set(sequence);
        let path = [ArgOp::PutRootFh, lookup("srv"), lookup("data")];
        let operations = [
            vec![client.sequence(sequence, false)],
            path.into(),
            vec![read],
        ]
        .concat();
        let listed = site.call(&client.caller, operations);
        assert!(listed.body.stream_len() <= 1 << 20);
        let ResOp::ReadDir(Ok(page)) = listed.last() else {
            panic!("{:?}", listed.status());
        };
        calls += 1;
        seen += page.entries.0.len();
        verifier = page.verifier;
        if let Some(last) = page.entries.0.last() {
            cookie = last.cookie.0;
        }
        if page.eof {
            break;
        }
        assert!(!page.entries.0.is_empty(), "each call goes on");
    }
    assert_eq!(seen, 600);
    assert!(calls < 100, "{calls}");
    is_served(&client);
}

#[test]
fn files_that_are_none_are_not_opened_and_nobody_waits_for_them() {
    for site in Site::all() {
        let client = site.client(b"one");
        let device = nfs_proto::Device { major: 1, minor: 3 };
        let kinds = [
            ("fifo", CreateType::Fifo),
            ("socket", CreateType::Socket),
            ("device", CreateType::Character(device)),
        ];
        for (of, kind) in kinds {
            let create = ArgOp::Create(CreateArgs {
                kind,
                name: name(of),
                attributes: Fattr::default(),
            });
            let made = client.at(&[], vec![create]).status();
            if of == "device" && made == Err(Status::Perm) {
                continue;
            }
            assert_eq!(made, Ok(()), "{of}");
            for access in [ShareAccess::READ, ShareAccess::WRITE, BOTH] {
                let opened = client.at(&[], vec![open(of, access, ShareDeny::empty())]);
                assert_eq!(opened.status(), Err(Status::WrongType), "{of}");
            }
            let read = ArgOp::Read(ReadArgs {
                state: StateId::default(),
                offset: 0,
                count: 1,
            });
            let read = client.at(&[of], vec![read]).status();
            assert!(read.is_err(), "{of}: {read:?}");
        }
        is_served(&client);
    }
}

/// A list of access that is as long as a message may have it, of users without a mask in common.
#[test]
fn access_control_lists_of_any_length_are_answered() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", BOTH);
        for entries in [1, 32, 1024, 4096, 8192] {
            let names: Vec<_> = (0..entries).map(|uid| format!("{}", 1000 + uid)).collect();
            let aces: Vec<_> = names
                .iter()
                .map(|who| Ace {
                    kind: AceType(0),
                    flags: AceFlags::empty(),
                    mask: AceMask::READ_DATA,
                    who: Principal::new(who.as_bytes()).unwrap(),
                })
                .collect();
            let Some(aces) = Array::new(&aces) else {
                continue;
            };
            let list = [Attribute::Acl(aces)];
            let Some(attributes) = Fattr::new(&list) else {
                continue;
            };
            let set = ArgOp::SetAttr(SetAttrArgs {
                state: StateId::default(),
                attributes,
            });
            let set = client.at(&["f"], vec![set]);
            assert!(set.all().1.len() >= 2, "{set:?}");
        }
        let listed = client.at(&["f"], vec![get(&[AttributeNumber::Acl])]);
        let known = [Ok(()), Err(Status::ReplyTooBigToCache)];
        assert!(known.contains(&listed.status()), "{listed:?}");
        is_served(&client);
    }
}
