//! Reason of a replica's state, in the words of operators.

use spillway_types::SignFault;

use crate::change_reason::ChangeReason;
use crate::report::MemberState;
use crate::verdict::{Vote, Votes};
use crate::{CheckError, Verdict};

const SLOW: &str = "several times slower than its peers";

/// Facts about a replica from which its reason follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReasonFacts {
    pub(crate) state: MemberState,
    /// Reason of the present state, as in logs.
    pub(crate) why: ChangeReason,
    pub(crate) verdict: Verdict,
    pub(crate) votes: Votes,
    /// Newest fault of the active check, of the deep check and of scrapes, while each fails.
    pub(crate) check_faults: [Option<CheckError>; 3],
    /// Newest fault of a request.
    pub(crate) request_fault: Option<SignFault>,
    /// Faults of requests in a row.
    pub(crate) faults_in_a_row: u32,
    /// True if the replica is far slower than its peers.
    pub(crate) is_slow: bool,
    /// Time without a byte, in milliseconds, while requests were in flight.
    pub(crate) silent_for_ms: Option<u64>,
    /// Ejections that are not forgotten yet.
    pub(crate) ejections: u32,
    /// True if any answer has come from the replica.
    pub(crate) has_answered: bool,
}

impl ReasonFacts {
    /// Returns the reason; `None` for a replica that serves as usual.
    pub(crate) fn reason(&self) -> Option<String> {
        match self.state {
            MemberState::Serving | MemberState::Ramping | MemberState::Standby => None,
            MemberState::Starting => Some(self.of_start()),
            MemberState::WarmingUp => Some("gets its warm-up prompts".to_owned()),
            MemberState::Trial => Some(self.of_trial()),
            MemberState::Down => Some(self.of_down()),
            MemberState::Ejected => Some(self.of_ejection()),
            MemberState::Busy => Some("asked for a pause".to_owned()),
            MemberState::Draining | MemberState::Drained => Some(self.of_drain()),
        }
    }

    fn of_start(&self) -> String {
        match self.check_faults[0] {
            Some(fault @ CheckError::NotReady) => fault.to_string(),
            Some(fault) if self.has_answered => fault.to_string(),
            Some(fault) => format!("never answered: {fault}"),
            None if self.has_answered => "its checks have not passed yet".to_owned(),
            None => "never answered yet".to_owned(),
        }
    }

    fn of_trial(&self) -> String {
        match self.ejections {
            0 | 1 => "gets a few requests after an ejection".to_owned(),
            count => format!("gets a few requests after {count} ejections"),
        }
    }

    fn of_down(&self) -> String {
        match self.fault() {
            Some(fault) => fault,
            None if self.verdict == Verdict::Down => {
                "most nodes of the region report that it fails".to_owned()
            }
            None => "its checks have not passed yet".to_owned(),
        }
    }

    fn of_ejection(&self) -> String {
        match self.why {
            ChangeReason::SlowOutlier => SLOW.to_owned(),
            ChangeReason::EngineGone => "its engine reported that it ends".to_owned(),
            ChangeReason::Wedged => {
                format!("no token for {} while its queue grows", self.silence())
            }
            ChangeReason::SilentStall => format!("no byte for {} to any request", self.silence()),
            ChangeReason::TrialFailed => {
                let fault = if self.is_slow {
                    Some(SLOW)
                } else {
                    self.request_fault.map(SignFault::words)
                };
                format!("its trial failed: {}", fault.unwrap_or("requests failed there"))
            }
            _ => self.fault().unwrap_or_else(|| "requests failed there".to_owned()),
        }
    }

    fn of_drain(&self) -> String {
        match self.why {
            ChangeReason::PreemptionNotice => "its machine is about to be taken away".to_owned(),
            ChangeReason::Demoted => "goes back into the reserve".to_owned(),
            _ => "by order".to_owned(),
        }
    }

    /// Returns the fault of the signals that speak against the replica. A check says more precisely
    /// than a request what is wrong.
    fn fault(&self) -> Option<String> {
        let Votes { active, deep, scrape, passive } = self.votes;
        let mut of_checks = [active, deep, scrape].into_iter().zip(self.check_faults);
        let failed = of_checks.find_map(|(vote, fault)| fault.filter(|_| is_against(vote)));
        let request = || {
            let fault = self.request_fault.filter(|_| is_against(passive))?;
            Some(match self.faults_in_a_row {
                0 | 1 => fault.words().to_owned(),
                count => format!("{count} requests in a row failed: {}", fault.words()),
            })
        };
        let silence = || {
            let is_silent = is_against(passive) && self.silent_for_ms.is_some();
            is_silent.then(|| format!("no byte for {} to any request", self.silence()))
        };
        failed.map(|fault| fault.to_string()).or_else(request).or_else(silence)
    }

    fn silence(&self) -> String {
        format!("{} s", self.silent_for_ms.unwrap_or_default() / 1_000)
    }
}

fn is_against(vote: Vote) -> bool {
    vote.is_bad()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_types::TlsFault;

    fn facts(state: MemberState, why: ChangeReason) -> ReasonFacts {
        ReasonFacts {
            state,
            why,
            verdict: Verdict::Up,
            votes: Votes::default(),
            check_faults: [None; 3],
            request_fault: None,
            faults_in_a_row: 0,
            is_slow: false,
            silent_for_ms: None,
            ejections: 0,
            has_answered: true,
        }
    }

    fn down(fault: CheckError) -> String {
        let votes = Votes { active: Vote::BadForLong, ..Votes::default() };
        let check_faults = [Some(fault), None, None];
        let facts = ReasonFacts {
            votes,
            check_faults,
            ..facts(MemberState::Down, ChangeReason::SignalsAgree)
        };
        facts.reason().expect("a reason")
    }

    #[test]
    fn a_replica_that_is_down_has_the_fault_of_its_checks() {
        assert_eq!(down(CheckError::Refused), "connection refused");
        assert_eq!(down(CheckError::NameUnresolved), "its name does not resolve");
        assert_eq!(down(CheckError::Timeout), "no answer in time");
        assert_eq!(down(CheckError::Status(401)), "its check got status 401");
        let tls = CheckError::Tls(TlsFault::NotTls);
        assert_eq!(down(tls), "TLS handshake failed: the server does not speak TLS");
    }

    #[test]
    fn a_replica_that_never_answered_says_so_with_the_fault() {
        let new = ReasonFacts {
            has_answered: false,
            ..facts(MemberState::Starting, ChangeReason::Joined)
        };
        assert_eq!(new.reason().as_deref(), Some("never answered yet"));
        let refused = ReasonFacts { check_faults: [Some(CheckError::Refused), None, None], ..new };
        assert_eq!(refused.reason().as_deref(), Some("never answered: connection refused"));
        let loading = ReasonFacts { check_faults: [Some(CheckError::NotReady), None, None], ..new };
        assert_eq!(loading.reason().as_deref(), Some("loads its model"));
    }

    #[test]
    fn requests_that_failed_are_the_reason_where_no_check_fails() {
        let votes = Votes { passive: Vote::Bad, active: Vote::Good, ..Votes::default() };
        let failed = ReasonFacts {
            votes,
            request_fault: Some(SignFault::ServerError),
            faults_in_a_row: 5,
            ..facts(MemberState::Ejected, ChangeReason::FaultsInARow)
        };
        let reason = failed.reason().expect("a reason");
        assert_eq!(reason, "5 requests in a row failed: server error (5xx)");
        let silent =
            ReasonFacts { silent_for_ms: Some(31_400), why: ChangeReason::SilentStall, ..failed };
        assert_eq!(silent.reason().as_deref(), Some("no byte for 31 s to any request"));
    }

    #[test]
    fn a_replica_that_serves_as_usual_needs_no_reason() {
        for state in [MemberState::Serving, MemberState::Ramping, MemberState::Standby] {
            assert_eq!(facts(state, ChangeReason::Ready).reason(), None);
        }
    }
}
