//! Outlier detection by faults (passive health check): the results of requests at one replica, made
//! into a vote. A silent stall counts as a fault.

use std::time::{Duration, Instant};

use spillway_types::SignFault;

use crate::HealthConfig;
use crate::change_reason::ChangeReason;
use crate::verdict::Vote;

/// Number of faults kept for reports.
const FAULTS_KEPT: usize = 4;

/// Time for which a good answer speaks for a replica.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// Time between two failed connections below which, with a failed check, they are no chance.
const CONNECT_PAIR: Duration = Duration::from_millis(200);

/// Runs of faults in one replica's traffic, and its silence.
///
/// A reply may begin well and still break off, so beginnings and ends are counted apart: a good
/// beginning ends a run of bad beginnings, but not a run of replies that broke off.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutlierDetection {
    /// Requests in a row without a good beginning of a reply.
    failed_run: u32,
    /// Replies in a row that broke off.
    broken_run: u32,
    /// Failed connection attempts in a row.
    connect_run: u32,
    /// Time of the newest failed connection attempt.
    connect_failed_at: Option<Instant>,
    /// True after two failed connections close together, while a check failed too.
    is_cut_off: bool,
    /// True if the engine reported that it is dying or draining, and has served nothing since.
    is_engine_gone: bool,
    /// True if a request failed since the last good answer in another way than by silence.
    has_failed: bool,
    /// True if the replica answers far slower than its peers.
    is_slow: bool,
    /// Time of its silence, once that is too long.
    silent_for: Option<Duration>,
    /// True if its queue has grown in that silence.
    is_wedged: bool,
    good_at: Option<Instant>,
    /// Newest faults, newest first.
    faults: [Option<(SignFault, Instant)>; FAULTS_KEPT],
}

impl OutlierDetection {
    /// Takes in a reply that began well.
    pub(crate) fn on_answer(&mut self, now: Instant) {
        self.failed_run = 0;
        self.connect_run = 0;
        self.is_cut_off = false;
        self.is_engine_gone = false;
        self.has_failed = false;
        self.good_at = Some(now);
    }

    /// Takes in the end of a reply.
    pub(crate) fn on_finish(&mut self) {
        self.broken_run = 0;
    }

    /// Takes in a "busy" reply, which proves a connection and nothing else.
    pub(crate) fn on_busy(&mut self) {
        self.connect_run = 0;
        self.is_cut_off = false;
    }

    /// Takes in a failed request; `check_failed` is true if the newest active check failed too.
    pub(crate) fn on_fault(&mut self, now: Instant, fault: SignFault, check_failed: bool) {
        self.faults.rotate_right(1);
        self.faults[0] = Some((fault, now));
        self.is_engine_gone |= fault == SignFault::EngineGone;
        self.has_failed |= !fault.is_silence();
        match fault {
            // These replies began well and broke off.
            SignFault::Cut | SignFault::Stalled => {
                self.broken_run = self.broken_run.saturating_add(1);
            }
            _ => self.failed_run = self.failed_run.saturating_add(1),
        }
        // Any other fault proves that a connection was made.
        if !matches!(fault, SignFault::Connect | SignFault::ConnectTimeout) {
            self.connect_run = 0;
            return;
        }
        self.connect_run = self.connect_run.saturating_add(1);
        let before = self.connect_failed_at.replace(now);
        let is_pair = self.connect_run > 1
            && before.is_some_and(|at| now.saturating_duration_since(at) <= CONNECT_PAIR);
        self.is_cut_off |= is_pair && check_failed;
    }

    /// Records the time without a byte while requests are in flight. The replica counts as stalled
    /// from `stall` on, or if it is wedged: if its queue has grown in a silence that is long enough
    /// for that.
    pub(crate) fn on_silence(
        &mut self,
        silent_for: Option<Duration>,
        stall: Duration,
        is_wedged: bool,
    ) {
        self.is_wedged = is_wedged;
        self.silent_for = silent_for.filter(|time| *time >= stall || is_wedged);
    }

    /// Records whether the replica is far slower than its peers.
    pub(crate) fn on_pace(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
    }

    /// Forgets the evidence before now, except the list of faults and a silence that goes on. Good
    /// answers from before the faults are as old as the faults.
    pub(crate) fn forgive(&mut self) {
        let Self { faults, silent_for, is_wedged, .. } = *self;
        *self = Self { faults, silent_for, is_wedged, ..Self::default() };
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.silent_for.is_some()
    }

    /// Returns the reason to eject the replica; `None` if there is none.
    pub(crate) fn complaint(&self, config: &HealthConfig) -> Option<ChangeReason> {
        if self.is_cut_off || reaches(self.connect_run, config.connect_eject_after) {
            Some(ChangeReason::ConnectFaults)
        } else if self.is_engine_gone {
            // Its health check may stay good until it ends: the next request would fail, too.
            Some(ChangeReason::EngineGone)
        } else if self.is_wedged {
            Some(ChangeReason::Wedged)
        } else if self.is_stalled() {
            Some(ChangeReason::SilentStall)
        } else if reaches(self.failed_run.max(self.broken_run), config.eject_after) {
            Some(ChangeReason::FaultsInARow)
        } else if self.is_slow {
            Some(ChangeReason::SlowOutlier)
        } else {
            None
        }
    }

    pub(crate) fn vote(&self, now: Instant, config: &HealthConfig) -> Vote {
        if self.complaint(config).is_some() {
            return match (self.is_mere_silence(), self.is_lasting(config)) {
                (true, false) => Vote::Unresponsive,
                (true, true) => Vote::UnresponsiveForLong,
                (false, false) => Vote::Bad,
                (false, true) => Vote::BadForLong,
            };
        }
        let is_good = self.good_at.is_some_and(|at| now.saturating_duration_since(at) <= GOOD_FOR);
        if is_good { Vote::Good } else { Vote::Silent }
    }

    /// Returns the length of the present run of faults.
    pub(crate) fn run(&self) -> u32 {
        self.failed_run.max(self.broken_run)
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = (SignFault, Instant)> {
        self.faults.into_iter().flatten()
    }

    fn is_mere_silence(&self) -> bool {
        !self.has_failed && !self.is_slow
    }

    fn is_lasting(&self, config: &HealthConfig) -> bool {
        let stall = Duration::from_millis(config.stall_ms.saturating_mul(2));
        reaches(self.run(), config.eject_after.saturating_mul(2))
            || self.silent_for.is_some_and(|time| time >= stall)
    }
}

/// Returns true if a run has reached its limit; a run of 0 never has.
fn reaches(run: u32, limit: u32) -> bool {
    run > 0 && run >= limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fleet::{ms, start};

    fn config() -> HealthConfig {
        HealthConfig::default()
    }

    fn after(faults: &[SignFault]) -> OutlierDetection {
        let mut outliers = OutlierDetection::default();
        faults.iter().for_each(|fault| outliers.on_fault(start(), *fault, false));
        outliers
    }

    fn vote(outliers: &OutlierDetection) -> Vote {
        outliers.vote(start(), &config())
    }

    #[test]
    fn an_engine_that_reports_its_end_is_left_out_at_once_until_it_serves_again() {
        let mut outliers = after(&[SignFault::EngineGone]);
        assert_eq!(
            (vote(&outliers), outliers.complaint(&config())),
            (Vote::Bad, Some(ChangeReason::EngineGone))
        );
        outliers.on_fault(start(), SignFault::Cut, false);
        outliers.on_busy();
        assert_eq!(outliers.complaint(&config()), Some(ChangeReason::EngineGone));
        outliers.on_answer(start());
        assert_eq!(outliers.complaint(&config()), None);
        let mut forgiven = after(&[SignFault::EngineGone]);
        forgiven.forgive();
        assert_eq!(vote(&forgiven), Vote::Silent, "a trial decides");
    }

    #[test]
    fn five_faults_in_a_row_are_bad_and_ten_are_bad_for_long() {
        assert_eq!(vote(&after(&[SignFault::ServerError; 4])), Vote::Silent);
        assert_eq!(vote(&after(&[SignFault::ServerError; 5])), Vote::Bad);
        assert_eq!(vote(&after(&[SignFault::Reset; 9])), Vote::Bad);
        assert_eq!(vote(&after(&[SignFault::BadReply; 10])), Vote::BadForLong);
        assert_eq!(vote(&after(&[SignFault::Silent; 5])), Vote::Unresponsive);
        assert_eq!(vote(&after(&[SignFault::Stalled; 10])), Vote::UnresponsiveForLong);
        assert_eq!(
            after(&[SignFault::Silent; 5]).complaint(&config()),
            Some(ChangeReason::FaultsInARow)
        );
    }

    #[test]
    fn a_good_answer_ends_the_run_and_speaks_for_it_for_a_while() {
        let mut outliers = after(&[SignFault::ServerError; 4]);
        outliers.on_answer(start());
        outliers.on_fault(start(), SignFault::ServerError, false);
        assert_eq!(vote(&outliers), Vote::Good);
        assert_eq!(outliers.vote(start() + ms(10_001), &config()), Vote::Silent);
    }

    #[test]
    fn replies_that_begin_well_and_break_off_each_time_are_bad() {
        let mut outliers = OutlierDetection::default();
        for _ in 0..5 {
            outliers.on_answer(start());
            outliers.on_fault(start(), SignFault::Cut, false);
        }
        assert_eq!(vote(&outliers), Vote::Bad);
        outliers.on_finish();
        assert_eq!(vote(&outliers), Vote::Good);
    }

    #[test]
    fn replies_that_end_well_are_no_excuse_for_those_that_never_begin() {
        let mut outliers = after(&[SignFault::ServerError; 4]);
        outliers.on_finish();
        outliers.on_fault(start(), SignFault::ServerError, false);
        assert_eq!(vote(&outliers), Vote::Bad);
    }

    #[test]
    fn three_failed_connections_in_a_row_are_enough() {
        use SignFault::{Connect, Reset};
        assert_eq!(vote(&after(&[Connect; 2])), Vote::Silent);
        assert_eq!(after(&[Connect; 3]).complaint(&config()), Some(ChangeReason::ConnectFaults));
        assert_eq!(vote(&after(&[Connect, Connect, Reset, Connect])), Vote::Silent);
    }

    #[test]
    fn connections_that_get_no_answer_are_silence_and_refused_ones_are_not() {
        use SignFault::{Connect, ConnectTimeout};
        assert_eq!(vote(&after(&[ConnectTimeout; 3])), Vote::Unresponsive);
        assert_eq!(vote(&after(&[ConnectTimeout, ConnectTimeout, Connect])), Vote::Bad);
        assert_eq!(vote(&after(&[Connect, ConnectTimeout, ConnectTimeout])), Vote::Bad);
    }

    #[test]
    fn two_failed_connections_close_together_are_enough_if_a_check_failed_too() {
        let of = |gap_ms, check_failed| {
            let mut outliers = OutlierDetection::default();
            outliers.on_fault(start(), SignFault::Connect, false);
            outliers.on_fault(start() + ms(gap_ms), SignFault::Connect, check_failed);
            vote(&outliers)
        };
        assert_eq!(of(200, true), Vote::Bad);
        assert_eq!(of(201, true), Vote::Silent);
        assert_eq!(of(0, false), Vote::Silent);
    }

    #[test]
    fn being_busy_proves_a_connection_and_nothing_else() {
        let mut outliers = after(&[SignFault::Connect, SignFault::Connect]);
        outliers.on_busy();
        outliers.on_fault(start(), SignFault::Connect, true);
        assert_eq!(vote(&outliers), Vote::Silent);
        let mut outliers = after(&[SignFault::ServerError; 4]);
        (0..100).for_each(|_| outliers.on_busy());
        assert_eq!(vote(&outliers), Vote::Silent, "busy is neither good nor bad");
        outliers.on_fault(start(), SignFault::ServerError, false);
        assert_eq!(vote(&outliers), Vote::Bad);
    }

    #[test]
    fn silence_with_requests_in_flight_is_bad_while_it_lasts() {
        let mut outliers = OutlierDetection::default();
        outliers.on_answer(start());
        for (silent_for, expected) in [
            (Some(ms(29_999)), Vote::Good),
            (Some(ms(30_000)), Vote::Unresponsive),
            (Some(ms(60_000)), Vote::UnresponsiveForLong),
            (None, Vote::Good),
        ] {
            outliers.on_silence(silent_for, ms(30_000), false);
            assert_eq!(vote(&outliers), expected, "{silent_for:?}");
        }
    }

    #[test]
    fn a_wedge_is_a_complaint_of_its_own() {
        let mut outliers = OutlierDetection::default();
        outliers.on_silence(Some(ms(15_000)), ms(30_000), true);
        assert_eq!(outliers.complaint(&config()), Some(ChangeReason::Wedged));
        assert!(outliers.is_stalled(), "no trial before it answers");
        outliers.on_silence(Some(ms(15_000)), ms(30_000), false);
        assert_eq!(outliers.complaint(&config()), None);
    }

    #[test]
    fn a_good_answer_shows_that_it_is_not_cut_off() {
        let mut outliers = OutlierDetection::default();
        (0..2).for_each(|_| outliers.on_fault(start(), SignFault::Connect, true));
        assert_eq!(vote(&outliers), Vote::Bad);
        outliers.on_answer(start());
        assert_eq!(vote(&outliers), Vote::Good);
    }

    #[test]
    fn good_answers_from_before_are_forgotten_with_the_faults() {
        let mut outliers = OutlierDetection::default();
        outliers.on_answer(start());
        outliers.forgive();
        assert_eq!(vote(&outliers), Vote::Silent);
    }

    #[test]
    fn forgiving_leaves_the_list_of_faults_and_a_silence_that_goes_on() {
        let mut outliers = after(&[SignFault::ServerError; 7]);
        outliers.on_silence(Some(ms(30_000)), ms(30_000), false);
        outliers.forgive();
        assert_eq!(outliers.complaint(&config()), Some(ChangeReason::SilentStall));
        outliers.on_silence(None, ms(30_000), false);
        assert_eq!(vote(&outliers), Vote::Silent);
        assert_eq!(outliers.faults().count(), FAULTS_KEPT);
    }
}
