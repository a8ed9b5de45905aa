//! Health of this node: what it counts of requests, and its judgement every ten seconds for metrics,
//! the log, `/readyz` and other nodes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use spillway_admin::{
    BusiestClient, CertificateEnd, HealthReport, HistoryPointOverview, LimitedClientOverview,
    NodeProblem, Overview, ProblemKind, RefusedConfig, RequestHistoryOverview,
    RequestTroubleOverview, TroubleCause, Urgency, health_report,
};
use spillway_control_plane::ControlPlane;
use spillway_health::{
    BIN, CountedRequests, EjectionLog, HistoryBin, HistoryPoint, MemberState, RecentEjections,
    RequestFinding, RequestHistory, RequestTrouble,
};
use spillway_telemetry::LiveHealth;
use spillway_types::{Outcome, ReplicaName, unix_ms};
use tokio_util::sync::CancellationToken;

/// Period of the judgement: other nodes learn of a problem, and of its end, at most this much
/// later. Requests to this node are answered by a judgement of the moment.
const PERIOD: Duration = Duration::from_secs(10);
/// Problems that are reported to other nodes, and characters of each: few, since other nodes ask
/// every second while an operator looks.
const REPORTED_MAX: usize = 3;
const TITLE_CHARS_MAX: usize = 200;
/// Days before the end of a certificate at which the log says so, beside its end itself.
const NOTICE_DAYS: [i64; 4] = [0, 1, 7, 30];
const DAY_MS: i64 = 86_400_000;

/// Last judgement of the node's health.
#[derive(Debug)]
pub(crate) struct NodeHealth {
    started: Instant,
    requests: Mutex<RequestHistory>,
    ejections: Mutex<EjectionLog>,
    /// Config file that was refused, while it is newer than the config in use.
    refused_config: ArcSwapOption<RefusedConfig>,
    judged: ArcSwap<HealthReport>,
}

impl NodeHealth {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            requests: Mutex::default(),
            ejections: Mutex::default(),
            refused_config: ArcSwapOption::empty(),
            judged: ArcSwap::default(),
        }
    }

    /// Counts requests that ended, in a group. One task calls this.
    pub(crate) fn counting(&self, now: Instant) -> Counting<'_> {
        let mut requests = self.requests();
        requests.advance(self.since_start(now));
        Counting(requests)
    }

    /// Notes that a changed config file was refused for this reason, or taken.
    pub(crate) fn note_config(&self, refused: Option<String>, now: SystemTime) {
        let refused = refused.map(|error| RefusedConfig { at_ms: unix_ms(now), error });
        self.refused_config.store(refused.map(Arc::new));
    }

    pub(crate) fn refused_config(&self) -> Option<RefusedConfig> {
        self.refused_config.load().as_deref().cloned()
    }

    /// Notes the state that a replica has entered.
    pub(crate) fn note_state(&self, replica: &ReplicaName, state: MemberState, now: Instant) {
        match state {
            MemberState::Ejected => self.ejections().note(replica, self.since_start(now)),
            MemberState::Draining | MemberState::Drained => self.ejections().forget(replica),
            _ => {}
        }
    }

    /// Returns the ejections of a replica in the last minutes.
    pub(crate) fn recent_ejections(&self, replica: &ReplicaName, now: Instant) -> RecentEjections {
        self.ejections().recent(replica, self.since_start(now))
    }

    /// Returns what is wrong with requests.
    pub(crate) fn request_troubles(&self) -> Vec<RequestTroubleOverview> {
        self.requests().findings().iter().map(trouble).collect()
    }

    /// Returns the client with most of the requests.
    pub(crate) fn busiest_client(&self) -> Option<BusiestClient> {
        let (client, share) = self.requests().busiest_client()?;
        Some(BusiestClient { client: client.to_string(), percent: share * 100.0 })
    }

    /// Returns figures for charts, for the last ten minutes.
    pub(crate) fn history(&self) -> RequestHistoryOverview {
        let points = self.requests().points();
        history_overview(points.into_iter())
    }

    /// Returns the same figures as bins, which can be added to those of other nodes.
    pub(crate) fn bins(&self, counted: CountedRequests) -> Vec<HistoryBin> {
        self.requests().bins(counted)
    }

    /// Returns the clients that their own limits refuse.
    pub(crate) fn limited_clients(&self) -> Vec<LimitedClientOverview> {
        let clients = self.requests().limited_clients().into_iter();
        clients
            .map(|(client, refused_per_s)| LimitedClientOverview {
                client: client.client.to_string(),
                tenant: client.client.tenant.map(|tenant| tenant.to_string()),
                reason: client.reason.to_owned(),
                refused_per_s,
            })
            .collect()
    }

    /// Returns the problems that are reported to other nodes: those of this node itself.
    pub(crate) fn reported(&self) -> Vec<NodeProblem> {
        let judged = self.judged.load();
        let own = judged.problems.iter().filter(|it| it.urgency < Urgency::Info && is_own(it.kind));
        own.take(REPORTED_MAX)
            .map(|problem| NodeProblem {
                is_urgent: problem.urgency == Urgency::Page,
                title: problem.title.chars().take(TITLE_CHARS_MAX).collect(),
            })
            .collect()
    }

    /// Returns the kinds of the problems that were found last, each once.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let judged = self.judged.load();
        let urgent = judged.problems.iter().filter(|it| it.urgency < Urgency::Info);
        let kinds: std::collections::BTreeSet<_> = urgent.map(|it| it.kind.name()).collect();
        kinds.into_iter().collect()
    }

    /// Returns figures of the last judgement: all kinds, so that those without a problem show 0.
    pub(crate) fn live(&self) -> LiveHealth {
        let judged = self.judged.load();
        let number = |kind| judged.problems.iter().filter(|problem| problem.kind == kind).count();
        let kinds = ProblemKind::ALL.into_iter();
        LiveHealth {
            state: judged.health.as_str(),
            problems: kinds.map(|kind| (kind.name(), number(kind) as u64)).collect(),
        }
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    fn ejections(&self) -> MutexGuard<'_, EjectionLog> {
        self.ejections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, RequestHistory> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that end at one moment.
#[derive(Debug)]
pub(crate) struct Counting<'a>(MutexGuard<'a, RequestHistory>);

impl Counting<'_> {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.0.record(outcome);
    }
}

/// Judges the node every [`PERIOD`] until told to stop.
pub(crate) async fn watch(
    overview: Arc<dyn Overview>,
    control_plane: Option<Arc<ControlPlane>>,
    health: Arc<NodeHealth>,
    stop: CancellationToken,
) {
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut notices = CertificateNotices::default();
    let mut before = None;
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        let looking = health_report(&*overview, control_plane.as_deref());
        let Some((report, certificate)) = stop.run_until_cancelled(looking).await else { return };
        if before.is_some_and(|before| before != report.health) {
            tracing::warn!(health = report.health.as_str(), "{}", report.summary);
        }
        before = Some(report.health);
        if let Some(end) = &certificate
            && let Some(notice) = notices.due(end, SystemTime::now())
        {
            tracing::warn!(certificate = end.of, "{notice}");
        }
        health.judged.store(Arc::new(report));
    }
}

/// Returns figures of points for operators.
pub(crate) fn history_overview(
    points: impl Iterator<Item = HistoryPoint>,
) -> RequestHistoryOverview {
    RequestHistoryOverview {
        bin_ms: u64::try_from(BIN.as_millis()).unwrap_or(u64::MAX),
        points: points.map(point).collect(),
        nodes: Vec::new(),
    }
}

fn point(point: HistoryPoint) -> HistoryPointOverview {
    HistoryPointOverview {
        requests_per_s: point.requests_per_s,
        failed_per_s: point.failed_per_s,
        refused_per_s: point.refused_per_s,
        forwarded_per_s: point.forwarded_per_s,
        received_per_s: point.received_per_s,
        tokens_per_s: point.tokens_per_s,
        first_token_p50_ms: point.first_token_p50_ms.map(f64::round),
        first_token_p95_ms: point.first_token_p95_ms.map(f64::round),
    }
}

fn trouble(finding: &RequestFinding) -> RequestTroubleOverview {
    let percent = |share: f64| share * 100.0;
    let causes = finding.causes.iter();
    RequestTroubleOverview {
        trouble: match finding.trouble {
            RequestTrouble::Failing => "failing",
            RequestTrouble::Refused => "refused",
        }
        .to_owned(),
        percent: percent(finding.share),
        usual_percent: finding.usual.map(percent),
        causes: causes
            .map(|(cause, share)| TroubleCause {
                cause: cause.to_string(),
                percent: percent(*share),
            })
            .collect(),
    }
}

/// Returns true for problems of the node itself: what it sees of other nodes, those see themselves.
fn is_own(kind: ProblemKind) -> bool {
    !matches!(
        kind,
        ProblemKind::NodeAway
            | ProblemKind::NodeReports
            | ProblemKind::ControlPlane
            | ProblemKind::VersionSkew
            | ProblemKind::ClockWrong
            | ProblemKind::RegionLost
            | ProblemKind::RegionFailing
            | ProblemKind::RegionFull
            | ProblemKind::StateTrouble
            | ProblemKind::ClientLimited
    )
}

/// Notices about the end of the certificate that ends first, each given once.
#[derive(Debug, Default)]
struct CertificateNotices {
    /// Use and end of the certificate, and days of the last notice.
    given: Option<(CertificateEnd, i64)>,
}

impl CertificateNotices {
    /// Returns the notice that is due at this moment; `None` if none is, or if it was given.
    fn due(&mut self, end: &CertificateEnd, now: SystemTime) -> Option<String> {
        let left_ms = end.ends_ms.saturating_sub(i64::try_from(unix_ms(now)).unwrap_or(i64::MAX));
        let days = NOTICE_DAYS.into_iter().find(|days| left_ms <= days * DAY_MS)?;
        let given = self.given.replace((end.clone(), days));
        if given.is_some_and(|(of, earlier)| of == *end && earlier <= days) {
            return None;
        }
        Some(match left_ms {
            ..=0 => format!("the certificate of {} has ended", end.of),
            _ if left_ms < 2 * DAY_MS => {
                format!("the certificate of {} ends in {} hours", end.of, left_ms / (DAY_MS / 24))
            }
            _ => format!("the certificate of {} ends in {} days", end.of, left_ms / DAY_MS),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_log_says_that_a_certificate_ends_30_7_and_1_days_before_and_at_its_end() {
        let end = CertificateEnd { of: "links".into(), begins_ms: 0, ends_ms: 100 * DAY_MS };
        let mut notices = CertificateNotices::default();
        let hours = (0..24 * 102).filter_map(|hour| {
            let now = UNIX_EPOCH + Duration::from_secs(hour * 3_600);
            notices.due(&end, now).map(|notice| (hour, notice))
        });
        let given: Vec<_> = hours.collect();
        assert_eq!(
            given.iter().map(|(hour, text)| (*hour, text.as_str())).collect::<Vec<_>>(),
            [
                (70 * 24, "the certificate of links ends in 30 days"),
                (93 * 24, "the certificate of links ends in 7 days"),
                (99 * 24, "the certificate of links ends in 24 hours"),
                (100 * 24, "the certificate of links has ended"),
            ]
        );
        // A renewed one has its own notices.
        let renewed = CertificateEnd { ends_ms: 130 * DAY_MS, ..end };
        let now = UNIX_EPOCH + Duration::from_secs(101 * 86_400);
        assert!(notices.due(&renewed, now).is_some_and(|text| text.ends_with("29 days")));
        assert_eq!(notices.due(&renewed, now), None);
    }
}
