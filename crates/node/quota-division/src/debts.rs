//! Debts of this node to limits, kept over restarts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spillway_files::{load, save};
use spillway_rate_limit::{LimitTerms, Quotas, Scope, Units};

use super::saved::{Owed, owed_path};

/// Shortest time between two writes. A process that crashes forgets the debts since the last.
const PACE: Duration = Duration::from_secs(5);

/// Debts of this node to limits, and the file that keeps them for its next process.
#[derive(Debug)]
pub(super) struct Debts {
    path: PathBuf,
    /// Debts of the process before to limits that are not known here yet.
    before: BTreeMap<Scope, u64>,
    written: Owed,
    written_at: Option<Instant>,
}

impl Debts {
    /// Reads the debts of the process before.
    pub(super) fn load(folder: &Path) -> Self {
        let path = owed_path(folder);
        let written = load::<Owed>(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "saved debts of limits can't be read");
            None
        });
        let written = written.unwrap_or_default();
        Self { path, before: written.0.clone(), written, written_at: None }
    }

    /// Adds to each of these limits the debt of the process before.
    pub(super) fn charge(&mut self, quotas: &Quotas, limits: &[LimitTerms]) {
        for terms in limits {
            if let Some(tokens) = self.before.remove(&terms.scope) {
                quotas.owe(&terms.scope, Units([0, tokens, 0]));
            }
        }
    }

    /// Writes the debts if they have changed, at most once in a period. Only limits `used` have any.
    pub(super) fn note<U>(&mut self, quotas: &Quotas, used: impl FnOnce() -> U, now: Instant)
    where
        U: IntoIterator<Item = LimitTerms>,
    {
        let is_early = self.written_at.is_some_and(|at| now.duration_since(at) < PACE);
        if !is_early {
            self.write(quotas, used(), now);
        }
    }

    /// Writes the debts if they have changed. Only limits `used` have any.
    pub(super) fn write(
        &mut self,
        quotas: &Quotas,
        used: impl IntoIterator<Item = LimitTerms>,
        now: Instant,
    ) {
        // Debts to limits that are not known yet must not be lost.
        let mut owed = self.before.clone();
        let owing = used.into_iter().map(|terms| (quotas.tokens_owed(&terms.scope), terms.scope));
        owed.extend(owing.filter(|(tokens, _)| *tokens > 0).map(|(tokens, scope)| (scope, tokens)));
        let owed = Owed(owed);
        if owed == self.written {
            return;
        }
        self.written_at = Some(now);
        match save(&self.path, &owed) {
            Ok(()) => self.written = owed,
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "debts of limits can't be saved");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_rate_limit::{Holding, QuotaAsk, RequestWindow};

    use super::*;

    fn limited(now: Instant) -> (Quotas, [LimitTerms; 1]) {
        let quotas = Quotas::new(now);
        let (scope, requests) = (Scope::Global, RequestWindow::Second);
        let limits = [LimitTerms { scope, whole: [None, Some(100), None], requests }];
        quotas.set_limits(&limits);
        let floor = Units([0, 100, 0]);
        quotas.hold(&Scope::Global, &Holding { floor, ..Holding::default() });
        (quotas, limits)
    }

    #[test]
    fn what_a_process_owes_the_next_one_owes() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let (quotas, limits) = limited(now);
        let ask = QuotaAsk { key: None, tenant: None, model: None, tokens: 1, said: 1, now };
        quotas.admit(&ask).unwrap().settle(Some(5_000));
        let known = limits.to_vec();
        Debts::load(folder.path()).note(&quotas, || known, now);
        // The process crashes, and the next one learns of the limit only some time later.
        let (next, limits) = limited(now);
        let mut debts = Debts::load(folder.path());
        debts.charge(&next, &[]);
        debts.write(&next, [], now);
        debts.charge(&next, &limits);
        assert_eq!(next.usage(&Scope::Global, now).unwrap().debt, Units([0, 4_999, 0]));
        assert!(next.admit(&ask).is_err());
        let (third, _) = limited(now);
        Debts::load(folder.path()).charge(&third, &limits);
        assert_eq!(third.usage(&Scope::Global, now).unwrap().debt, Units([0, 4_999, 0]));
    }
}
