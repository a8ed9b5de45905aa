//! Decision to announce or withdraw a node's anycast address, with hysteresis.

use std::time::{Duration, Instant};

use crate::time::later;

/// Hysteresis of an [`Announcement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncementConfig {
    /// Answers in a row that say to send clients, until the address is announced.
    pub rise: u32,
    /// Answers in a row that say to send no clients, or that are missing, until the address is
    /// withdrawn.
    pub fall: u32,
    /// Shortest time for which an address stays withdrawn: routers damp routes that come and go.
    pub hold: Duration,
}

impl Default for AnnouncementConfig {
    fn default() -> Self {
        Self { rise: 3, fall: 2, hold: Duration::from_secs(5) }
    }
}

/// State machine that announces or withdraws a node's address by the node's answers. At first it
/// decides nothing: an earlier process may have announced or withdrawn the address, and that stays
/// until enough answers speak for or against it.
///
/// A node damps the figures that it measures itself. This machine covers cases that the node can't
/// know: lost answers, and a process that hangs, dies or is started again and again.
#[derive(Clone, Debug)]
pub struct Announcement {
    config: AnnouncementConfig,
    is_announced: Option<bool>,
    /// The last answer, and the number of equal answers in a row.
    run: (bool, u32),
    withdrawn_at: Option<Instant>,
}

impl Announcement {
    /// Makes a machine that has decided nothing yet.
    #[must_use]
    pub fn new(config: AnnouncementConfig) -> Self {
        Self { config, is_announced: None, run: (false, 0), withdrawn_at: None }
    }

    /// Takes in one answer: true if the node says to send clients; pass false for an answer that
    /// did not come in time. Returns the new decision if it changed: true to announce, false to
    /// withdraw.
    pub fn update(&mut self, now: Instant, sends_clients: bool) -> Option<bool> {
        let (last, count) = self.run;
        // A different answer starts a new run.
        let count = if last == sends_clients { count.saturating_add(1) } else { 1 };
        self.run = (sends_clients, count);
        let needed = if sends_clients { self.config.rise } else { self.config.fall };
        // Only a return is held back; a withdrawal must never wait.
        let is_held =
            sends_clients && self.withdrawn_at.is_some_and(|at| now < later(at, self.config.hold));
        if self.is_announced == Some(sends_clients) || count < needed || is_held {
            return None;
        }
        if self.is_announced == Some(true) {
            self.withdrawn_at = Some(now);
        }
        self.is_announced = Some(sends_clients);
        Some(sends_clients)
    }

    /// Returns true if the address is to be announced; `None` before that is decided.
    #[must_use]
    pub fn is_announced(&self) -> Option<bool> {
        self.is_announced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    /// Plays answers 100 ms apart, `+` for "send clients" and `-` for "send none"; returns the
    /// decision after each.
    fn run(hold_ms: u64, answers: &str) -> String {
        let config = AnnouncementConfig { rise: 3, fall: 2, hold: ms(hold_ms) };
        let (mut announcement, mut now) = (Announcement::new(config), start());
        let mut said = String::new();
        for answer in answers.chars() {
            now += ms(100);
            let change = announcement.update(now, answer == '+');
            assert!(change.is_none() || change == announcement.is_announced());
            said.push(match announcement.is_announced() {
                None => '?',
                Some(true) => '+',
                Some(false) => '-',
            });
        }
        said
    }

    #[test]
    fn it_announces_after_three_good_answers_and_withdraws_after_two_bad_ones() {
        assert_eq!(run(0, "++++--"), "??+++-");
        assert_eq!(run(0, "++-+++"), "?????+", "in a row");
        assert_eq!(run(0, "+++-+-+--"), "??++++++-", "one that is lost changes nothing");
    }

    #[test]
    fn what_was_withdrawn_stays_so_for_a_while() {
        assert_eq!(run(500, "+++--+++++++"), "??++-----+++");
        assert_eq!(run(500, "+++--++-+++++"), "??++------+++", "it is well when the time is over");
    }

    #[test]
    fn the_first_announcement_needs_no_wait() {
        assert_eq!(run(60_000, "---+++"), "?----+");
    }
}
