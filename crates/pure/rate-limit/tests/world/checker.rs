//! Outside view of what all nodes together charge.

use std::collections::VecDeque;

use spillway_rate_limit::{LimitKind, RequestWindow, Units};

/// Charges of one limit by all nodes, by true time, without knowledge of how limits are divided.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    rates: [VecDeque<(u64, u64)>; 2],
    sums: [u64; 2],
    running: u64,
    /// Highest share of the allowed units that was ever in use.
    pub(crate) worst: f64,
    /// Units charged since the start.
    pub(crate) charged: Units,
}

impl Checker {
    /// Charges an admitted request.
    pub(crate) fn charge(
        &mut self,
        now_ms: u64,
        tokens: u64,
        allowed: Units,
    ) -> Result<(), String> {
        for (kind, units) in [(LimitKind::RequestRate, 1), (LimitKind::TokenRate, tokens)] {
            self.rates[kind as usize].push_back((now_ms, units));
            self.sums[kind as usize] += units;
            self.charged[kind] += units;
        }
        self.running += 1;
        self.charged[LimitKind::Concurrency] += 1;
        self.check(now_ms, allowed)
    }

    /// Frees the concurrency slot of a request that ended.
    pub(crate) fn end(&mut self) {
        self.running -= 1;
    }

    pub(crate) fn check(&mut self, now_ms: u64, allowed: Units) -> Result<(), String> {
        for kind in [LimitKind::RequestRate, LimitKind::TokenRate] {
            let window_ms = kind.window(RequestWindow::Second).unwrap().as_millis() as u64;
            let charges = &mut self.rates[kind as usize];
            while charges.front().is_some_and(|(at, _)| at + window_ms <= now_ms) {
                self.sums[kind as usize] -= charges.pop_front().unwrap().1;
            }
            self.compare(kind, self.sums[kind as usize], allowed)?;
        }
        self.compare(LimitKind::Concurrency, self.running, allowed)
    }

    fn compare(&mut self, kind: LimitKind, sum: u64, allowed: Units) -> Result<(), String> {
        if allowed[kind] > 0 {
            self.worst = self.worst.max(sum as f64 / allowed[kind] as f64);
        }
        if sum <= allowed[kind] {
            return Ok(());
        }
        Err(format!("{sum} of {kind} are charged, {} are allowed", allowed[kind]))
    }
}
