//! Pace at which a node makes statements.

/// Time between two statements of a region, which bounds the part of the log that limits take.
const PACE_MS: u64 = 2_000;
/// Jitter: nodes of a region that wait for each other's statement don't go on at the same time.
const SPREAD_MS: u64 = 400;
/// Shortest time between two statements of a node if the second is urgent.
const URGENT_MS: u64 = 100;
/// Jitter of urgent statements.
const URGENT_SPREAD_MS: u64 = 50;
/// Urgent statements that a node may make in a row. The node gets back one of them every
/// `URGENT_EACH_MS`: about as many as it makes anyway.
const URGENT_MAX: u32 = 8;
const URGENT_EACH_MS: u64 = 5_000;

/// Pace of the statements of a node: one about every two seconds, and a few sooner while another
/// process waits for units. Urgent statements come from a token bucket.
#[derive(Debug)]
pub(crate) struct Pace {
    not_before_ns: u64,
    urgent_before_ns: u64,
    urgent_left: u32,
    refilled_ns: u64,
    dice: fastrand::Rng,
}

/// Permission of a node to make a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementTurn {
    /// No statement now.
    No,
    /// A statement only if another process waits for it.
    Urgent,
    /// Any statement.
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

    pub(crate) fn turn(&mut self, now_ns: u64) -> StatementTurn {
        while self.urgent_left < URGENT_MAX
            && now_ns >= self.refilled_ns + URGENT_EACH_MS * 1_000_000
        {
            self.refilled_ns += URGENT_EACH_MS * 1_000_000;
            self.urgent_left += 1;
        }
        if now_ns >= self.not_before_ns {
            StatementTurn::Yes
        } else if self.urgent_left > 0 && now_ns >= self.urgent_before_ns {
            StatementTurn::Urgent
        } else {
            StatementTurn::No
        }
    }

    /// Takes one urgent statement out of the bucket if `turn` was urgent.
    pub(crate) fn said(&mut self, now_ns: u64, turn: StatementTurn) {
        if turn == StatementTurn::Urgent {
            // A full bucket gains nothing, so the time for its next statement starts now.
            if self.urgent_left == URGENT_MAX {
                self.refilled_ns = now_ns;
            }
            self.urgent_left = self.urgent_left.saturating_sub(1);
        }
    }

    /// Starts the wait for the next statement after one of a sibling, unless it is urgent.
    pub(crate) fn wait_for_turn(&mut self, now_ns: u64) {
        let wait_ms = PACE_MS + self.dice.u64(..SPREAD_MS);
        self.not_before_ns = self.not_before_ns.max(now_ns + wait_ms * 1_000_000);
    }

    /// Starts the wait for the next statement after one that was answered.
    pub(crate) fn wait(&mut self, now_ns: u64) {
        self.wait_for_turn(now_ns);
        let wait_ms = URGENT_MS + self.dice.u64(..URGENT_SPREAD_MS);
        self.urgent_before_ns = self.urgent_before_ns.max(now_ns + wait_ms * 1_000_000);
    }

    /// Returns when the next statement can be made that another process or a request waits for.
    pub(crate) fn urgent_at_ns(&self) -> u64 {
        if self.urgent_left > 0 {
            self.urgent_before_ns.min(self.not_before_ns)
        } else {
            self.not_before_ns
        }
    }

    /// Lets the next statement be made at once.
    pub(crate) fn now(&mut self) {
        self.not_before_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_few_statements_are_early_and_then_no_more_than_one_in_five_seconds() {
        let mut pace = Pace::new(fastrand::Rng::with_seed(1));
        let mut early = 0;
        for look in 0..400 {
            let now_ns = S + look * S / 4;
            // Siblings make statements all the time, so the node never has a regular turn.
            pace.not_before_ns = u64::MAX / 2;
            if pace.turn(now_ns) == StatementTurn::Urgent {
                pace.said(now_ns, StatementTurn::Urgent);
                pace.urgent_before_ns = now_ns + URGENT_MS * 1_000_000;
                early += 1;
            }
        }
        assert!((27..=28).contains(&early), "{early}: eight, and twenty in a hundred seconds");
    }

    #[test]
    fn after_a_statement_an_urgent_one_comes_sooner_than_another() {
        let mut pace = Pace::new(fastrand::Rng::with_seed(1));
        assert_eq!(pace.turn(S), StatementTurn::Yes);
        pace.said(S, StatementTurn::Yes);
        pace.wait(S);
        assert_eq!(pace.turn(S + S / 20), StatementTurn::No);
        assert!((S + S / 10..S + S / 5).contains(&pace.urgent_at_ns()));
        assert_eq!(pace.turn(S + S), StatementTurn::Urgent);
        assert_eq!(pace.turn(S + 3 * S), StatementTurn::Yes);
    }
}
