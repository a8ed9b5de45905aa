//! Shares of the load over replicas and time.

use std::{ops::Range, time::Duration};

use super::{exchange::Observation, ledger::RequestLedger, plan};

/// Shortest time over which shares are computed: some dozens of requests at the rates used here.
const WINDOW: Duration = Duration::from_secs(1);

/// Part of its due share from which a replica counts as back. With 30 expected requests a second,
/// chance alone moves the share by a fifth.
const BACK_PART: f64 = 0.8;

/// Requests that replicas received, in order of time. The time is that of sending: replicas record
/// none, and the gateway adds less than a millisecond unless it retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequests {
    visits: Vec<(Duration, u16)>,
}

impl ReceivedRequests {
    /// Combines the records of both sides. `ledgers[i]` belongs to replica i; `observations` are in
    /// order of number.
    pub(crate) fn new(observations: &[Observation], ledgers: &[RequestLedger]) -> Self {
        let sent = |id: &str| {
            let number = plan::number(id)?;
            let at = observations.binary_search_by_key(&number, |seen| seen.number).ok()?;
            Some(observations[at].sent)
        };
        let visits_of = |(replica, ledger): (u16, &RequestLedger)| {
            let ids = ledger.receipts().iter().filter_map(|receipt| receipt.request_id.as_deref());
            ids.filter_map(sent).map(|at| (at, replica)).collect::<Vec<_>>()
        };
        let mut visits: Vec<_> = (0..).zip(ledgers).flat_map(visits_of).collect();
        visits.sort_unstable();
        Self { visits }
    }

    /// Returns the share of requests that `replica` got; `None` without requests.
    pub(crate) fn share(&self, replica: u16, within: &Range<Duration>) -> Option<f64> {
        let visits = self.within(within);
        let own = visits.iter().filter(|(_, at)| *at == replica).count();
        (!visits.is_empty()).then(|| own as f64 / visits.len() as f64)
    }

    /// Returns the time of the last request at `replica`; `None` if it got none.
    pub(crate) fn last(&self, replica: u16, within: &Range<Duration>) -> Option<Duration> {
        self.times(replica, within).last()
    }

    /// Returns the time from the start of `within` until `replica` got at most one request, or at
    /// most the share `tolerated`, in every second. `None` if that never came, or less than a
    /// second before the end.
    pub(crate) fn out_after(
        &self,
        replica: u16,
        within: &Range<Duration>,
        tolerated: f64,
    ) -> Option<Duration> {
        let is_too_much = |at: &Duration| {
            let visits = self.within(&(*at..within.end.min(*at + WINDOW)));
            let own = visits.iter().filter(|(_, at)| *at == replica).count();
            // A single request may be a trial.
            own > 1 && own as f64 > visits.len() as f64 * tolerated
        };
        let last = self.times(replica, within).filter(is_too_much).last();
        let out = last.map_or(Duration::ZERO, |at| at - within.start);
        (within.start + out + WINDOW <= within.end).then_some(out)
    }

    /// Returns the time from the start of `within` to the first second in which `replica` got
    /// nearly its share `due` again; `None` if there was none.
    pub(crate) fn back_after(
        &self,
        replica: u16,
        within: &Range<Duration>,
        due: f64,
    ) -> Option<Duration> {
        self.times(replica, within)
            .take_while(|at| *at + WINDOW <= within.end)
            .find(|at| {
                let share = self.share(replica, &(*at..*at + WINDOW));
                share.is_some_and(|share| share >= due * BACK_PART)
            })
            .map(|at| at - within.start)
    }

    fn times(&self, replica: u16, within: &Range<Duration>) -> impl Iterator<Item = Duration> {
        let own = self.within(within).iter().filter(move |(_, at)| *at == replica);
        own.map(|(sent, _)| *sent)
    }

    fn within(&self, range: &Range<Duration>) -> &[(Duration, u16)] {
        let from = self.visits.partition_point(|(at, _)| *at < range.start);
        let until = self.visits.partition_point(|(at, _)| *at < range.end);
        &self.visits[from..until.max(from)]
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::ending::Ending, super::ledger::LedgerOutcome, super::ledger::testing::ledger, *,
    };

    const REPLICA: u16 = 1;

    /// Returns one request every 10 ms; `is_own` selects those of replica 1, the rest go to replica
    /// 0.
    fn traffic(seconds: u64, is_own: impl Fn(u64) -> bool) -> ReceivedRequests {
        let visit = |n| (Duration::from_millis(10 * n), u16::from(is_own(n)) * REPLICA);
        ReceivedRequests { visits: (0..seconds * 100).map(visit).collect() }
    }

    fn seconds(from: f64, until: f64) -> Range<Duration> {
        Duration::from_secs_f64(from)..Duration::from_secs_f64(until)
    }

    #[test]
    fn both_sides_records_meet_at_the_id() {
        let at = Duration::from_secs;
        let seen = |number: u32| Observation {
            number,
            due: at(0),
            sent: at(u64::from(number) + 1),
            first_byte: None,
            ended: at(9),
            replica: None,
            ending: Ending::Complete,
        };
        let done = LedgerOutcome::Finished;
        let ledgers = [
            ledger(&[("fault-0000001", done), ("trial", done)]),
            ledger(&[("fault-0000000", done), ("fault-0000001", LedgerOutcome::Aborted)]),
        ];
        let traffic = ReceivedRequests::new(&[seen(0), seen(1)], &ledgers);
        assert_eq!(traffic.visits, [(at(1), 1), (at(2), 0), (at(2), 1)]);
    }

    #[test]
    fn shares_are_of_the_requests_in_the_range() {
        let traffic = traffic(4, |n| n >= 200 && n % 4 == 0);
        assert_eq!(traffic.share(REPLICA, &seconds(0.0, 2.0)), Some(0.0));
        assert_eq!(traffic.share(REPLICA, &seconds(2.0, 4.0)), Some(0.25));
        assert_eq!(traffic.share(REPLICA, &seconds(4.0, 9.0)), None);
        assert_eq!(traffic.last(REPLICA, &seconds(0.0, 2.0)), None);
        assert_eq!(traffic.last(REPLICA, &seconds(0.0, 9.0)), Some(Duration::from_millis(3960)));
    }

    #[test]
    fn a_replica_is_out_once_no_second_gives_it_more_than_a_trial() {
        // A quarter until 1.5 s after the fault at 2 s, then one request at 6 s.
        let trial = traffic(10, |n| (n < 350 && n % 4 == 0) || n == 600);
        let fault = seconds(2.0, 10.0);
        // The last but one request of the quarter: after it there is a single one.
        let after = Some(Duration::from_millis(1440));
        assert_eq!(trial.out_after(REPLICA, &fault, 0.0125), after);
        assert_eq!(trial.out_after(REPLICA, &fault, 0.0), after);
        // Two requests within a second are no trial request any more, unless so many are tolerated.
        let two = traffic(10, |n| (n < 350 && n % 4 == 0) || n == 600 || n == 650);
        assert_eq!(two.out_after(REPLICA, &fault, 0.0125), Some(Duration::from_secs(4)));
        let after = Some(Duration::from_millis(1400));
        assert_eq!(two.out_after(REPLICA, &fault, 0.02), after);
    }

    #[test]
    fn a_few_requests_at_the_start_are_not_out_at_once() {
        let traffic = traffic(10, |n| n < 230 && n % 4 == 0);
        let out = traffic.out_after(REPLICA, &seconds(2.0, 10.0), 0.0125);
        assert_eq!(out, Some(Duration::from_millis(240)));
    }

    #[test]
    fn a_replica_that_keeps_its_share_is_never_out_and_one_without_is_out_at_once() {
        let fault = seconds(2.0, 6.0);
        assert_eq!(traffic(6, |n| n % 4 == 0).out_after(REPLICA, &fault, 0.0125), None);
        assert_eq!(traffic(6, |_| false).out_after(REPLICA, &fault, 0.0), Some(Duration::ZERO));
    }

    #[test]
    fn a_replica_is_back_when_a_whole_second_has_nearly_its_share() {
        // Recovery at 2 s; from 4 s on one in ten, from 6 s on one in four.
        let traffic = traffic(10, |n| match n {
            0..400 => false,
            400..600 => n % 10 == 0,
            _ => n % 4 == 0,
        });
        let back = traffic.back_after(REPLICA, &seconds(2.0, 10.0), 0.25).unwrap().as_secs_f64();
        // The first second with a fifth of the requests begins a third of a second before the share
        // is full.
        assert!((3.5..=3.8).contains(&back), "{back}");
        assert_eq!(traffic.back_after(REPLICA, &seconds(2.0, 6.0), 0.25), None);
    }
}
