//! Metrics of the control plane.

use std::sync::Weak;

use spillway_control_plane::ControlPlane;
use spillway_raft::{Role, Trouble};
use spillway_telemetry::{LiveControl, LiveItems};

use crate::fold::NoteCounts;

/// Source of the control plane's figures; weak, because metrics must not keep the log open.
#[derive(Clone, Debug)]
pub(crate) struct WatchedControlPlane(pub(super) Weak<ControlPlane>);

impl WatchedControlPlane {
    /// Returns the index of the last entry that was carried out, `None` before the first, and why the
    /// log has stopped, `None` while it runs. Neither is known after the control plane ended.
    pub(crate) fn progress(&self) -> (Option<u64>, Option<String>) {
        let status = self.0.upgrade().map(|control_plane| control_plane.status());
        status.map(|status| (status.applied_index, status.fault)).unwrap_or_default()
    }

    /// Returns the current figures and counts of agreed items; `None` after the control plane
    /// ended.
    pub(crate) fn live(&self, counts: &NoteCounts) -> Option<LiveControl> {
        let status = self.0.upgrade()?.status();
        let items = counts.iter().map(|((kind, outcome), count)| LiveItems {
            kind: kind.as_str(),
            outcome: outcome.as_str(),
            count: *count,
        });
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
            age_s: status.age.unwrap_or(status.up).as_secs_f64(),
            troubles: Trouble::KINDS.map(|kind| (kind, count(&status.troubles, kind))).into(),
            voters: status.voters.len() as u64,
            log_bytes: status.log_bytes as u64,
            disk_waiting_s: status.disk_times.waiting.unwrap_or_default().as_secs_f64(),
            disk_writes: status.disk_times.writes,
            disk_write_s: status.disk_times.total.as_secs_f64(),
            items: items.collect(),
        })
    }
}

fn count(troubles: &[Trouble], kind: &str) -> u64 {
    troubles.iter().filter(|trouble| trouble.kind() == kind).count() as u64
}
