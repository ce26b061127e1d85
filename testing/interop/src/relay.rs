//! A relay between client and server that ends their connections in every possible way.
//!
//! It passes on bytes as they come. It can hold back what one of them says, and let exactly so
//! many bytes through before the end, so that a frame arrives in part.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::net::sockopt::set_socket_linger;

/// How often a thread that waits for bytes looks whether its connection is over.
const POLL: Duration = Duration::from_millis(20);

/// How long nothing may pass before a direction counts as silent.
const SILENCE: Duration = Duration::from_millis(500);

/// Most bytes that are passed on at a time.
const PIECE: usize = 64 << 10;

/// To whom bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Server,
    Client,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With a FIN to both, as if each had closed.
    Close,
    /// With a RST to both.
    Reset,
}

/// A relay to one server. Dropping it ends all its connections.
pub(super) struct Relay {
    /// Port of its listener.
    pub(super) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections taken in so far; each has the number it made this.
    taken_in: u64,
    /// Those that both ends have.
    live: usize,
    /// Connections up to this number are over.
    over: u64,
    end: Option<End>,
    /// Nothing passes in this direction.
    held: Option<To>,
    /// Bytes passed on, to the server and to the client, on all connections.
    passed: [u64; 2],
    /// All connections end when so many bytes have passed.
    until: Option<(To, u64, End)>,
    /// Connections are refused.
    refuses: bool,
    stopped: bool,
}

impl State {
    fn cut(&mut self, end: End) {
        self.over = self.taken_in;
        self.end = Some(end);
        self.held = None;
        self.until = None;
    }
}

impl Relay {
    /// Starts one to a port of this machine.
    ///
    /// # Errors
    ///
    /// There is no free port.
    pub(super) fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server: (Ipv4Addr::LOCALHOST, to).into(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_acceptor = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_acceptor));
        Ok(Self { port, shared })
    }

    /// Ends all connections.
    pub(super) fn cut(&self, end: End) {
        self.shared.change(|state| state.cut(end));
    }

    /// Ends all connections when so many more bytes have gone this way.
    pub(super) fn cut_after(&self, to: To, bytes: u64, end: End) {
        self.shared.change(|state| {
            let at = state.passed[to as usize] + bytes;
            state.until = Some((to, at, end));
        });
    }

    /// Holds back what goes this way, until the connections end.
    pub(super) fn hold(&self, to: To) {
        self.shared.change(|state| state.held = Some(to));
    }

    /// From now on refuses connections, or takes them in again.
    pub(super) fn refuse(&self, refuse: bool) {
        self.shared.change(|state| state.refuses = refuse);
    }

    /// Connections taken in so far.
    pub(super) fn taken_in(&self) -> u64 {
        self.shared.lock().taken_in
    }

    /// Bytes passed on so far.
    pub(super) fn passed(&self, to: To) -> u64 {
        self.shared.lock().passed[to as usize]
    }

    /// Waits for so many more bytes to pass.
    ///
    /// # Errors
    ///
    /// They do not within `limit`.
    pub(super) fn wait_until_passed(&self, to: To, bytes: u64, limit: Duration) -> Result<()> {
        let at = self.passed(to) + bytes;
        let passed = self
            .shared
            .wait(limit, |state| state.passed[to as usize] >= at);
        ensure!(
            passed,
            "no {bytes} bytes to the {to:?} within {} s",
            limit.as_secs()
        );
        Ok(())
    }

    /// Waits until there has been no connection with a higher number than `before`, and then one.
    ///
    /// # Errors
    ///
    /// There is none within `limit`.
    pub(super) fn wait_for_connection(&self, before: u64, limit: Duration) -> Result<()> {
        let came = self.shared.wait(limit, |state| state.taken_in > before);
        ensure!(came, "no new connection within {} s", limit.as_secs());
        Ok(())
    }

    /// Waits until there is no connection.
    ///
    /// # Errors
    ///
    /// There still is one after `limit`.
    pub(super) fn wait_until_gone(&self, limit: Duration) -> Result<()> {
        let gone = self.shared.wait(limit, |state| state.live == 0);
        ensure!(gone, "still connected after {} s", limit.as_secs());
        Ok(())
    }

    /// Waits until nothing goes this way any more, as those who wait for answers have nothing more
    /// to say.
    ///
    /// # Errors
    ///
    /// There is no end of it within `limit`.
    pub(super) fn wait_for_silence(&self, to: To, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let (mut seen, mut since) = (self.passed(to), start);
        while since.elapsed() < SILENCE {
            ensure!(
                start.elapsed() < limit,
                "the other end of the {to:?} does not fall silent within {} s",
                limit.as_secs()
            );
            thread::sleep(POLL);
            let passed = self.passed(to);
            if passed != seen {
                (seen, since) = (passed, Instant::now());
            }
        }
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.cut(End::Reset);
            state.stopped = true;
        });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Whether it became so within `limit`.
    fn wait(&self, limit: Duration, mut so: impl FnMut(&State) -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| !so(state));
        let (_state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        !timed_out.timed_out()
    }

    fn end_of(&self, number: u64) -> Option<End> {
        let state = self.lock();
        state.end.filter(|_| number <= state.over)
    }

    /// How many of these bytes may pass now: fewer if the connection ends behind them, and none if
    /// it is over.
    fn admit(&self, number: u64, to: To, bytes: usize) -> usize {
        let held = |state: &mut State| state.held == Some(to) && number > state.over;
        let mut state = self
            .changed
            .wait_while(self.lock(), held)
            .unwrap_or_else(PoisonError::into_inner);
        if number <= state.over {
            return 0;
        }
        let passed = state.passed[to as usize];
        let mut admitted = bytes as u64;
        let mut end = None;
        if let Some((way, at, how)) = state.until
            && way == to
            && passed + admitted >= at
        {
            admitted = at - passed;
            end = Some(how);
        }
        state.passed[to as usize] += admitted;
        if let Some(end) = end {
            state.cut(end);
        }
        drop(state);
        self.changed.notify_all();
        usize::try_from(admitted).unwrap_or(bytes)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.lock().stopped {
        match listener.accept() {
            Ok((client, _)) => connect(client, shared),
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// A connection to the server for one of a client's. A client whose server is not there is told so.
fn connect(client: TcpStream, shared: &Arc<Shared>) {
    let refuses = shared.lock().refuses;
    let server = (!refuses).then(|| TcpStream::connect(shared.server).ok());
    let Some(server) = server.flatten() else {
        // It may be gone again itself.
        let _ = set_socket_linger(&client, Some(Duration::ZERO));
        return;
    };
    let both = prepared(&client).and_then(|client| Ok((client, prepared(&server)?)));
    let Ok((client_too, server_too)) = both else {
        return;
    };
    let mut number = 0;
    shared.change(|state| {
        state.taken_in += 1;
        state.live += 1;
        number = state.taken_in;
    });
    let relayed = Relayed {
        shared: Arc::clone(shared),
        number,
        reset: AtomicBool::new(false),
    };
    thread::spawn(move || {
        thread::scope(|scope| {
            scope.spawn(|| relayed.pass(To::Server, client, server));
            scope.spawn(|| relayed.pass(To::Client, server_too, client_too));
        });
        relayed.shared.change(|state| state.live -= 1);
    });
}

/// Has the socket hand over bytes at once, and not wait for long; and a second handle of it.
fn prepared(socket: &TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(POLL))?;
    socket.set_write_timeout(Some(POLL))?;
    socket.try_clone()
}

/// One connection, of which a thread has each direction.
struct Relayed {
    shared: Arc<Shared>,
    number: u64,
    /// One end has reset it. Only one direction hears of that, and both are over.
    reset: AtomicBool,
}

impl Relayed {
    fn end(&self) -> Option<End> {
        let reset = self.reset.load(Relaxed).then_some(End::Reset);
        reset.or_else(|| self.shared.end_of(self.number))
    }

    /// Passes on what goes one way, until the connection is over in this direction.
    fn pass(&self, to: To, mut from: TcpStream, mut into: TcpStream) {
        let mut piece = vec![0; PIECE];
        let end = loop {
            if let Some(end) = self.end() {
                break end;
            }
            match from.read(&mut piece) {
                Ok(0) => break End::Close,
                Ok(bytes) => {
                    let admitted = self.shared.admit(self.number, to, bytes);
                    if !self.write_all(&mut into, &piece[..admitted]) {
                        break self.end().unwrap_or(End::Reset);
                    }
                }
                Err(error) if waits(&error) => {}
                Err(_) => break End::Reset,
            }
        };
        // Either socket may have ended by itself.
        match end {
            End::Close => {
                let _ = into.shutdown(std::net::Shutdown::Write);
            }
            End::Reset => {
                self.reset.store(true, Relaxed);
                let _ = set_socket_linger(&from, Some(Duration::ZERO));
                let _ = set_socket_linger(&into, Some(Duration::ZERO));
            }
        }
    }

    /// Whether all of it went. What was admitted goes even though the connection ends behind it, as
    /// long as the receiver takes it.
    fn write_all(&self, into: &mut TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match into.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if waits(&error) && self.end().is_none() => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn waits(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A client and its server, with a relay between them.
    fn connected() -> (TcpStream, Relay, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(listener.local_addr().unwrap().port()).unwrap();
        let client = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(LIMIT)).unwrap();
        }
        (client, relay, server)
    }

    fn read(from: &mut TcpStream, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        from.read_exact(&mut read).unwrap();
        read
    }

    #[test]
    fn reset_by_one_end_reaches_the_other_that_says_nothing() {
        let (mut client, relay, mut server) = connected();
        client.write_all(b"there").unwrap();
        assert_eq!(read(&mut server, 5), b"there");
        set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
        drop(server);
        let told = client.read(&mut [0]).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::ConnectionReset);
        relay.wait_until_gone(LIMIT).unwrap();
    }

    #[test]
    fn bytes_pass_both_ways_until_one_end_closes() {
        let (mut client, relay, mut server) = connected();
        client.write_all(b"there").unwrap();
        assert_eq!(read(&mut server, 5), b"there");
        server.write_all(b"back").unwrap();
        drop(server);
        assert_eq!(read(&mut client, 4), b"back");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(client);
        relay.wait_until_gone(LIMIT).unwrap();
        assert_eq!((relay.passed(To::Server), relay.passed(To::Client)), (5, 4));
    }

    #[test]
    fn exactly_so_many_bytes_pass_before_a_cut() {
        let (mut client, relay, mut server) = connected();
        relay.cut_after(To::Server, 3, End::Close);
        client.write_all(b"there").unwrap();
        let mut came = Vec::new();
        server.read_to_end(&mut came).unwrap();
        assert_eq!(came, b"the");
        relay.wait_until_gone(LIMIT).unwrap();
    }

    #[test]
    fn bytes_held_back_by_the_relay_never_arrive() {
        let (mut client, relay, mut server) = connected();
        relay.hold(To::Client);
        server.write_all(b"back").unwrap();
        client.write_all(b"there").unwrap();
        assert_eq!(read(&mut server, 5), b"there");
        relay.wait_for_silence(To::Server, LIMIT).unwrap();
        relay.cut(End::Reset);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = server.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(relay.passed(To::Client), 0);
    }

    #[test]
    fn connection_after_a_cut_is_not_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(listener.local_addr().unwrap().port()).unwrap();
        for round in 1..=3 {
            let mut client = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.set_read_timeout(Some(LIMIT)).unwrap();
            server.write_all(b"x").unwrap();
            assert_eq!(read(&mut client, 1), b"x");
            assert_eq!(relay.taken_in(), round);
            relay.cut(End::Close);
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
            relay.wait_until_gone(LIMIT).unwrap();
        }
    }

    #[track_caller]
    fn is_refused(relay: &Relay) {
        let mut client = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(relay.taken_in(), 0);
    }

    #[test]
    fn client_learns_that_there_is_no_server() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port()).unwrap();
        relay.refuse(true);
        is_refused(&relay);
        relay.refuse(false);
        drop(server);
        is_refused(&relay);
    }
}
