//! Many clients in one process, each a socket and a few bytes.
//!
//! A process of its own: `cargo xtask scale` writes a line for what is to be done, and reads one
//! line of JSON when it is. The process ends with its input, and all its connections with it.

use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::wire::{self, CREDITS, REPLY_FPDU, REQUEST};

/// Connections that are being set up at a time: fewer than a server's backlog.
const IN_SETUP: usize = 64;

/// Connections from one source address.
const PER_ADDRESS: usize = 50;

/// Bytes taken from a socket at a time; no answer is longer.
const ANSWER: usize = 1024;

/// Events taken at a time.
const EVENTS: usize = 256;

/// How long nothing has to happen before times are looked at.
const TURN: Duration = Duration::from_millis(100);

/// How long the setup of one connection, or one NULL, may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Options of a process of clients.
#[derive(Args)]
pub struct ClientOptions {
    server: SocketAddrV4,
    /// Which of the processes this is: their source addresses differ
    index: u8,
}

/// Does what its input says, line by line: `open N`, `busy N MILLISECONDS` or `count`.
///
/// # Errors
///
/// A line is not understood, or a system call fails that says nothing of the server.
pub fn run(options: &ClientOptions) -> Result<()> {
    let files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, all).context("cannot use all descriptors")?;
    let mut clients = Clients::new(options)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = match words[..] {
            ["open", count] => clients.open(count.parse()?)?,
            ["count"] => clients.count()?,
            ["busy", count, time] => {
                clients.busy(count.parse()?, Duration::from_millis(time.parse()?))?
            }
            _ => bail!("{line:?} is no order"),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{said}")?;
        out.flush()?;
    }
    Ok(())
}

struct Clients {
    server: SocketAddrV4,
    index: u8,
    epoll: OwnedFd,
    connections: Vec<Connection>,
}

struct Connection {
    /// `None` once it is over.
    socket: Option<OwnedFd>,
    state: State,
    /// NULLs sent so far.
    calls: u32,
    /// The beginning of an answer.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Requested,
    Calling,
    Idle,
}

/// Progress after an event.
enum Progress {
    More,
    Answered { grant: u32 },
}

impl Clients {
    fn new(options: &ClientOptions) -> Result<Self> {
        Ok(Self {
            server: options.server,
            index: options.index,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
        })
    }

    /// Makes so many more connections, each with one NULL.
    fn open(&mut self, count: usize) -> Result<serde_json::Value> {
        let begin = Instant::now();
        let first = self.connections.len();
        let (mut made, mut failed, mut lost, mut why) = (0, 0, 0, None);
        let mut grants = u32::MAX;
        let mut last_progress = begin;
        while made + failed < count {
            let begun = self.connections.len() - first;
            for _ in begun..count.min(made + failed + IN_SETUP) {
                self.begin()?;
            }
            let moved = self.turn(TURN, |connection, progress| {
                match progress {
                    Ok(Progress::More) => {}
                    Ok(Progress::Answered { grant }) => {
                        connection.state = State::Idle;
                        grants = grants.min(grant);
                        made += 1;
                    }
                    Err(error) => {
                        match connection.state {
                            State::Idle => lost += 1,
                            State::Connecting | State::Requested | State::Calling => failed += 1,
                        }
                        connection.socket = None;
                        why.get_or_insert_with(|| format!("{error:#}"));
                    }
                }
                Ok(())
            })?;
            if moved {
                last_progress = Instant::now();
            }
            ensure!(
                last_progress.elapsed() < ANSWER_LIMIT,
                "{made} connections are made, and {} of {count} have no answer",
                self.connections.len() - first - made - failed
            );
        }
        Ok(json!({
            "made": made,
            "failed": failed,
            "lost": lost,
            "why": why,
            "least_grant": if made > 0 { grants } else { 0 },
            "asked_for": CREDITS,
            "seconds": begin.elapsed().as_secs_f64(),
        }))
    }

    /// Has so many connections call NULL one after the other, for this time.
    fn busy(&mut self, count: usize, time: Duration) -> Result<serde_json::Value> {
        let begin = Instant::now();
        let mut waiting = 0;
        for connection in &mut self.connections {
            if waiting < count && connection.state == State::Idle && connection.socket.is_some() {
                connection.call()?;
                waiting += 1;
            }
        }
        ensure!(
            waiting == count,
            "only {waiting} of {count} connections are there"
        );
        let (mut calls, mut lost) = (0_u64, 0);
        while waiting > 0 {
            let over = begin.elapsed();
            ensure!(over < time + ANSWER_LIMIT, "{waiting} calls have no answer");
            let go_on = over < time;
            self.turn(TURN, |connection, progress| {
                match progress {
                    Ok(Progress::More) => {}
                    Ok(Progress::Answered { .. }) if go_on => {
                        calls += 1;
                        connection.call()?;
                    }
                    Ok(Progress::Answered { .. }) => {
                        calls += 1;
                        connection.state = State::Idle;
                        waiting -= 1;
                    }
                    Err(_) => {
                        connection.socket = None;
                        lost += 1;
                        waiting -= usize::from(connection.state == State::Calling);
                    }
                }
                Ok(())
            })?;
        }
        Ok(json!({
            "calls": calls,
            "lost": lost,
            "seconds": begin.elapsed().as_secs_f64(),
        }))
    }

    /// Counts the connections that are still there.
    fn count(&mut self) -> Result<serde_json::Value> {
        // What has happened to idle ones is taken in first; each event ends a connection.
        while self.turn(Duration::ZERO, |connection, progress| {
            if progress.is_err() {
                connection.socket = None;
            }
            Ok(())
        })? {}
        let there = self
            .connections
            .iter()
            .filter(|connection| connection.socket.is_some());
        Ok(json!({ "connections": there.count() }))
    }

    /// Begins one more connection.
    fn begin(&mut self) -> Result<()> {
        let number = self.connections.len();
        let group = u16::try_from(number / PER_ADDRESS).context("too many connections")?;
        let [high, low] = (group + 1).to_be_bytes();
        // Each process has addresses of its own, and none of them is 127.0.0.0/16.
        let source = Ipv4Addr::new(127, self.index + 1, high, low);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::from((source, 0)))?;
        match rustix::net::connect(&socket, &SocketAddr::V4(self.server)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error).context("cannot connect"),
        }
        epoll::add(
            &self.epoll,
            &socket,
            EventData::new_u64(number as u64),
            EventFlags::OUT,
        )?;
        self.connections.push(Connection {
            socket: Some(socket),
            state: State::Connecting,
            calls: 0,
            partial: Vec::new(),
        });
        Ok(())
    }

    /// Waits for something to happen, but not longer, and says what has come of it.
    fn turn(
        &mut self,
        limit: Duration,
        mut each: impl FnMut(&mut Connection, Result<Progress>) -> Result<()>,
    ) -> Result<bool> {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        let limit = Timespec::try_from(limit)?;
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&limit)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            let number = usize::try_from(event.data.u64())?;
            let connection = &mut self.connections[number];
            if connection.socket.is_some() {
                let was = connection.state;
                let progress = connection.progress();
                if was == State::Connecting
                    && connection.state != was
                    && let Some(socket) = &connection.socket
                {
                    epoll::modify(&self.epoll, socket, event.data, EventFlags::IN)?;
                }
                each(connection, progress)?;
            }
        }
        Ok(count > 0)
    }
}

impl Connection {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let socket = self.socket.as_ref().context("it is over")?;
        let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?;
        ensure!(sent == bytes.len(), "a socket with nothing in it is full");
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        self.state = State::Calling;
        self.send(&wire::call(self.calls))
    }

    /// Takes what has come, and goes on.
    fn progress(&mut self) -> Result<Progress> {
        if self.state == State::Connecting {
            match self.send(&REQUEST) {
                Ok(()) => self.state = State::Requested,
                Err(error) => match error.downcast_ref::<Errno>() {
                    Some(&Errno::AGAIN | &Errno::NOTCONN) => return Ok(Progress::More),
                    _ => return Err(error),
                },
            }
        }
        loop {
            let mut bytes = [0; ANSWER];
            let socket = self.socket.as_ref().context("it is over")?;
            let len = match rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((0, _)) => bail!("the server closed the connection"),
                Ok((len, _)) => len,
                Err(Errno::AGAIN) => return Ok(Progress::More),
                Err(error) => return Err(error.into()),
            };
            self.partial.extend_from_slice(&bytes[..len]);
            ensure!(self.partial.len() <= ANSWER, "an answer is too long");
            if let Some(progress) = self.answered()? {
                return Ok(progress);
            }
        }
    }

    fn answered(&mut self) -> Result<Option<Progress>> {
        match self.state {
            State::Requested => {
                let Some(len) = wire::setup_reply(&self.partial)? else {
                    return Ok(None);
                };
                ensure!(len == self.partial.len(), "the server speaks unasked");
                self.partial = Vec::new();
                self.call()?;
                Ok(None)
            }
            State::Calling => {
                let Some(grant) = wire::reply(&self.partial, self.calls)? else {
                    return Ok(None);
                };
                ensure!(
                    self.partial.len() == REPLY_FPDU,
                    "the server speaks unasked"
                );
                // An idle connection keeps no memory.
                self.partial = Vec::new();
                Ok(Some(Progress::Answered { grant }))
            }
            State::Connecting | State::Idle => bail!("the server speaks unasked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// Behaviour of a server towards its connections, one after the other.
    #[derive(Clone, Copy)]
    enum Manner {
        Serves,
        Refuses,
        /// Answers the first NULL, and closes.
        ClosesIdle,
        /// Answers the first NULL with another XID.
        Garbles,
    }

    fn clients_of(manners: &'static [Manner]) -> Clients {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(server) = listener.local_addr().unwrap() else {
            unreachable!("it was bound so")
        };
        thread::spawn(move || {
            for manner in manners {
                let (socket, _) = listener.accept().unwrap();
                // A client that has gone is nothing to complain of.
                thread::spawn(move || serve(socket, *manner));
            }
        });
        Clients::new(&ClientOptions { server, index: 0 }).unwrap()
    }

    fn serve(mut socket: TcpStream, manner: Manner) -> std::io::Result<()> {
        let mut request = [0; REQUEST.len()];
        socket.read_exact(&mut request)?;
        assert_eq!(request, REQUEST);
        let mut frame = *b"MPA ID Rep Frame\x00\x01\x00\x00";
        if let Manner::Refuses = manner {
            frame[16] = 0x20;
        }
        socket.write_all(&frame)?;
        for number in 1.. {
            let mut call = wire::call(number);
            let expected = call;
            socket.read_exact(&mut call)?;
            assert_eq!(call, expected, "each NULL has its number");
            let xid = match manner {
                Manner::Garbles => number + 1,
                Manner::Serves | Manner::Refuses | Manner::ClosesIdle => number,
            };
            // In two pieces, as TCP may bring it.
            let reply = wire::tests::reply_to(xid, 100 + number);
            socket.write_all(&reply[..30])?;
            socket.write_all(&reply[30..])?;
            if let Manner::ClosesIdle = manner {
                return Ok(());
            }
        }
        Ok(())
    }

    fn number(said: &serde_json::Value, name: &str) -> u64 {
        said[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {said}"))
    }

    #[test]
    fn connections_are_made_called_on_and_counted() {
        let mut clients = clients_of(&[Manner::Serves; 3]);
        let said = clients.open(2).unwrap();
        assert_eq!((number(&said, "made"), number(&said, "failed")), (2, 0));
        assert_eq!(number(&said, "least_grant"), 101);
        assert_eq!(number(&clients.open(1).unwrap(), "made"), 1);
        assert_eq!(number(&clients.count().unwrap(), "connections"), 3);
        let said = clients.busy(2, Duration::ZERO).unwrap();
        assert_eq!((number(&said, "calls"), number(&said, "lost")), (2, 0));
        assert!(clients.busy(4, Duration::ZERO).is_err(), "there are three");
    }

    #[test]
    fn failed_connections_are_counted_separately() {
        let mut clients = clients_of(&[Manner::Refuses, Manner::Serves, Manner::Garbles]);
        let said = clients.open(3).unwrap();
        assert_eq!((number(&said, "made"), number(&said, "failed")), (1, 2));
        assert_eq!(number(&clients.count().unwrap(), "connections"), 1);
    }

    #[test]
    fn connection_closed_while_idle_is_no_longer_counted() {
        let mut clients = clients_of(&[Manner::ClosesIdle]);
        assert_eq!(number(&clients.open(1).unwrap(), "made"), 1);
        let since = Instant::now();
        while number(&clients.count().unwrap(), "connections") > 0 {
            assert!(since.elapsed() < ANSWER_LIMIT, "it was closed");
        }
    }
}
