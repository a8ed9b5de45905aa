//! What metrics show of what the cluster agrees on.

use std::sync::Weak;

use spillway_agreement::Agreement;
use spillway_consensus::Role;
use spillway_telemetry::LiveControl;

/// Where the figures are. Metrics must not keep the log open.
#[derive(Debug)]
pub(crate) struct WatchedAgreement(pub(super) Weak<Agreement>);

impl WatchedAgreement {
    /// The figures as they are now.
    pub(crate) fn live(&self) -> Option<LiveControl> {
        let status = self.0.upgrade()?.status();
        Some(LiveControl {
            role: match status.role {
                Role::Learner => "learner",
                Role::Follower => "follower",
                Role::Candidate => "candidate",
                Role::Leader => "leader",
                Role::IsolatedLeader => "isolated_leader",
                Role::Stopped => "stopped",
            },
            term: status.term,
            applied_index: status.applied_index.unwrap_or(0),
            last_index: status.last_index.unwrap_or(0),
            age_s: status.age.map(|age| age.as_secs_f64()),
            voters: status.voters.len() as u64,
            log_bytes: status.log_bytes as u64,
        })
    }
}
