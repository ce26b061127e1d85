//! A connection to the model, and what tests do with it.

use super::Fake;
use crate::provider::Ibv;
use crate::shared::Config;
use buffer::Pool;
use std::error::Error;
use std::future::poll_fn;
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Connected, Provider as _, QpOptions, QueuePair, SetupError, WorkError,
    WorkRequest, WrId,
};

/// Receives that are posted when a connection is made, with numbers from 0.
pub(super) const RECEIVES: u64 = 4;

/// More than everything takes that ends, in virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Runs a test in virtual time.
pub(super) fn run<T>(what: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let limited = tokio::time::timeout(TIME_LIMIT, what);
        limited.await.expect("it ends")
    })
}

pub(super) fn open(fake: &Fake) -> Result<Ibv, crate::OpenError> {
    Ibv::over(fake.libraries(), Config::default())
}

pub(super) fn receives(pool: &Pool) -> Vec<WorkRequest> {
    let receive = |number| WorkRequest::Receive {
        wr: WrId(number),
        buffer: pool.take(4096),
    };
    (0..RECEIVES).map(receive).collect()
}

pub(super) async fn connect(provider: &Ibv) -> Result<Connected, SetupError> {
    connect_with(provider, &Pool::new(1 << 20)).await
}

/// The same with Receives in memory of this pool.
pub(super) async fn connect_with(provider: &Ibv, pool: &Pool) -> Result<Connected, SetupError> {
    let to = "192.0.2.1:20049".parse().unwrap();
    let options = QpOptions::default();
    provider
        .connect(to, &options, b"hello", receives(pool))
        .await
}

/// One end of a connection.
pub(super) async fn connected(fake: &Fake, pool: &Pool) -> Box<dyn QueuePair> {
    let provider = open(fake).unwrap();
    connect_with(&provider, pool).await.unwrap().qp
}

/// Why there is no connection.
pub(super) fn connect_error(fake: &Fake) -> SetupError {
    run(async {
        let provider = open(fake).unwrap();
        connect(&provider).await.err().expect("no connection")
    })
}

/// Progress until something completes.
pub(super) async fn next(qp: &mut dyn QueuePair) -> Completion {
    loop {
        while qp.progress() {}
        if let Some(completion) = qp.poll_cq() {
            return completion;
        }
        assert_eq!(qp.closed(), None, "nothing has completed");
        poll_fn(|cx| qp.poll_ready(cx)).await;
    }
}

/// The next message, with the number of its Receive.
pub(super) async fn message(qp: &mut dyn QueuePair) -> (u64, Vec<u8>) {
    match next(qp).await {
        Completion::Receive { wr, buffer, .. } => (wr.0, buffer.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Progress until the connection has ended. Gives what completed.
pub(super) async fn until_closed(qp: &mut dyn QueuePair) -> Vec<Completion> {
    let mut completions = Vec::new();
    loop {
        while qp.progress() {}
        completions.extend(std::iter::from_fn(|| qp.poll_cq()));
        if qp.closed().is_some() {
            return completions;
        }
        poll_fn(|cx| qp.poll_ready(cx)).await;
    }
}

/// The same, with the reason, which has to have come by itself. All Receives are given back.
pub(super) async fn end(qp: &mut dyn QueuePair) -> (CloseReason, Vec<Completion>) {
    let mut completions = until_closed(qp).await;
    let receives = completions.extract_if(.., |completion| match completion {
        Completion::Failed { wr, .. } => wr.0 < RECEIVES,
        _ => false,
    });
    assert_flushed(&receives.collect::<Vec<_>>());
    (qp.closed().cloned().expect("it has ended"), completions)
}

/// All Receives are given back, each once.
pub(super) fn assert_flushed(completions: &[Completion]) {
    let numbers = completions.iter().map(|completion| match completion {
        Completion::Failed {
            wr,
            error: WorkError::Flushed,
        } => wr.0,
        other => panic!("{other:?}"),
    });
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..RECEIVES));
}

/// The text of an error with its causes, as programs show it.
pub(super) fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// A Send of so many bytes.
pub(super) fn send(pool: &Pool, number: u64, length: usize) -> WorkRequest {
    let mut buffer = pool.take(length);
    buffer.set_len(length);
    WorkRequest::Send {
        wr: WrId(number),
        buffer,
        rest: verbs::Gather::new(),
        invalidate: None,
    }
}
