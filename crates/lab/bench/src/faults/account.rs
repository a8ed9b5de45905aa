//! Account of a run: lost requests, doubled requests, and the errors that a broken replica excuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::Serialize;

use super::{
    ending::{Ending, Failure, Loss},
    exchange::Observation,
    fault::Fault,
    ledger::{LedgerOutcome, RequestLedger},
    plan,
};

/// Most inexcusable errors to list one by one; their count is complete.
const LISTED_MAX: usize = 20;

/// Time in which a replica was broken. Times count from the start of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    /// Index of the replica.
    pub(crate) replica: u16,
    /// Fault of the replica.
    pub(crate) fault: Fault,
    /// Start: not later than the fault took effect.
    pub(crate) from: Duration,
    /// End: not sooner than the replica was healed.
    pub(crate) until: Duration,
}

/// Results of all requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Account {
    /// Number of requests sent.
    pub(crate) sent: usize,
    /// Number of whole replies.
    pub(crate) complete: usize,
    /// Number of requests with neither a whole reply nor a clear error in time.
    pub(crate) lost: usize,
    /// Number of the lost requests that were only unfinished when their client gave up.
    pub(crate) late: usize,
    /// Number of requests that replicas finished more than once.
    pub(crate) doubled: usize,
    /// Counts of clear errors and losses by kind.
    pub(crate) errors: BTreeMap<String, usize>,
    /// Number of clear errors of requests that were on a broken replica and could not be sent
    /// again.
    pub(crate) excused: usize,
    /// Number of all other clear errors.
    pub(crate) inexcusable: usize,
    /// First of the inexcusable errors.
    pub(crate) listed: Vec<Inexcusable>,
    /// Errors and losses by the replica where they happened.
    pub(crate) places: Vec<ReplicaErrors>,
}

/// Errors of one kind at one replica, during one trouble or outside of any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ReplicaErrors {
    /// Replica that had the requests; `None` if no replica had received them.
    pub(crate) replica: Option<u16>,
    /// Fault of the replica at the time; `None` if it was healthy.
    pub(crate) fault: Option<Fault>,
    /// Start of the fault, in seconds from the start of the load.
    pub(crate) since_s: Option<f64>,
    /// Error that the clients saw.
    pub(crate) error: String,
    /// Number of errors.
    pub(crate) count: usize,
}

/// Error that no broken replica excuses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Inexcusable {
    /// Id of the request.
    pub(crate) id: String,
    /// Time of sending, in seconds from the start of the load.
    pub(crate) sent_s: f64,
    /// Error that the client saw.
    pub(crate) error: String,
    /// Replica that had the request; `None` if none had received it.
    pub(crate) replica: Option<u16>,
    /// Reason why the error is not excused.
    pub(crate) why: Why,
}

/// Reason why an error is not excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// No replica had received the request, so any other could have been tried.
    NeverReceived,
    /// No replica that had the request was broken at the time.
    ReplicaHealthy,
    /// No part of the reply had reached the client, and the gateway's rules allow to send the
    /// request again.
    Resendable,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverReceived => "no replica had received it",
            Self::ReplicaHealthy => "the replica was healthy",
            Self::Resendable => "it could have been sent again",
        })
    }
}

impl Account {
    /// Returns the number of errors of any kind, losses included.
    pub(crate) fn failed(&self) -> usize {
        self.sent - self.complete
    }
}

/// Builds the account of a run. `ledgers[i]` belongs to replica i.
pub(crate) fn account(
    observations: &[Observation],
    ledgers: &[RequestLedger],
    troubles: &[Trouble],
) -> Account {
    let visits = visits(ledgers);
    let none = Visits::default();
    let mut account = Account { sent: observations.len(), ..Account::default() };
    let mut places = BTreeMap::new();
    for seen in observations {
        let visits = visits.get(&seen.number).unwrap_or(&none);
        let culprit = culprit(seen, visits, troubles);
        // Counts for complete requests too: the client saw one reply, but two replicas did the
        // work.
        account.doubled += usize::from(visits.finished > 1);
        let error = match &seen.ending {
            Ending::Complete => {
                account.complete += 1;
                continue;
            }
            Ending::Lost(loss) => {
                account.lost += 1;
                account.late += usize::from(*loss == Loss::TooLate);
                loss.to_string()
            }
            Ending::Failed(failure) => {
                account.enter_failure(seen, failure, culprit);
                failure.kind.clone()
            }
        };
        *account.errors.entry(error.clone()).or_default() += 1;
        *places.entry((culprit, error)).or_default() += 1;
    }
    let place = |((culprit, error), count): ((Culprit, String), usize)| {
        let trouble = culprit.trouble.map(|index| &troubles[index]);
        ReplicaErrors {
            replica: culprit.replica,
            fault: trouble.map(|trouble| trouble.fault),
            since_s: trouble.map(|trouble| trouble.from.as_secs_f64()),
            error,
            count,
        }
    };
    account.places = places.into_iter().map(place).collect();
    account
}

/// Replica at which a request failed, and its trouble as an index into the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Culprit {
    replica: Option<u16>,
    trouble: Option<usize>,
}

/// Finds the replica at which a request failed: of several that had received it, the broken one.
fn culprit(seen: &Observation, visits: &Visits, troubles: &[Trouble]) -> Culprit {
    // The replica named in the reply wins; a gateway's error names none.
    let had_it = |replica: u16| {
        seen.replica.map_or_else(|| visits.replicas.contains(&replica), |named| named == replica)
    };
    // The fault need not last for all of the request: one moment of it can break the request.
    let overlaps = |trouble: &Trouble| trouble.from <= seen.ended && seen.sent <= trouble.until;
    let broke = |trouble: &Trouble| had_it(trouble.replica) && overlaps(trouble);
    match troubles.iter().position(broke) {
        Some(index) => Culprit { replica: Some(troubles[index].replica), trouble: Some(index) },
        None => {
            let first = || visits.replicas.first().copied();
            Culprit { replica: seen.replica.or_else(first), trouble: None }
        }
    }
}

impl Account {
    fn enter_failure(&mut self, seen: &Observation, failure: &Failure, culprit: Culprit) {
        let why = match culprit {
            Culprit { replica: None, .. } => Why::NeverReceived,
            Culprit { trouble: None, .. } => Why::ReplicaHealthy,
            // The replica was broken, but the gateway could have tried another one.
            Culprit { .. } if failure.is_resendable && !failure.is_begun => Why::Resendable,
            Culprit { .. } => {
                self.excused += 1;
                return;
            }
        };
        self.inexcusable += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(Inexcusable {
                id: plan::id(seen.number),
                sent_s: seen.sent.as_secs_f64(),
                error: failure.kind.clone(),
                replica: culprit.replica,
                why,
            });
        }
    }
}

/// Replicas that received one request, and how many times it was finished.
#[derive(Clone, Debug, Default)]
struct Visits {
    replicas: BTreeSet<u16>,
    finished: usize,
}

fn visits(ledgers: &[RequestLedger]) -> BTreeMap<u32, Visits> {
    let mut all: BTreeMap<u32, Visits> = BTreeMap::new();
    for (replica, ledger) in (0..).zip(ledgers) {
        for receipt in ledger.receipts() {
            // Requests outside the plan, such as the trial at the start, do not count as losses.
            let Some(number) = receipt.request_id.as_deref().and_then(plan::number) else {
                continue;
            };
            let visits = all.entry(number).or_default();
            visits.replicas.insert(replica);
            visits.finished += usize::from(receipt.outcome == LedgerOutcome::Finished);
        }
    }
    all
}

#[cfg(test)]
#[path = "account_test.rs"]
mod tests;
