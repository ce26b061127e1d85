//! Reading and writing whole files, through whatever a server may do.

mod fake;

use bytes::Bytes;
use fake::{Carry, Direct, Faults, bytes, export};
use nfs_client::{Export, Fault, Resume, Tuning};
use nfs_proto::args::CreateHow;
use nfs_proto::{SetAttributes, Status};
use oncrpc::RpcError;
use oncrpc::xdr::Gather;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: usize = 1_234_567;

/// Writes and reads back a file on a server with these faults, both ways of carrying data.
async fn there_and_back(faults: Faults) {
    for carry in [Carry::Apart, Carry::Inline] {
        let (server, export) = export(faults.clone(), carry).await;
        let data = bytes(SIZE, 3);
        export
            .write_all("/file", data.clone(), SetAttributes::default())
            .await
            .unwrap();
        assert!(
            server.disk.lock().unwrap().read("/file") == data,
            "the data is there"
        );
        server.disk.lock().unwrap().crash();
        assert!(
            server.disk.lock().unwrap().read("/file") == data,
            "and survives a crash"
        );
        assert!(
            export.read_all("/file", SIZE).await.unwrap() == data,
            "and is read back"
        );
    }
}

#[tokio::test]
async fn file_is_written_and_read_back() {
    there_and_back(Faults::default()).await;
}

#[tokio::test]
async fn short_reads_and_writes_are_completed() {
    there_and_back(Faults {
        short_reads: Some(1001),
        short_writes: Some(777),
        ..Faults::default()
    })
    .await;
}

#[tokio::test]
async fn server_that_moves_a_byte_at_a_time_is_given_up() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    export
        .write_all("/a", bytes(5000, 1), SetAttributes::default())
        .await
        .unwrap();
    server.faults.lock().unwrap().short_reads = Some(1);
    let error = export.read_all("/a", 5000).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
    server.faults.lock().unwrap().short_writes = Some(1);
    let error = export
        .write_all("/b", bytes(5000, 1), SetAttributes::default())
        .await;
    let error = error.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
}

#[tokio::test]
async fn upload_that_replaces_nothing_leaves_what_has_the_name() {
    for no_links in [false, true] {
        let faults = Faults {
            no_links,
            ..Faults::default()
        };
        let (server, export) = export(faults, Carry::Apart).await;
        let upload = async |data: &'static [u8]| {
            let mut upload = export.upload("/a", SetAttributes::default()).await.unwrap();
            upload
                .write_last(Gather::from_elem(data.into(), 1))
                .await
                .unwrap();
            let completed = upload.complete_new().await;
            if completed.is_err() {
                upload.abandon().await.unwrap();
            }
            completed
        };
        upload(b"first").await.unwrap();
        let error = upload(b"second").await.unwrap_err();
        assert_eq!(error.status(), Some(Status::Exist));
        assert_eq!(server.disk.lock().unwrap().read("/a"), b"first");
        assert_eq!(export.entries("/").await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn data_that_a_crash_lost_is_written_again() {
    there_and_back(Faults {
        crashes: vec![5, 6, 19, 25],
        ..Faults::default()
    })
    .await;
}

#[tokio::test]
async fn crash_within_a_write_of_several_parts_loses_nothing() {
    there_and_back(Faults {
        short_writes: Some(40_000),
        crashes: vec![7, 12],
        ..Faults::default()
    })
    .await;
}

#[tokio::test]
async fn only_what_was_lost_is_written_again() {
    let faults = Faults {
        crashes: vec![10],
        ..Faults::default()
    };
    let (server, export) = export(faults, Carry::Apart).await;
    let data = bytes(16 * 65536, 1);
    let mut stream = export
        .create("/file", CreateHow::Guarded(SetAttributes::default()))
        .await
        .unwrap();
    stream
        .write(std::iter::once(Bytes::from(data.clone())).collect())
        .await
        .unwrap();
    stream.finish().await.unwrap();
    // Nine WRITEs came before the crash.
    assert_eq!(stream.rewritten(), 9 * 65536);
    assert_eq!(server.counts().0, 16 + 9);
    assert!(server.disk.lock().unwrap().read("/file") == data);
}

#[tokio::test]
async fn writing_to_a_server_that_loses_all_data_fails() {
    let faults = Faults {
        always_crashes: true,
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    // More than one WRITE, which would be stable at once.
    let error = export
        .write_all("/file", bytes(SIZE, 1), SetAttributes::default())
        .await
        .unwrap_err();
    assert!(matches!(error.fault, Fault::KeepsRestarting(_)), "{error}");
    assert!(
        export.entries("/").await.unwrap().is_empty(),
        "nothing is left behind"
    );
}

#[tokio::test]
async fn data_that_is_stable_at_once_needs_no_commit() {
    let faults = Faults {
        always_stable: true,
        ..Faults::default()
    };
    let (server, export) = export(faults, Carry::Apart).await;
    export
        .write_all("/file", bytes(SIZE, 1), SetAttributes::default())
        .await
        .unwrap();
    assert_eq!(server.counts().1, 0);
}

#[tokio::test]
async fn file_of_one_write_is_uploaded_in_three_calls() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    let data = bytes(4096, 5);
    let piece = || std::iter::once(Bytes::from(data.clone())).collect();
    let calls = || export.nfs().transport().calls.load(Relaxed);
    let before = calls();
    let root = export.root().handle;
    let none = SetAttributes::default();
    let mut upload = export.upload_in(root, "file", none).await.unwrap();
    upload.write_last(piece()).await.unwrap();
    upload.finish().await.unwrap();
    assert_eq!(calls() - before, 3, "CREATE, WRITE and RENAME");
    server.disk.lock().unwrap().crash();
    assert!(server.disk.lock().unwrap().read("/file") == data);

    let mut upload = export.upload_in(root, "twice", none).await.unwrap();
    upload.write(piece()).await.unwrap();
    upload.write_last(piece()).await.unwrap();
    upload.finish().await.unwrap();
    server.disk.lock().unwrap().crash();
    let twice = [&data[..], &data].concat();
    assert!(server.disk.lock().unwrap().read("/twice") == twice);
    assert_eq!(
        server.counts().1,
        1,
        "there is a COMMIT for what came before"
    );
}

#[tokio::test]
async fn memory_of_a_stream_is_bounded_by_commits() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    let tuning = export.tuning().with_uncommitted(4 * 65536);
    let export = export.with_tuning(tuning);
    export
        .write_all("/file", bytes(16 * 65536, 1), SetAttributes::default())
        .await
        .unwrap();
    assert_eq!(server.counts(), (16, 4, 65536));
}

#[tokio::test]
async fn sizes_and_depth_are_what_server_and_user_allow() {
    let (server, export) = export(
        Faults {
            read_max: Some(5000),
            ..Faults::default()
        },
        Carry::Apart,
    )
    .await;
    let export = export.with_tuning(
        Tuning::new(&Default::default())
            .with_read_size(1 << 20)
            .with_write_size(1 << 20)
            .with_depth(3),
    );
    assert_eq!(export.tuning().read_size, 5000);
    export
        .write_all("/file", bytes(SIZE, 1), SetAttributes::default())
        .await
        .unwrap();
    assert_eq!(server.counts().2, 65536);
    assert!(export.read_all("/file", SIZE).await.unwrap() == bytes(SIZE, 1));
    assert_eq!(export.nfs().transport().most.load(Relaxed), 3);
}

#[tokio::test]
async fn calls_in_flight_are_bounded_by_the_transport_and_by_bytes() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    let data = bytes(SIZE, 1);
    // Some calls are answered at once, so that not all places are taken at the same time.
    let nearly = |most: usize, expected| (expected / 2 + 1..=expected).contains(&most);
    let check = async |export: &Export<Direct>, credits: usize, expected: usize| {
        let transport = export.nfs().transport();
        transport.depth.store(credits, Relaxed);
        transport.most.store(0, Relaxed);
        export
            .write_all("/file", data.clone(), SetAttributes::default())
            .await
            .unwrap();
        let most = transport.most.swap(0, Relaxed);
        assert!(nearly(most, expected), "writing: {most} of {expected}");
        assert!(export.read_all("/file", SIZE).await.unwrap() == data);
        let most = transport.most.load(Relaxed);
        assert!(nearly(most, expected), "reading: {most} of {expected}");
    };
    check(&export, 1, 1).await;
    check(&export, 16, 16).await;
    let tuning = export.tuning().with_in_flight(8 * 65536);
    let export = export.with_tuning(tuning);
    check(&export, 16, 8).await;
    check(&export, 3, 3).await;
}

#[tokio::test]
async fn waiting_for_data_can_be_cancelled_and_resumed() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    let data = bytes(SIZE, 9);
    let mut upload = export
        .upload("/file", SetAttributes::default())
        .await
        .unwrap();
    for piece in data.chunks(100_000) {
        let piece = std::iter::once(Bytes::copy_from_slice(piece)).collect();
        tokio::select! {
            biased;
            done = upload.write(piece) => done.unwrap(),
            () = std::future::ready(()) => {}
        }
    }
    upload.finish().await.unwrap();

    let mut stream = export.read("/file").await.unwrap();
    let mut read = Vec::new();
    loop {
        tokio::select! {
            biased;
            next = stream.next() => match next.unwrap() {
                Some(pieces) => read.extend(pieces.concat()),
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(read == data);
}

#[tokio::test]
async fn stream_knows_with_its_last_data_that_it_has_ended() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    for len in [1, 4096, 65_536, 65_537] {
        export
            .write_all("/file", bytes(len, 1), SetAttributes::default())
            .await
            .unwrap();
        let mut stream = export.read("/file").await.unwrap();
        let mut left = len;
        while !stream.has_ended() {
            left -= buffer::gather_len(&stream.next().await.unwrap().unwrap());
        }
        assert_eq!(left, 0);
        assert_eq!(stream.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn file_that_grows_while_it_is_read_is_read_to_its_new_end() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    export
        .write_all("/file", bytes(100_000, 1), SetAttributes::default())
        .await
        .unwrap();
    let mut stream = export.read("/file").await.unwrap();
    let file = export.stat("/file").await.unwrap();
    let number = file.attributes.file_id.0;
    let more = bytes(300_000, 1);
    server
        .disk
        .lock()
        .unwrap()
        .write(number, 0, &more, true)
        .unwrap();
    let mut read = Vec::new();
    while let Some(pieces) = stream.next().await.unwrap() {
        read.extend(pieces.concat());
    }
    assert!(read == more);
}

#[tokio::test]
async fn empty_file_is_read_and_written() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export
        .write_all("/empty", Vec::new(), SetAttributes::default())
        .await
        .unwrap();
    assert_eq!(export.read_all("/empty", 0).await.unwrap(), b"");
}

#[tokio::test]
async fn reading_begins_where_it_is_told_to() {
    let (_, export) = export(Faults::default(), Carry::Inline).await;
    let data = bytes(200_000, 4);
    export
        .write_all("/file", data.clone(), SetAttributes::default())
        .await
        .unwrap();
    let mut stream = export.read("/file").await.unwrap().from(70_001);
    let mut read = Vec::new();
    while let Some(pieces) = stream.next().await.unwrap() {
        read.extend(pieces.concat());
    }
    assert!(read == data[70_001..]);
}

#[tokio::test]
async fn read_that_makes_no_progress_is_an_error() {
    let faults = Faults {
        empty_reads: true,
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    export
        .write_all("/file", bytes(10, 1), SetAttributes::default())
        .await
        .unwrap();
    let error = export.read_all("/file", 10).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
}

#[tokio::test]
async fn file_that_is_replaced_before_its_first_byte_is_looked_up_again() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    export
        .write_all("/file", bytes(200_000, 1), SetAttributes::default())
        .await
        .unwrap();
    let is_gone = |reads| server.faults.lock().unwrap().stale_reads = reads;
    is_gone(3);
    assert!(export.read_all("/file", 200_000).await.unwrap() == bytes(200_000, 1));
    // What was given out is not of another file.
    let mut stream = export.read("/file").await.unwrap();
    assert!(!stream.has_ended() && stream.next().await.unwrap().is_some());
    is_gone(u32::MAX);
    while let Ok(Some(_)) = stream.next().await {}
    assert!(stream.has_ended());
    let error = export.read_all("/file", 200_000).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::Stale));
}

#[tokio::test(start_paused = true)]
async fn call_answered_with_jukebox_is_retried() {
    let faults = Faults {
        jukebox: 3,
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    export
        .write_all("/file", bytes(10, 1), SetAttributes::default())
        .await
        .unwrap();
    assert!(export.read_all("/file", 10).await.unwrap() == bytes(10, 1));
}

#[tokio::test(start_paused = true)]
async fn call_always_answered_with_jukebox_fails() {
    let faults = Faults {
        jukebox: u32::MAX,
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    export
        .write_all("/file", bytes(10, 1), SetAttributes::default())
        .await
        .unwrap();
    let error = export.read_all("/file", 10).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::Jukebox));
}

#[tokio::test]
async fn larger_file_than_allowed_is_not_read_into_memory() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export
        .write_all("/file", bytes(11, 1), SetAttributes::default())
        .await
        .unwrap();
    let error = export.read_all("/file", 10).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::TooBig));
}

#[tokio::test]
async fn program_that_is_not_served_is_an_rpc_error() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    let error = export.nfs().call(&nfs_proto::mount::Export).await;
    assert!(error.is_ok(), "MOUNT is on the same transport");
    let (_, hidden) = fake::export(
        Faults {
            hides_exports: true,
            ..Faults::default()
        },
        Carry::Apart,
    )
    .await;
    let error = hidden
        .nfs()
        .call(&nfs_proto::mount::Export)
        .await
        .unwrap_err();
    assert_eq!(error, Fault::Rpc(RpcError::ProcUnavail));
}

/// Writes what is left of a file, with a hole in it where there are zeros; up to `end`.
async fn send_rest<T: oncrpc::Transport + Send + Sync>(
    upload: &mut nfs_client::Upload<'_, T>,
    data: &[u8],
    end: usize,
) {
    const PIECE: usize = 10_000;
    while upload.offset() < end as u64 {
        let begin = usize::try_from(upload.offset()).unwrap();
        let piece = &data[begin..end.min(begin + PIECE)];
        match piece.iter().all(|byte| *byte == 0) {
            true => upload.skip(piece.len() as u64),
            false => {
                let piece = Bytes::copy_from_slice(piece);
                upload
                    .write(std::iter::once(piece).collect())
                    .await
                    .unwrap();
            }
        }
    }
}

#[tokio::test]
async fn upload_that_was_cut_off_is_continued_with_what_is_on_stable_storage() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    let mut data = bytes(1_000_000, 5);
    data[300_000..600_000].fill(0);
    data[950_000..].fill(0);
    let resume = Resume {
        number: 7,
        window: 100_000,
    };
    let root = export.root().handle;
    let usual = SetAttributes::default();
    let begin = async || {
        let upload = export.resume_upload_in(root, "file", usual, resume, |_| true);
        upload.await.unwrap()
    };
    let mut before = 0;
    for cut in [50_000, 250_000, 650_000, 760_000, 960_000] {
        let mut upload = begin().await;
        let there = usize::try_from(upload.offset()).unwrap();
        assert!(before <= there && there < 1_000_000, "{before}, {there}");
        before = there;
        let name = String::from_utf8(upload.temporary_name().to_vec()).unwrap();
        if there > 0 {
            let found = server.disk.lock().unwrap().read(&name);
            assert!(found[..there] == data[..there], "up to {there}");
        }
        send_rest(&mut upload, &data, cut.max(there)).await;
        drop(upload);
        // What is not committed is lost.
        server.disk.lock().unwrap().crash();
    }
    assert!(before > 500_000, "{before}");
    let mut upload = begin().await;
    send_rest(&mut upload, &data, data.len()).await;
    upload.finish().await.unwrap();
    assert!(server.disk.lock().unwrap().read("file") == data);
    assert_eq!(export.entries("/").await.unwrap().len(), 1);
}

#[tokio::test]
async fn file_of_somebody_else_is_not_continued_and_one_of_another_version_is_begun_anew() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    let resume = Resume {
        number: 7,
        window: 1000,
    };
    let name = nfs_client::temporary_name(b"file", 7);
    let other = bytes(50_000, 9);
    let usual = SetAttributes::default();
    export.write_all(&name, other, usual).await.unwrap();
    let root = export.root().handle;
    let refused = export.resume_upload_in(root, "file", usual, resume, |_| false);
    let refused = refused.await.err().unwrap();
    assert_eq!(refused.status(), Some(Status::Exist));

    let mut upload = export
        .resume_upload_in(root, "file", usual, resume, |_| true)
        .await
        .unwrap();
    assert_eq!(upload.offset(), 49_000);
    upload.restart().await.unwrap();
    let data = bytes(30_000, 10);
    send_rest(&mut upload, &data, data.len()).await;
    upload.finish().await.unwrap();
    assert!(server.disk.lock().unwrap().read("file") == data);
}

#[tokio::test]
async fn upload_may_consist_of_a_hole_and_end_with_one() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    for data in [
        vec![0; 50_000],
        [bytes(20_000, 2), vec![0; 40_000]].concat(),
    ] {
        let usual = SetAttributes::default();
        let mut upload = export.upload("/file", usual).await.unwrap();
        send_rest(&mut upload, &data, data.len()).await;
        upload.finish().await.unwrap();
        assert!(server.disk.lock().unwrap().read("/file") == data);
    }
}
