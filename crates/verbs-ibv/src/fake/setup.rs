//! What fails while a provider is opened and a connection set up, and what is said about it.

use super::{Answer, Fake};
use crate::provider::Ibv;
use crate::shared::Config;
use crate::sys::IBV_EVENT_DEVICE_FATAL;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR,
    RDMA_CM_EVENT_UNREACHABLE,
};
use buffer::Pool;
use std::error::Error;
use std::future::poll_fn;
use verbs::{
    Completion, Invalidation, Provider as _, QpOptions, QueuePair, SetupError, WorkError,
    WorkRequest, WrId,
};

const RECEIVES: u64 = 4;

fn run<T>(what: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(what)
}

fn open(fake: &Fake) -> Result<Ibv, crate::OpenError> {
    Ibv::over(fake.libraries(), Config::default())
}

async fn connect(provider: &Ibv) -> Result<verbs::Connected, SetupError> {
    let pool = Pool::new(1 << 20);
    let receive = |number| WorkRequest::Receive {
        wr: WrId(number),
        buffer: pool.take(4096),
    };
    let receives = (0..RECEIVES).map(receive).collect();
    let to = "192.0.2.1:20049".parse().unwrap();
    let options = QpOptions::default();
    provider.connect(to, &options, b"hello", receives).await
}

/// Progress until the connection has ended. Gives what completed.
async fn until_closed(qp: &mut dyn QueuePair) -> Vec<Completion> {
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

/// All Receives are given back, each once.
fn assert_flushed(completions: &[Completion]) {
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
fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// Why there is no connection.
fn connect_error(fake: &Fake) -> SetupError {
    run(async {
        let provider = open(fake).unwrap();
        connect(&provider).await.err().expect("no connection")
    })
}

#[test]
fn close_flushes_each_receive_once() {
    let fake = Fake::new();
    let completions = run(async {
        let mut connected = connect(&open(&fake).unwrap()).await.unwrap();
        connected.qp.close();
        until_closed(&mut *connected.qp).await
    });
    assert_flushed(&completions);
}

/// Each call of the libraries fails in its turn: that is an error, or there is another way; and nothing is left.
#[test]
fn failure_of_any_call_leaves_nothing_behind() {
    // A device is used without windows if it has none, and with less inline if it has no room. What is known about it
    // before it is needed is a guess.
    let optional = [
        "ibv_open_device",
        "ibv_query_device",
        "ibv_alloc_pd",
        "ibv_alloc_mw",
        "rdma_create_qp",
    ];
    for number in 1.. {
        let fake = Fake::new();
        fake.fail_nth(number, libc::ENOMEM);
        let result = run(async {
            let provider = open(&fake).map_err(|error| text(&error))?;
            let connected = connect(&provider).await;
            let mut connected = connected.map_err(|error| text(&error))?;
            connected.qp.close();
            Ok::<_, String>(until_closed(&mut *connected.qp).await)
        });
        let failed = fake.failed();
        match (result, failed.first()) {
            (Ok(completions), None) => {
                assert!(number > 15, "only {number} calls");
                return assert_flushed(&completions);
            }
            (Ok(completions), Some(failed)) => {
                assert!(optional.contains(failed), "{failed} failed unnoticed");
                assert_flushed(&completions);
            }
            (Err(error), failed) => {
                assert!(failed.is_some(), "{error}");
                let named = error.contains("annot allocate memory");
                assert!(named && !error.contains('\n'), "{failed:?}: {error}");
            }
        }
    }
}

#[test]
fn no_device_names_how_to_make_one() {
    let fake = Fake::new();
    fake.without_device();
    let text = open(&fake).unwrap_err().to_string();
    assert!(text.contains("rdma link add"), "{text}");
}

#[test]
fn unknown_device_names_those_that_are_there() {
    let fake = Fake::new();
    let device = Some("mlx5_9".into());
    let error = Ibv::over(
        fake.libraries(),
        Config {
            device,
            ..Config::default()
        },
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no RDMA device mlx5_9; there are: fake0"
    );
}

#[test]
fn locked_memory_limit_is_named_with_its_remedy() {
    let fake = Fake::new();
    fake.fail("ibv_reg_mr", libc::ENOMEM);
    let text = text(&connect_error(&fake));
    assert!(text.contains("ulimit -l"), "{text}");
    assert!(text.contains("LimitMEMLOCK="), "{text}");
}

#[test]
fn address_without_device_names_the_list_of_devices() {
    let fake = Fake::new();
    fake.answer_address(Answer::with(RDMA_CM_EVENT_ADDR_ERROR, -libc::ENODEV, b""));
    let error = connect_error(&fake);
    assert!(matches!(error, SetupError::NoDevice(_)), "{error:?}");
    let text = text(&error);
    assert!(text.contains("192.0.2.1:20049"), "{text}");
    assert!(text.contains("rdma link"), "{text}");
}

#[test]
fn address_without_route_is_named() {
    let fake = Fake::new();
    fake.answer_route(Answer::with(
        RDMA_CM_EVENT_ROUTE_ERROR,
        -libc::EHOSTUNREACH,
        b"",
    ));
    let text = text(&connect_error(&fake));
    assert!(text.contains("192.0.2.1:20049"), "{text}");
    assert!(text.contains("is the address right?"), "{text}");
}

#[test]
fn unreachable_peer_does_not_answer() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(
        RDMA_CM_EVENT_UNREACHABLE,
        -libc::ETIMEDOUT,
        b"",
    ));
    let text = text(&connect_error(&fake));
    assert!(text.contains("it does not answer"), "{text}");
}

#[test]
fn rejection_of_the_peer_has_its_private_data() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 28, &[7; 148]));
    match connect_error(&fake) {
        SetupError::Rejected(data) => assert_eq!(data, [7; 148]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn service_without_listener_asks_for_the_server() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 8, b""));
    let text = text(&connect_error(&fake));
    assert!(text.contains("is the server running"), "{text}");
}

#[test]
fn stale_connection_is_a_refusal_with_a_reason() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 10, b""));
    let error = connect_error(&fake);
    assert!(matches!(error, SetupError::Refused(_)), "{error:?}");
    assert!(!text(&error).is_empty());
}

#[test]
fn device_without_windows_offers_no_remote_invalidation() {
    let fake = Fake::new();
    fake.without_windows();
    let completions = run(async {
        let provider = open(&fake).unwrap();
        let offered = provider.limits().remote_invalidation;
        assert_eq!(offered, Invalidation::None);
        let mut connected = connect(&provider).await.unwrap();
        let limits = connected.qp.limits();
        assert_eq!(limits.remote_invalidation, Invalidation::None);
        connected.qp.close();
        until_closed(&mut *connected.qp).await
    });
    assert_flushed(&completions);
}

#[test]
fn device_that_refuses_windows_is_used_without() {
    let fake = Fake::new();
    fake.fail("ibv_alloc_mw", libc::ENOMEM);
    let provider = open(&fake).unwrap();
    let offered = provider.limits().remote_invalidation;
    assert_eq!(offered, Invalidation::None);
}

#[test]
fn failed_device_ends_the_connection_and_gives_memory_back() {
    let fake = Fake::new();
    let completions = run(async {
        let mut connected = connect(&open(&fake).unwrap()).await.unwrap();
        fake.device_event(IBV_EVENT_DEVICE_FATAL);
        until_closed(&mut *connected.qp).await
    });
    assert_flushed(&completions);
}
