//! Requests that come again (RFC 8881 §2.10.6).

use super::*;
use nfs_proto::v4::directory::{CreateArgs, CreateType, RemoveArgs};
use nfs_proto::v4::file::{ReadArgs, WriteArgs};

fn remove() -> Vec<ArgOp<'static>> {
    vec![
        ArgOp::PutRootFh,
        lookup("srv"),
        lookup("data"),
        ArgOp::Remove(RemoveArgs { name: name("d") }),
    ]
}

fn make() -> ArgOp<'static> {
    ArgOp::Create(CreateArgs {
        kind: CreateType::Directory,
        name: name("d"),
        attributes: v4::fattr::Fattr::default(),
    })
}

#[test]
fn retry_gets_the_reply_and_is_not_executed() {
    for site in Site::all() {
        let mut client = site.client(b"one");
        client.at(&[], vec![make()]).ok();
        let first = client.run(remove());
        first.ok();
        // The client has lost its connection.
        client.caller = Caller::new("127.0.0.1:701".parse().unwrap());
        let again = client.again(remove());
        assert_eq!(again.all(), first.all());
        assert_eq!(client.run(remove()).status(), Err(Status::NoEntry));
    }
}

#[test]
fn retry_of_another_request_is_told_so() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.run(remove());
    let other = client.again(vec![ArgOp::PutRootFh, lookup("srv"), lookup("other")]);
    assert_eq!(other.status(), Err(Status::SequenceFalseRetry));
}

#[test]
fn retry_of_a_request_whose_reply_was_not_kept_is_told_so() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.sequence.set(2);
    let request = || vec![client.sequence(2, false), ArgOp::PutRootFh];
    site.call(&client.caller, request()).ok();
    let again = site.call(&client.caller, request());
    let (status, results) = again.all();
    assert_eq!(status, Err(Status::RetryUncachedReply));
    assert!(matches!(results[0], ResOp::Sequence(Ok(_))), "{results:?}");
    let later = site.call(&client.caller, vec![client.sequence(4, false)]);
    assert_eq!(later.status(), Err(Status::SequenceMisordered));
}

#[test]
fn job_that_its_connection_takes_along_can_be_sent_anew() {
    let [_, site] = Site::all();
    let client = site.client(b"one");
    client.sequence.set(2);
    let mut request = vec![client.sequence(2, true)];
    request.extend(remove());
    request.pop();
    request.push(make());
    let answer = site.programs.call(compound(2, request), &client.caller);
    let Answer::Deferred(job) = answer else {
        panic!("a directory of a disk is made by a job");
    };
    drop(job);
    let mut operations = remove();
    operations.pop();
    operations.push(make());
    assert_eq!(
        client.again(operations.clone()).status(),
        Err(Status::Delay)
    );
    client.run(operations).ok();
}

#[test]
fn retry_waits_for_the_request_that_is_being_executed() {
    let [_, site] = Site::all();
    let client = site.client(b"one");
    client.sequence.set(2);
    let request = || {
        let mut all = vec![client.sequence(2, true)];
        all.extend(remove());
        all.pop();
        all.push(make());
        compound(2, all)
    };
    let Answer::Deferred(first) = site.programs.call(request(), &client.caller) else {
        panic!("a directory of a disk is made by a job");
    };
    let Answer::Deferred(second) = site.programs.call(request(), &client.caller) else {
        panic!("it waits");
    };
    let (replies, received) = std::sync::mpsc::channel();
    second(Respond::new(move |reply| replies.send(reply).unwrap()));
    assert!(received.try_recv().is_err(), "the first is not done");
    let first = Results::of(Respond::wait(first).expect("a reply"));
    first.ok();
    let second = Results::of(received.recv().unwrap().expect("a reply"));
    assert_eq!(second.all(), first.all());
}

#[test]
fn retry_with_other_chunks_gets_the_same_results_for_its_own() {
    for site in Site::all() {
        let client = site.client(b"one");
        let both = ShareAccess::READ | ShareAccess::WRITE;
        let state = client.open("f", both).state;
        let data = || bytes::Bytes::from_static(&[7; 5000]);
        let at_f = |operation: ArgOp<'static>| {
            let sequence = client.sequence(client.sequence.get(), true);
            let path = [ArgOp::PutRootFh, lookup("srv"), lookup("data"), lookup("f")];
            let mut all = vec![sequence];
            all.extend(path);
            all.push(operation);
            compound(2, all)
        };
        let write = || {
            at_f(ArgOp::Write(WriteArgs {
                state,
                offset: 0,
                stable: nfs_proto::Stable::Unstable,
                data: buffer::Gather::from_elem(data(), 1).into(),
            }))
        };
        client.sequence.set(client.sequence.get() + 1);
        let first = site.answer(write(), &client.caller);
        first.ok();
        // The data came in a chunk, and now is a part of the message.
        let again = site.answer(in_one_piece(&write()), &client.caller);
        assert_eq!(again.all(), first.all());

        let read = || {
            at_f(ArgOp::Read(ReadArgs {
                state,
                offset: 0,
                count: 5000,
            }))
        };
        client.sequence.set(client.sequence.get() + 1);
        let first = site.answer(read(), &client.caller);
        let again = site.answer(read(), &client.caller);
        assert_eq!(again.all(), first.all());
        let items = |results: &Results| results.body.items().len();
        assert_eq!((items(&first), items(&again)), (1, 1));
    }
}

/// A message without items beside it.
fn in_one_piece(message: &Payload) -> Payload {
    let mut stream = buffer::Buffer::default();
    message.copy_stream_into(&mut stream);
    Payload::new(stream, 0)
}

#[test]
fn retry_that_comes_while_the_slot_goes_on_gets_no_other_reply() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.at(&[], vec![make()]).ok();
    let old = client.sequence.get();
    client.run(remove()).ok();
    let sequence = ArgOp::Sequence(SequenceArgs {
        session: client.session,
        sequence: SequenceId(old),
        slot: SlotId(0),
        highest_slot: SlotId(0),
        cache_this: true,
    });
    let mut all = vec![sequence];
    all.extend(remove());
    all.pop();
    all.push(make());
    let late = site.call(&client.caller, all);
    assert_eq!(late.status(), Err(Status::SequenceMisordered));
    assert_eq!(client.run(remove()).status(), Err(Status::NoEntry));
}
