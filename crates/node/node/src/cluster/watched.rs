//! Metrics of other regions and nodes.

use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use spillway_link::{ConnectionStatus, DialStatus, Link, PeerStatus};
use spillway_telemetry::{LiveCluster, LiveConnection, LivePeer, LiveRegion, LiveRegionModel};
use spillway_view::{OtherRegion, Regions};

use crate::cluster::driver::Gossip;

/// Sources of the cluster's figures.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Weak, because metrics must not keep the link open.
    pub(super) link: Weak<Link>,
    pub(super) gossip: Arc<Gossip>,
}

impl Watched {
    /// Returns the link, as long as it is open.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.link.upgrade()
    }

    /// Returns the current figures.
    pub(crate) fn live(&self, regions: &Regions) -> LiveCluster {
        let Some(link) = self.link.upgrade() else { return LiveCluster::default() };
        let passed_s = regions.at.elapsed().as_secs_f64();
        let status = link.status();
        let gossip = self.gossip.load();
        let expires = status.certificate_expires_at.map(|at| at.duration_since(UNIX_EPOCH));
        LiveCluster {
            regions: regions.others.iter().map(|other| region(other, passed_s)).collect(),
            peers: link.peers().iter().map(peer).collect(),
            refusals: status.refusals.iter().map(|(why, count)| (why.as_str(), *count)).collect(),
            datagrams: vec![
                ("sent", gossip.sent),
                ("taken", gossip.taken),
                ("malformed", gossip.malformed),
                ("stranger", gossip.strangers),
                ("wrong_origin", gossip.wrong_origins),
                ("old", gossip.old),
                ("misplaced", gossip.misplaced),
                ("dropped", gossip.transmits_dropped),
            ],
            datagram_bytes: gossip.sent_bytes,
            strangers: status.totals.strangers,
            authorities: status.authorities as u64,
            control: None,
            certificate_expires_s: expires.and_then(Result::ok).map(|since| since.as_secs()),
        }
    }
}

fn region(other: &OtherRegion, passed_s: f64) -> LiveRegion {
    let models = other.models.iter().map(|(name, model)| LiveRegionModel {
        model: name.to_string(),
        in_flight: model.counts.in_flight().into(),
        sent: model.counts.sent(),
        refused: model.counts.refused(),
        broken: model.counts.broken(),
    });
    LiveRegion {
        name: other.name.to_string(),
        is_reachable: other.is_reachable,
        takes_clients: other.is_heard && other.steering.takes_clients(),
        rtt_s: f64::from(other.rtt_ms) / 1e3,
        age_s: f64::from(other.age_ms) / 1e3 + passed_s,
        ramp_permille: other.ramp_permille,
        is_broken: !other.breaker.is_open(),
        models: models.collect(),
    }
}

fn peer(status: &PeerStatus) -> LivePeer {
    let connection = |kind, stands: &Option<ConnectionStatus>, dials: &DialStatus| LiveConnection {
        kind,
        is_connected: stands.is_some(),
        rtt_s: stands.as_ref().map_or(Duration::ZERO, |stands| stands.rtt).as_secs_f64(),
        dials_failed: dials.failed,
    };
    LivePeer {
        name: status.identity.node().to_string(),
        region: status.identity.region().to_string(),
        connections: vec![
            connection("control", &status.control, &status.control_dials),
            connection("data", &status.data, &status.data_dials),
        ],
    }
}
