//! Failure detector for another node: when its last datagram arrived, and when ours last reached
//! it.

use std::time::Instant;

use crate::GossipMember;
use crate::datagram::Datagram;
use crate::name_id::NameId;
use crate::time::{is_forgotten, ms, ms_since};
use crate::window::{Arrival, Window};

/// Questions for the changes since a version, some of which are lost, before everything is asked
/// for.
const ASKS_IN_VAIN_MAX: u32 = 8;

/// Contact with another node: whether its datagrams arrive here, and whether ours arrive there.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    pub(crate) id: NameId,
    window: Option<Window>,
    known_since: Instant,
    heard_at: Option<Instant>,
    /// Time since the node last received a datagram from us, by its last report, milliseconds;
    /// `None` inside: never.
    word_ms: Option<Option<u32>>,
    asked_at: Option<Instant>,
    /// Questions since the node last sent us everything.
    asks: u32,
    answered_at: Option<Instant>,
}

impl FailureDetector {
    pub(crate) fn new(member: &GossipMember, now: Instant) -> Self {
        Self {
            id: NameId::of_node(&member.region, &member.node),
            window: None,
            known_since: now,
            heard_at: None,
            word_ms: None,
            asked_at: None,
            asks: 0,
            answered_at: None,
        }
    }

    /// Notes a datagram, and returns its place among those before it.
    pub(crate) fn receive(&mut self, now: Instant, datagram: &Datagram) -> Arrival {
        let arrival = self.arrival(now, datagram);
        // The report in a datagram that was overtaken is outdated.
        if matches!(arrival, Arrival::Reborn | Arrival::Newest) {
            self.heard_at = Some(now);
            self.word_ms = Some(datagram.heard.checked_sub(1));
        }
        arrival
    }

    fn arrival(&mut self, now: Instant, datagram: &Datagram) -> Arrival {
        let Datagram { incarnation, seq, .. } = *datagram;
        let is_forgotten = self.heard_at.is_some_and(|at| is_forgotten(at, now));
        match &mut self.window {
            Some(window) if incarnation < window.incarnation() && !is_forgotten => Arrival::Old,
            Some(window) if incarnation == window.incarnation() => window.enter(seq),
            // First contact, or the node has started again and counts from the beginning.
            window => {
                *window = Some(Window::new(incarnation, seq));
                self.asks = 0;
                Arrival::Reborn
            }
        }
    }

    pub(crate) fn incarnation(&self) -> Option<u64> {
        self.window.as_ref().map(Window::incarnation)
    }

    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    /// Returns the value for [`Datagram::heard`]. For a node that has never sent anything, the time
    /// counts from when we began to listen: then its claims become void.
    pub(crate) fn heard_code(&self, now: Instant) -> u32 {
        heard_code(Some(self.heard_at.unwrap_or(self.known_since)), now)
    }

    /// Returns when the node counts as silent unless a datagram arrives before. For a node that has
    /// never sent anything, the time counts from when it is known.
    pub(crate) fn silent_at(&self, silence_ms: u32) -> Instant {
        self.heard_at.unwrap_or(self.known_since) + ms(silence_ms)
    }

    /// Returns true if the node sends datagrams, but reports that it has received none from us for
    /// `silence_ms`.
    pub(crate) fn is_deaf(&self, silence_ms: u32) -> bool {
        self.word_ms.is_some_and(|word| word.is_none_or(|word_ms| word_ms >= silence_ms))
    }

    /// Returns the version to ask changes after, `have` being the version that we have whole; 0
    /// asks for everything, if earlier questions did not help. `None` if the node was asked just
    /// now.
    pub(crate) fn question(&mut self, now: Instant, have: u64, every_ms: u32) -> Option<u64> {
        if !spaced(&mut self.asked_at, now, every_ms) {
            return None;
        }
        self.asks += 1;
        Some(if self.asks > ASKS_IN_VAIN_MAX { 0 } else { have })
    }

    /// Notes that nothing is missing.
    pub(crate) fn complete(&mut self) {
        self.asks = 0;
    }

    /// Returns true if the node may be answered now, and then notes an answer at `now`.
    pub(crate) fn may_answer(&mut self, now: Instant, every_ms: u32) -> bool {
        spaced(&mut self.answered_at, now, every_ms)
    }
}

/// Returns the milliseconds since `heard_at`, plus 1; 0 for never.
pub(crate) fn heard_code(heard_at: Option<Instant>, now: Instant) -> u32 {
    heard_at.map_or(0, |at| ms_since(at, now).saturating_add(1))
}

fn spaced(last: &mut Option<Instant>, now: Instant, every_ms: u32) -> bool {
    let due = last.is_none_or(|at| now >= at + ms(every_ms));
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::datagram::Body;
    use crate::fuzz::some_moment;

    #[test]
    fn a_node_that_starts_again_with_its_clock_set_back_is_heard_after_some_silence() {
        let start = some_moment();
        let member = GossipMember::new("a", "r");
        let mut detector = FailureDetector::new(&member, start);
        let origin = NameId::of_node(&member.region, &member.node);
        let mut receive = |at_ms, incarnation, seq| {
            let body = Body::Ask { incarnation: 0, have: 0 };
            let datagram = Datagram { origin, incarnation, seq, heard: 0, body };
            detector.receive(start + Duration::from_millis(at_ms), &datagram)
        };
        assert!(matches!(receive(0, 9_000, 1), Arrival::Reborn));
        assert!(matches!(receive(9_000, 5, 1), Arrival::Old), "it may have been under way");
        assert!(matches!(receive(10_001, 5, 2), Arrival::Reborn));
        assert!(matches!(receive(10_050, 5, 3), Arrival::Newest));
    }

    #[test]
    fn after_many_questions_in_vain_all_is_asked_for() {
        let start = some_moment();
        let mut detector = FailureDetector::new(&GossipMember::new("a", "r"), start);
        let ask = |detector: &mut FailureDetector, at_ms| {
            detector.question(start + Duration::from_millis(at_ms), 7, 50)
        };
        assert_eq!(ask(&mut detector, 0), Some(7));
        assert_eq!(ask(&mut detector, 49), None, "asked just now");
        for turn in 1..u64::from(ASKS_IN_VAIN_MAX) {
            assert_eq!(ask(&mut detector, turn * 50), Some(7));
        }
        assert_eq!(ask(&mut detector, 1_000), Some(0));
        detector.complete();
        assert_eq!(ask(&mut detector, 2_000), Some(7));
    }
}
