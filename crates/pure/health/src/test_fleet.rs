//! Fleet with a clock, for tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use spillway_route::BucketConfig;
use spillway_types::{
    Admission, LoadReport, ReplicaName, ReplyForm, Sign, SignFault, SignKind, TokenCounts, Worked,
    WorkedPart,
};

use crate::{
    Action, Check, CheckError, CheckPeriods, Fleet, FleetConfig, HealthConfig, Live, MemberReport,
    MemberSpec, MemberState,
};

/// Moment at which all tests begin.
#[expect(clippy::disallowed_methods, reason = "an Instant can't be made in any other way")]
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn start() -> Instant {
    *START
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Makes the sign of a stream's first token.
pub(crate) fn answered(after: Duration) -> SignKind {
    let worked = Some(Worked { after, steps: 1.0, part: WorkedPart::FirstToken });
    SignKind::Answered { after, form: ReplyForm::Stream, worked }
}

/// Makes a replica of the pool `pool` with an active check every second and no slow start.
pub(crate) fn spec(name: &str) -> MemberSpec {
    MemberSpec {
        name: name.into(),
        pool: "pool".into(),
        models: Vec::new(),
        standby: None,
        needs_warm_up: false,
        checks: CheckPeriods { active: Some(ms(1000)), deep: None, scrape: None },
        health: HealthConfig::default(),
        weight: 1,
        slow_start: Duration::ZERO,
        bucket: BucketConfig::default(),
    }
}

/// Makes a fleet of replicas of these names that serve.
pub(crate) fn fleet(names: &[&str]) -> TestFleet {
    TestFleet::of(names.iter().copied().map(spec).collect())
}

/// Fleet with its time and the data path's view.
pub(crate) struct TestFleet {
    pub(crate) fleet: Fleet,
    pub(crate) now: Instant,
    pub(crate) live: BTreeMap<ReplicaName, Live>,
    /// All actions so far.
    pub(crate) actions: Vec<Action>,
}

impl TestFleet {
    /// Makes a fleet of replicas that are presumed ready.
    pub(crate) fn of(specs: Vec<MemberSpec>) -> Self {
        Self::with(specs, true)
    }

    pub(crate) fn with(specs: Vec<MemberSpec>, presumed_ready: bool) -> Self {
        let fleet = Fleet::new(FleetConfig::default(), 7);
        let mut test = Self { fleet, now: start(), live: BTreeMap::new(), actions: Vec::new() };
        let names: Vec<ReplicaName> = specs.iter().map(|spec| spec.name.clone()).collect();
        test.fleet.reconcile(start(), specs, presumed_ready);
        if presumed_ready {
            // They have served before the story begins.
            for name in &names {
                test.fleet.handle_check(start(), name, Check::Scrape, Ok(()));
            }
        }
        test.drain();
        test.actions.clear();
        test
    }

    pub(crate) fn sign(&mut self, replica: &str, kind: SignKind) -> &mut Self {
        let model = Some("m".into());
        self.fleet.handle_sign(&Sign { replica: replica.into(), model, at: self.now, kind });
        self.drain()
    }

    pub(crate) fn answer(&mut self, replica: &str) -> &mut Self {
        self.sign(replica, answered(ms(50)))
    }

    pub(crate) fn answer_after(&mut self, replica: &str, after: Duration) -> &mut Self {
        self.sign(replica, answered(after))
    }

    pub(crate) fn finish(&mut self, replica: &str, prompt: u64, cached: u64) -> &mut Self {
        let tokens = TokenCounts { prompt, cached, completion: 10 };
        self.sign(replica, SignKind::Finished { tokens, worked: None })
    }

    pub(crate) fn busy(&mut self, replica: &str, retry_after_ms: Option<u64>) -> &mut Self {
        self.sign(replica, SignKind::Busy { retry_after: retry_after_ms.map(ms) })
    }

    pub(crate) fn fail(&mut self, replica: &str, times: u32, fault: SignFault) -> &mut Self {
        for _ in 0..times {
            self.sign(replica, SignKind::Failed(fault));
        }
        self
    }

    pub(crate) fn check(&mut self, replica: &str, check: Check, times: u32) -> &mut Self {
        self.check_as(replica, check, times, Ok(()))
    }

    pub(crate) fn check_fails(&mut self, replica: &str, check: Check, times: u32) -> &mut Self {
        self.check_as(replica, check, times, Err(CheckError::Refused))
    }

    pub(crate) fn check_as(
        &mut self,
        replica: &str,
        check: Check,
        times: u32,
        result: Result<(), CheckError>,
    ) -> &mut Self {
        for _ in 0..times {
            self.fleet.handle_check(self.now, &replica.into(), check, result);
        }
        self.drain()
    }

    pub(crate) fn report(&mut self, replica: &str, report: LoadReport) -> &mut Self {
        self.fleet.handle_report(self.now, &replica.into(), report, 0);
        self.drain()
    }

    /// Lets that much time pass, with a tick every 100 ms.
    pub(crate) fn wait(&mut self, wait_ms: u64) -> &mut Self {
        let until = self.now + ms(wait_ms);
        while self.now < until {
            self.now = until.min(self.now + ms(100));
            self.tick();
        }
        self
    }

    pub(crate) fn tick(&mut self) -> &mut Self {
        let live = &self.live;
        let live_of = |name: &ReplicaName| live.get(name).copied().unwrap_or_default();
        self.fleet.handle_timeout(self.now, &live_of);
        self.drain()
    }

    pub(crate) fn set_live(&mut self, replica: &str, in_flight: u32, silent_ms: Option<u64>) {
        let live = Live { in_flight, elsewhere: 0, started: 0, silent_for: silent_ms.map(ms) };
        self.live.insert(replica.into(), live);
    }

    pub(crate) fn admission(&self, replica: &str) -> Admission {
        self.fleet.standing(&replica.into()).admission
    }

    pub(crate) fn permille(&self, replica: &str) -> u16 {
        self.fleet.standing(&replica.into()).ramp_permille
    }

    pub(crate) fn report_of(&self, replica: &str) -> MemberReport {
        let reports = self.fleet.members(self.now);
        reports.into_iter().find(|report| report.name.as_str() == replica).unwrap()
    }

    pub(crate) fn state(&self, replica: &str) -> MemberState {
        self.report_of(replica).state
    }

    /// Returns the states that a replica has entered since the last call, with their reasons.
    pub(crate) fn changes(&mut self, of: &str) -> Vec<(MemberState, &'static str)> {
        let mut changes = Vec::new();
        self.actions.retain(|action| match action {
            Action::Changed { replica, to, why, .. } if replica.as_str() == of => {
                changes.push((*to, why.name()));
                false
            }
            _ => true,
        });
        changes
    }

    fn drain(&mut self) -> &mut Self {
        while let Some(action) = self.fleet.poll_action() {
            self.actions.push(action);
        }
        self
    }
}
