//! One node's claim of one replica whose limit several nodes share.
//!
//! A claim is lowered at once. To raise it a node proposes the higher number, and may use it once
//! everyone has echoed the proposal and what they hold *by then* leaves room. That keeps the sum of
//! what is used within the limit: of all raises in force, look at the one proposed last. Everyone
//! else's raise was proposed before, so it stood in the reports that the last one waited for.

use std::time::{Duration, Instant};

use crate::entry::ClaimEntry;
use crate::fair::{Want, fair};

/// A node that has had no work for so long is idle: it leaves its last place to those that have.
const IDLE: Duration = Duration::from_millis(500);
/// How long a node uses a place that others wait for before it is their turn, where there are fewer
/// places than nodes with work.
const TURN: Duration = Duration::from_secs(1);
/// How long a node leaves others their turn, for each of them: longer than a claim takes to change hands
/// and a turn.
const TURN_LEFT: Duration = Duration::from_secs(3);

/// A claim.
#[derive(Debug)]
pub(crate) struct Claim {
    limit: u32,
    in_flight: u32,
    wanted: u32,
    usable: u32,
    raise: Raise,
    /// When there was work for it last.
    busy_at: Option<Instant>,
    turn: Turn,
}

/// Whose turn it is, where there are fewer places than nodes with work.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    /// There are enough, or this node waits for a place. => Ours
    Open,
    /// This node uses a place since then. => (Theirs | Open)
    Ours { since: Instant },
    /// It left its place then to those others, by their place, that have had none since. => Open
    Theirs { since: Instant, owed: Vec<bool> },
}

/// A higher claim on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raise {
    /// None is. => Drafted
    None,
    /// Nobody was told yet. => (Told | None)
    Drafted { to: u32 },
    /// It stands in our report from this version on. => None
    Told { to: u32, version: u64 },
}

/// What another node that is alive says of the same replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    /// Its claim, as far as we know.
    pub(crate) claim: ClaimEntry,
    /// Its requests there.
    pub(crate) in_flight: u32,
    /// The version of our report it had when it said so; `None` if what we know is not whole.
    pub(crate) echoed: Option<u64>,
}

impl Rival {
    /// What has to be left to it.
    pub(crate) fn held(&self) -> u32 {
        self.settled().max(self.claim.proposed)
    }

    /// The same if it withdraws what it proposes.
    fn settled(&self) -> u32 {
        self.claim.usable.max(self.in_flight)
    }

    fn is_pending(&self) -> bool {
        self.claim.proposed > self.settled()
    }

    /// What it would have.
    pub(crate) fn wanted(&self) -> u32 {
        self.claim.wanted.max(self.in_flight)
    }

    /// What it wants. One that has neither work nor a place has left its last one to others.
    fn want(&self) -> Want {
        Want { wanted: self.wanted(), is_idle: self.wanted() == 0 && self.held() == 0 }
    }

    fn is_starving(&self) -> bool {
        self.wanted() > 0 && self.held() == 0
    }
}

impl Claim {
    /// A claim of nothing: what everyone starts with.
    pub(crate) fn new() -> Self {
        Self {
            limit: 0,
            in_flight: 0,
            wanted: 0,
            usable: 0,
            raise: Raise::None,
            busy_at: None,
            turn: Turn::Open,
        }
    }

    /// What this node has to do with the replica now.
    pub(crate) fn set(&mut self, limit: u32, (in_flight, wanted): (u32, u32), now: Instant) {
        self.limit = limit;
        self.in_flight = in_flight;
        self.wanted = wanted.max(in_flight);
        if self.wanted > 0 {
            self.busy_at = Some(now);
        }
    }

    /// How many requests may be in flight.
    pub(crate) fn usable(&self) -> u32 {
        self.usable
    }

    /// As it is told.
    pub(crate) fn entry(&self) -> ClaimEntry {
        ClaimEntry {
            usable: self.usable,
            proposed: self.proposed().unwrap_or(0),
            wanted: self.wanted,
        }
    }

    /// The report told what stands in `entry` at `version`, or before.
    pub(crate) fn told(&mut self, entry: ClaimEntry, version: u64) {
        if self.raise == (Raise::Drafted { to: entry.proposed }) {
            self.raise = Raise::Told { to: entry.proposed, version };
        }
    }

    /// Somebody who is alive did not hear us for so long that he may have taken our claim.
    pub(crate) fn suspend(&mut self) {
        self.usable = 0;
        self.raise = Raise::None;
    }

    /// Goes on with what is known of the others, who are in the order of their names; this node
    /// comes before the one at `place`.
    pub(crate) fn settle(&mut self, rivals: &[Rival], place: usize, now: Instant) {
        if rivals.is_empty() {
            self.usable = self.limit;
            self.raise = Raise::None;
            return;
        }
        self.go_on(rivals, place);
        let is_busy = self.busy_at.is_some_and(|at| now.saturating_duration_since(at) < IDLE);
        let mut wants: Vec<Want> = rivals.iter().map(Rival::want).collect();
        wants.insert(place, Want { wanted: self.wanted, is_idle: self.wanted == 0 && !is_busy });
        let mut targets = fair(self.limit, &wants);
        let mut target = targets.remove(place);
        let working = wants.iter().filter(|want| want.wanted > 0).count();
        if working > self.limit as usize && self.limit > 0 {
            target = self.take_turns(rivals, now);
        } else {
            self.turn = Turn::Open;
        }
        self.give_back(rivals, &targets, target);
        self.propose(rivals, target);
    }

    /// Where there are fewer places than nodes with work: uses one for some time, then leaves it to those
    /// that have none until each has had one. Returns how many places this node should have now.
    fn take_turns(&mut self, rivals: &[Rival], now: Instant) -> u32 {
        let starving = || rivals.iter().map(Rival::is_starving);
        let passed = |since: Instant| now.saturating_duration_since(since);
        self.turn = match std::mem::replace(&mut self.turn, Turn::Open) {
            Turn::Open if self.usable > 0 => Turn::Ours { since: now },
            Turn::Ours { .. } if self.usable == 0 => Turn::Open,
            Turn::Ours { since } if passed(since) >= TURN && starving().any(|it| it) => {
                Turn::Theirs { since: now, owed: starving().collect() }
            }
            Turn::Theirs { since, owed } if owed.len() == rivals.len() => {
                let owed: Vec<bool> =
                    owed.iter().zip(starving()).map(|(owed, starving)| *owed && starving).collect();
                let count = u32::try_from(owed.len()).unwrap_or(u32::MAX);
                let is_over = passed(since) >= TURN_LEFT.saturating_mul(count);
                match !is_over && owed.contains(&true) {
                    true => Turn::Theirs { since, owed },
                    false => Turn::Open,
                }
            }
            Turn::Theirs { .. } => Turn::Open,
            same => same,
        };
        if matches!(self.turn, Turn::Theirs { .. }) {
            self.usable = 0;
            self.shrink(0);
            return 0;
        }
        u32::from(self.wanted > 0)
    }

    /// Uses, shrinks or withdraws what was proposed.
    fn go_on(&mut self, rivals: &[Rival], place: usize) {
        let Some(to) = self.proposed() else { return };
        let room = self.room(rivals);
        if to > room {
            // Those with later names withdraw what they propose if it does not fit with ours.
            let others = rivals.iter().enumerate().map(|(index, rival)| {
                if index >= place && rival.is_pending() { rival.settled() } else { rival.held() }
            });
            self.shrink(to.min(self.limit.saturating_sub(sum(others))));
        }
        if let Raise::Told { to, version } = self.raise
            && to <= room
            && rivals.iter().all(|rival| rival.echoed.is_some_and(|echoed| echoed >= version))
        {
            self.usable = to;
            self.raise = Raise::None;
        }
    }

    /// Gives back what others need more, down to the fair share of this node. That may be less than
    /// what is in flight: then no request starts before some have ended, and until then they count.
    fn give_back(&mut self, rivals: &[Rival], targets: &[u32], target: u32) {
        let held = self.held();
        let taken = sum(rivals.iter().map(Rival::held)).saturating_add(held);
        let lacking = rivals.iter().zip(targets).map(|(rival, target)| {
            rival.wanted().saturating_add(1).min(*target).saturating_sub(rival.held())
        });
        let is_short = sum(lacking) > self.limit.saturating_sub(taken);
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

    /// What the others leave.
    fn room(&self, rivals: &[Rival]) -> u32 {
        self.limit.saturating_sub(sum(rivals.iter().map(Rival::held)))
    }

    fn held(&self) -> u32 {
        self.usable.max(self.in_flight).max(self.proposed().unwrap_or(0))
    }

    fn proposed(&self) -> Option<u32> {
        match self.raise {
            Raise::None => None,
            Raise::Drafted { to } | Raise::Told { to, .. } => Some(to),
        }
    }

    /// Lowers what is proposed; less than what is used is no raise any more.
    fn shrink(&mut self, most: u32) {
        self.raise = match self.raise {
            Raise::Drafted { to } if to.min(most) > self.usable => {
                Raise::Drafted { to: to.min(most) }
            }
            Raise::Told { to, version } if to.min(most) > self.usable => {
                Raise::Told { to: to.min(most), version }
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
