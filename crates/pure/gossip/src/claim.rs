//! Claim of one node at a replica whose limit several nodes share.
//!
//! A claim is lowered at once. To raise it, a node proposes the higher number, and uses that number
//! once every other node has echoed the proposal and what they hold *by then* leaves room. The sum
//! of what all nodes use so stays within the limit: of all raises in force, look at the one
//! proposed last. Every other raise was proposed before, so it stood in the reports that the last
//! one waited for.

use std::time::{Duration, Instant};

use crate::entry::ClaimEntry;
use crate::fair::{Want, fair};

/// Time without work after which a node is idle and leaves its last slot to nodes that have work.
const IDLE: Duration = Duration::from_millis(500);
/// Time for which a node uses a slot that others wait for, where there are fewer slots than nodes
/// with work.
const TURN: Duration = Duration::from_secs(1);
/// Time for which a node leaves each of the others a turn: longer than a claim takes to change
/// hands, plus a turn.
const TURN_LEFT: Duration = Duration::from_secs(3);

/// This node's claim of one replica.
#[derive(Debug)]
pub(crate) struct Claim {
    limit: u32,
    in_flight: u32,
    wanted: u32,
    usable: u32,
    raise: Raise,
    /// Moment at which there was work for the replica last.
    busy_at: Option<Instant>,
    turn: ClaimTurn,
}

/// State of taking turns, where there are fewer slots than nodes with work.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClaimTurn {
    /// There are slots enough, or this node waits for one. => Ours
    Open,
    /// This node has used a slot since that moment. => (Theirs | Open)
    Ours { since: Instant },
    /// This node left its slot then to the `owed` rivals, by their place in the order, that have
    /// had none since. => Open
    Theirs { since: Instant, owed: Vec<bool> },
}

/// A higher claim that is being agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raise {
    /// No raise is under way. => Drafted
    None,
    /// The proposal was not sent to any node yet. => (Sent | None)
    Drafted { to: u32 },
    /// Our report contains the proposal from this version on. => None
    Sent { to: u32, version: u64 },
}

/// Report of another living node about the same replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    /// Claim of the other node, as far as this node knows.
    pub(crate) claim: ClaimEntry,
    /// Requests of the other node at the replica.
    pub(crate) in_flight: u32,
    /// Version of our report that the other node had when it sent this; `None` if our copy of its
    /// report is not whole.
    pub(crate) echoed: Option<u64>,
}

impl Rival {
    /// Returns how many requests must be left to the rival.
    pub(crate) fn held(&self) -> u32 {
        self.settled().max(self.claim.proposed)
    }

    /// Returns how many must be left to the rival once it withdraws its proposal.
    fn settled(&self) -> u32 {
        self.claim.usable.max(self.in_flight)
    }

    fn is_pending(&self) -> bool {
        self.claim.proposed > self.settled()
    }

    /// Returns how many requests the rival would have there without a limit.
    pub(crate) fn wanted(&self) -> u32 {
        self.claim.wanted.max(self.in_flight)
    }

    /// Returns what the rival wants. A rival with neither work nor a slot has left its last slot
    /// to others.
    fn want(&self) -> Want {
        Want { wanted: self.wanted(), is_idle: self.wanted() == 0 && self.held() == 0 }
    }

    fn is_starving(&self) -> bool {
        self.wanted() > 0 && self.held() == 0
    }
}

impl Claim {
    /// Creates a claim of nothing, with which every node starts.
    pub(crate) fn new() -> Self {
        Self {
            limit: 0,
            in_flight: 0,
            wanted: 0,
            usable: 0,
            raise: Raise::None,
            busy_at: None,
            turn: ClaimTurn::Open,
        }
    }

    /// Takes over the replica's limit, and how many requests this node has and would have there.
    pub(crate) fn set(&mut self, limit: u32, in_flight: u32, wanted: u32, now: Instant) {
        self.limit = limit;
        self.in_flight = in_flight;
        self.wanted = wanted.max(in_flight);
        if self.wanted > 0 {
            self.busy_at = Some(now);
        }
    }

    /// Returns how many requests this node may have in flight.
    pub(crate) fn usable(&self) -> u32 {
        self.usable
    }

    /// Returns the claim in the form used in reports.
    pub(crate) fn entry(&self) -> ClaimEntry {
        ClaimEntry {
            usable: self.usable,
            proposed: self.proposed().unwrap_or(0),
            wanted: self.wanted,
        }
    }

    /// Notes that the report has contained `entry` since `version`, or before.
    pub(crate) fn sent(&mut self, entry: ClaimEntry, version: u64) {
        if self.raise == (Raise::Drafted { to: entry.proposed }) {
            self.raise = Raise::Sent { to: entry.proposed, version };
        }
    }

    /// Gives the claim up: a living node has received nothing from us for so long that it may have
    /// taken our slots.
    pub(crate) fn suspend(&mut self) {
        self.usable = 0;
        self.raise = Raise::None;
    }

    /// Goes on with what is known of the `rivals`, which are in the order of their names. This node
    /// comes before the rival at `slot`.
    pub(crate) fn settle(&mut self, rivals: &[Rival], place: usize, now: Instant) {
        // Without rivals the whole limit is ours at once.
        if rivals.is_empty() {
            self.usable = self.limit;
            self.raise = Raise::None;
            return;
        }
        self.advance(rivals, place);
        // A short pause between two requests does not make a node idle.
        let is_busy = self.busy_at.is_some_and(|at| now.saturating_duration_since(at) < IDLE);
        let mut wants: Vec<Want> = rivals.iter().map(Rival::want).collect();
        wants.insert(place, Want { wanted: self.wanted, is_idle: self.wanted == 0 && !is_busy });
        let mut targets = fair(self.limit, &wants);
        let mut target = targets.remove(place);
        let working = wants.iter().filter(|want| want.wanted > 0).count();
        // With more nodes at work than slots, fair shares would leave the last nodes without any.
        if working > self.limit as usize && self.limit > 0 {
            target = self.take_turns(rivals, now);
        } else {
            self.turn = ClaimTurn::Open;
        }
        self.give_back(rivals, &targets, target);
        self.propose(rivals, target);
    }

    /// Takes turns where there are fewer slots than nodes with work: uses one place for a while,
    /// then leaves it until each starving rival has had one. Returns how many slots this node
    /// should have now.
    fn take_turns(&mut self, rivals: &[Rival], now: Instant) -> u32 {
        let starving = || rivals.iter().map(Rival::is_starving);
        let passed = |since: Instant| now.saturating_duration_since(since);
        self.turn = match std::mem::replace(&mut self.turn, ClaimTurn::Open) {
            ClaimTurn::Open if self.usable > 0 => ClaimTurn::Ours { since: now },
            ClaimTurn::Ours { .. } if self.usable == 0 => ClaimTurn::Open,
            // This node has had its turn, and another one has no slot.
            ClaimTurn::Ours { since } if passed(since) >= TURN && starving().any(|it| it) => {
                ClaimTurn::Theirs { since: now, owed: starving().collect() }
            }
            ClaimTurn::Theirs { since, owed } if owed.len() == rivals.len() => {
                let owed: Vec<bool> =
                    owed.iter().zip(starving()).map(|(owed, starving)| *owed && starving).collect();
                let count = u32::try_from(owed.len()).unwrap_or(u32::MAX);
                // A rival that never takes its slot must not hold this node up forever.
                let is_over = passed(since) >= TURN_LEFT.saturating_mul(count);
                match !is_over && owed.contains(&true) {
                    true => ClaimTurn::Theirs { since, owed },
                    false => ClaimTurn::Open,
                }
            }
            // Nodes joined or left, so the slots in `owed` belong to other nodes now.
            ClaimTurn::Theirs { .. } => ClaimTurn::Open,
            same => same,
        };
        if matches!(self.turn, ClaimTurn::Theirs { .. }) {
            self.usable = 0;
            self.shrink(0);
            return 0;
        }
        u32::from(self.wanted > 0)
    }

    /// Uses, lowers or withdraws the proposal.
    fn advance(&mut self, rivals: &[Rival], place: usize) {
        let Some(to) = self.proposed() else { return };
        let room = self.room(rivals);
        if to > room {
            // Those with later names withdraw what they propose if it does not fit with ours.
            let others = rivals.iter().enumerate().map(|(index, rival)| {
                if index >= place && rival.is_pending() { rival.settled() } else { rival.held() }
            });
            self.shrink(to.min(self.limit.saturating_sub(sum(others))));
        }
        // Every rival has seen the proposal, and there is still room for it.
        if let Raise::Sent { to, version } = self.raise
            && to <= room
            && rivals.iter().all(|rival| rival.echoed.is_some_and(|echoed| echoed >= version))
        {
            self.usable = to;
            self.raise = Raise::None;
        }
    }

    /// Gives back what other nodes need more, down to the fair share of this node. The share may be
    /// less than what is in flight: then no request starts before some have ended, and until then
    /// they count.
    fn give_back(&mut self, rivals: &[Rival], targets: &[u32], target: u32) {
        let held = self.held();
        let taken = sum(rivals.iter().map(Rival::held)).saturating_add(held);
        // A rival may have one place more than it has work for, if its fair share has one.
        let lacking = rivals.iter().zip(targets).map(|(rival, target)| {
            rival.wanted().saturating_add(1).min(*target).saturating_sub(rival.held())
        });
        let is_short = sum(lacking) > self.limit.saturating_sub(taken);
        // More than the limit is taken e.g. after the limit was lowered.
        if (is_short || taken > self.limit) && target < held {
            self.usable = self.usable.min(target);
            self.shrink(target);
        }
    }

    fn propose(&mut self, rivals: &[Rival], target: u32) {
        // One raise at a time: a demand that grows with every report would never come to its end.
        if self.raise != Raise::None || rivals.iter().any(|rival| rival.echoed.is_none()) {
            return;
        }
        let to = target.min(self.room(rivals));
        let is_needed = self.wanted >= self.usable;
        // A larger spare part is nice to have, but not worth a report for each request that ends.
        let is_worth_it = target >= self.usable.saturating_add((self.limit / 8).max(2));
        if to > self.usable && (is_needed || is_worth_it) {
            self.raise = Raise::Drafted { to };
        }
    }

    /// Returns how many requests the other nodes leave to this one.
    fn room(&self, rivals: &[Rival]) -> u32 {
        self.limit.saturating_sub(sum(rivals.iter().map(Rival::held)))
    }

    fn held(&self) -> u32 {
        self.usable.max(self.in_flight).max(self.proposed().unwrap_or(0))
    }

    fn proposed(&self) -> Option<u32> {
        match self.raise {
            Raise::None => None,
            Raise::Drafted { to } | Raise::Sent { to, .. } => Some(to),
        }
    }

    /// Lowers the proposal to `most`; a proposal of no more than what is in use is dropped.
    fn shrink(&mut self, most: u32) {
        self.raise = match self.raise {
            Raise::Drafted { to } if to.min(most) > self.usable => {
                Raise::Drafted { to: to.min(most) }
            }
            Raise::Sent { to, version } if to.min(most) > self.usable => {
                Raise::Sent { to: to.min(most), version }
            }
            _ => Raise::None,
        };
    }
}

fn sum(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(0, u32::saturating_add)
}

#[cfg(test)]
#[path = "claim_test.rs"]
mod tests;
