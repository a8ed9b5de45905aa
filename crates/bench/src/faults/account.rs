//! The account of a run: lost, doubled, and which errors a broken replica excuses.

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
    ledger::{Ledger, Outcome},
    plan,
};

/// Inexcusable errors that are listed one by one; the count is complete.
const LISTED_MAX: usize = 20;

/// A time in which a replica was broken. Times count from the start of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    /// Which replica.
    pub(crate) replica: u16,
    /// What was wrong.
    pub(crate) fault: Fault,
    /// Not later than the fault came into force.
    pub(crate) from: Duration,
    /// Not sooner than it was healed.
    pub(crate) until: Duration,
}

/// What became of all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Account {
    /// Requests in all.
    pub(crate) sent: usize,
    /// Whole replies.
    pub(crate) complete: usize,
    /// Neither a whole reply nor a clear error in time.
    pub(crate) lost: usize,
    /// Of these, the ones that were merely not over when their client gave up.
    pub(crate) late: usize,
    /// Finished by replicas more than once.
    pub(crate) doubled: usize,
    /// Clear errors and losses by kind.
    pub(crate) errors: BTreeMap<String, usize>,
    /// Clear errors of requests that were on a broken replica and could not be sent again.
    pub(crate) excused: usize,
    /// The other clear errors.
    pub(crate) inexcusable: usize,
    /// The first of those.
    pub(crate) listed: Vec<Inexcusable>,
    /// All errors and losses by where they happened.
    pub(crate) places: Vec<Place>,
}

/// Errors of one kind at one replica during one trouble, or outside of any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Place {
    /// Where the requests were; none if no replica had received them.
    pub(crate) replica: Option<u16>,
    /// What was wrong with it at the time; none if nothing was.
    pub(crate) fault: Option<Fault>,
    /// Since when, in seconds from the start of the load.
    pub(crate) since_s: Option<f64>,
    /// What the clients saw.
    pub(crate) error: String,
    /// How many of them.
    pub(crate) count: usize,
}

/// An error that there was no reason for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Inexcusable {
    /// The request.
    pub(crate) id: String,
    /// When it was sent, in seconds from the start of the load.
    pub(crate) sent_s: f64,
    /// What the client saw.
    pub(crate) error: String,
    /// Where it was, if anywhere.
    pub(crate) replica: Option<u16>,
    /// Why that is no excuse.
    pub(crate) why: Why,
}

/// Why an error is not excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// No replica had received it, so that any other could have been asked.
    NeverReceived,
    /// No replica that had it was broken at the time.
    ReplicaHealthy,
    /// Nothing had reached the client, and the gateway's own rules allow to send it again.
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
    /// Errors of any kind, losses included.
    pub(crate) fn failed(&self) -> usize {
        self.sent - self.complete
    }
}

/// Draws up the account. `ledgers[i]` is replica i's.
pub(crate) fn account(
    observations: &[Observation],
    ledgers: &[Ledger],
    troubles: &[Trouble],
) -> Account {
    let visits = visits(ledgers);
    let none = Visits::default();
    let mut account = Account { sent: observations.len(), ..Account::default() };
    let mut places = BTreeMap::new();
    for seen in observations {
        let visits = visits.get(&seen.number).unwrap_or(&none);
        let culprit = culprit(seen, visits, troubles);
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
        Place {
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

/// The replica that a request failed at, and its trouble as an index into the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Culprit {
    replica: Option<u16>,
    trouble: Option<usize>,
}

/// Of several replicas that had received the request, the one that was broken.
fn culprit(seen: &Observation, visits: &Visits, troubles: &[Trouble]) -> Culprit {
    // The reply's own word counts; an error of the gateway names no replica.
    let had_it = |replica: u16| {
        seen.replica.map_or_else(|| visits.replicas.contains(&replica), |named| named == replica)
    };
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

/// Where one request was.
#[derive(Clone, Debug, Default)]
struct Visits {
    replicas: BTreeSet<u16>,
    finished: usize,
}

fn visits(ledgers: &[Ledger]) -> BTreeMap<u32, Visits> {
    let mut all: BTreeMap<u32, Visits> = BTreeMap::new();
    for (replica, ledger) in (0..).zip(ledgers) {
        for receipt in ledger.receipts() {
            let Some(number) = receipt.request_id.as_deref().and_then(plan::number) else {
                continue;
            };
            let visits = all.entry(number).or_default();
            visits.replicas.insert(replica);
            visits.finished += usize::from(receipt.outcome == Outcome::Finished);
        }
    }
    all
}

#[cfg(test)]
#[path = "account_test.rs"]
mod tests;
