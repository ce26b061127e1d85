//! Two ends and the two directions between them.

use crate::end::{End, Outstanding};
use crate::options::EndOptions;
use crate::rng::Rng;
use crate::side::Side;
use crate::wire::{Message, Wire};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use verbs::ProtocolError;

#[derive(Debug)]
pub(crate) struct Connection {
    ends: [End; 2],
    /// Output of each end.
    wires: [Wire; 2],
    wakers: [Option<Waker>; 2],
    present: [bool; 2],
    addrs: [SocketAddr; 2],
}

impl Connection {
    pub(crate) fn new(
        left: &EndOptions,
        right: &EndOptions,
        addrs: [SocketAddr; 2],
        seed: u64,
        number: u64,
    ) -> Self {
        let mut rng = Rng::stream(seed, number);
        let mut end = |own: &EndOptions, peer: &EndOptions| {
            End::new(own, peer.limits.inbound_reads, Rng::new(rng.next()))
        };
        Self {
            ends: [end(left, right), end(right, left)],
            wires: [left, right].map(|end| Wire::new(end.window, end.faults.cut)),
            wakers: [None, None],
            present: [true, true],
            addrs,
        }
    }

    pub(crate) fn end(&self, side: Side) -> &End {
        &self.ends[side.index()]
    }

    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side.index()]
    }

    pub(crate) fn addr(&self, side: Side) -> SocketAddr {
        self.addrs[side.index()]
    }

    pub(crate) fn outstanding(&self, side: Side) -> Outstanding {
        Outstanding {
            on_the_wire: self.wires[side.index()].len(),
            ..self.ends[side.index()].outstanding()
        }
    }

    pub(crate) fn progress(&mut self, side: Side, now: Duration) -> bool {
        let (end, inward, outward) = self.split(side);
        end.progress(now, inward, outward)
    }

    pub(crate) fn is_ready(&self, side: Side, now: Duration) -> bool {
        let (inward, outward) = (side.other().index(), side.index());
        self.end(side)
            .is_ready(now, &self.wires[inward], &self.wires[outward])
    }

    /// Waits for a block of the shared receive queue, if that is what a message waits for.
    pub(crate) fn poll_block(
        &mut self,
        side: Side,
        now: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let inward = &self.wires[side.other().index()];
        self.ends[side.index()].poll_block(now, inward, cx)
    }

    pub(crate) fn wait(&mut self, side: Side, waker: &Waker) {
        self.wakers[side.index()] = Some(waker.clone());
    }

    /// The wakers of the ends that wait and need not.
    pub(crate) fn take_wakers(&mut self, now: Duration, wake: &mut Vec<Waker>) {
        for side in [Side::Left, Side::Right] {
            if self.wakers[side.index()].is_some() && self.is_ready(side, now) {
                wake.extend(self.wakers[side.index()].take());
            }
        }
    }

    pub(crate) fn next_event(&self, now: Duration) -> Option<Duration> {
        let next = |side: Side| {
            let present = self.present[side.index()];
            let inward = &self.wires[side.other().index()];
            let event = self.end(side).next_event(now, inward);
            event.filter(|_| present)
        };
        [next(Side::Left), next(Side::Right)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Cuts both directions behind what is on its way.
    pub(crate) fn cut(&mut self, now: Duration) {
        for wire in &mut self.wires {
            wire.sever(now);
        }
    }

    /// Ends the connection with a last word to one end: the rule that it broke.
    pub(crate) fn terminate(&mut self, side: Side, now: Duration, error: ProtocolError) {
        let message = Message::Terminate {
            reason: error.into(),
            refused: None,
        };
        let wire = &mut self.wires[side.other().index()];
        if !wire.push(now, message) {
            wire.sever(now);
        }
    }

    /// Drops one end, and says whether nobody is left.
    pub(crate) fn abandon(&mut self, side: Side, now: Duration) -> bool {
        let (end, inward, outward) = self.split(side);
        end.abandon(now, inward, outward);
        self.present[side.index()] = false;
        self.wakers[side.index()] = None;
        self.present == [false, false]
    }

    fn split(&mut self, side: Side) -> (&mut End, &mut Wire, &mut Wire) {
        let [left, right] = &mut self.wires;
        match side {
            Side::Left => (&mut self.ends[0], right, left),
            Side::Right => (&mut self.ends[1], left, right),
        }
    }
}
