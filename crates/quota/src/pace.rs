//! When a node may speak.

/// Time between two statements of a region, so that limits take a known part of the log.
const PACE_MS: u64 = 2_000;
/// Nodes of a region that wait for each other's statement don't go on at the same time.
const SPREAD_MS: u64 = 400;
/// Time between two statements of a node of which the second can't wait.
const URGENT_MS: u64 = 400;
/// Urgent statements that a node may make in a row, and in which time it may make one more.
const URGENT_MAX: u32 = 4;
const URGENT_EACH_MS: u64 = 60_000;

/// When a node may speak: every two seconds about, and a few times sooner where somebody waits.
#[derive(Debug)]
pub(crate) struct Pace {
    not_before_ns: u64,
    urgent_before_ns: u64,
    urgent_left: u32,
    refilled_ns: u64,
    dice: fastrand::Rng,
}

/// How soon a node may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Not now.
    No,
    /// Only if somebody waits for it.
    Urgent,
    /// Now.
    Yes,
}

impl Pace {
    pub(crate) fn new(dice: fastrand::Rng) -> Self {
        Self {
            not_before_ns: 0,
            urgent_before_ns: 0,
            urgent_left: URGENT_MAX,
            refilled_ns: 0,
            dice,
        }
    }

    pub(crate) fn turn(&mut self, now_ns: u64) -> Turn {
        while self.urgent_left < URGENT_MAX
            && now_ns >= self.refilled_ns + URGENT_EACH_MS * 1_000_000
        {
            self.refilled_ns += URGENT_EACH_MS * 1_000_000;
            self.urgent_left += 1;
        }
        if now_ns >= self.not_before_ns {
            Turn::Yes
        } else if self.urgent_left > 0 && now_ns >= self.urgent_before_ns {
            Turn::Urgent
        } else {
            Turn::No
        }
    }

    /// A statement is made; an urgent one uses up a part of what a node may make.
    pub(crate) fn said(&mut self, now_ns: u64, turn: Turn) {
        if turn == Turn::Urgent {
            if self.urgent_left == URGENT_MAX {
                self.refilled_ns = now_ns;
            }
            self.urgent_left = self.urgent_left.saturating_sub(1);
        }
    }

    /// What was said is known, or a sibling spoke.
    pub(crate) fn wait(&mut self, now_ns: u64) {
        let wait_ms = PACE_MS + self.dice.u64(..SPREAD_MS);
        self.not_before_ns = self.not_before_ns.max(now_ns + wait_ms * 1_000_000);
        let wait_ms = URGENT_MS + self.dice.u64(..SPREAD_MS);
        self.urgent_before_ns = self.urgent_before_ns.max(now_ns + wait_ms * 1_000_000);
    }

    /// The next statement need not wait.
    pub(crate) fn now(&mut self) {
        self.not_before_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_few_statements_are_early_and_then_no_more_than_one_a_minute() {
        let mut pace = Pace::new(fastrand::Rng::with_seed(1));
        let mut early = 0;
        for look in 0..400 {
            let now_ns = S + look * S / 4;
            // Siblings speak all the time, so it is never its regular turn.
            pace.not_before_ns = u64::MAX / 2;
            if pace.turn(now_ns) == Turn::Urgent {
                pace.said(now_ns, Turn::Urgent);
                pace.urgent_before_ns = now_ns + URGENT_MS * 1_000_000;
                early += 1;
            }
        }
        assert_eq!(early, 4 + 1, "in a hundred seconds");
    }

    #[test]
    fn after_a_statement_an_urgent_one_comes_sooner_than_another() {
        let mut pace = Pace::new(fastrand::Rng::with_seed(1));
        assert_eq!(pace.turn(S), Turn::Yes);
        pace.said(S, Turn::Yes);
        pace.wait(S);
        assert_eq!(pace.turn(S + S / 5), Turn::No);
        assert_eq!(pace.turn(S + S), Turn::Urgent);
        assert_eq!(pace.turn(S + 3 * S), Turn::Yes);
    }
}
