//! Metrics of other regions and of connections to other nodes.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::{control, regions};
use crate::control_metrics::{ControlMetrics, LiveControl};
use crate::register::{Labels, metric, raise, registered, signed};

type Fraction = Family<Labels, Gauge<f64, AtomicU64>>;

/// Another region as this node knows it.
#[derive(Clone, Debug)]
pub struct LiveRegion {
    /// Name of the region.
    pub name: String,
    /// True if requests could be sent there.
    pub is_reachable: bool,
    /// True if clients are to be sent there.
    pub takes_clients: bool,
    /// Smoothed round-trip time, in seconds.
    pub rtt_s: f64,
    /// Age of the region's report, in seconds.
    pub age_s: f64,
    /// Share of its requests that the region gets during slow start after it came back, in
    /// permille.
    pub ramp_permille: u16,
    /// True while the region's circuit breaker is open: too many requests to it failed.
    pub is_broken: bool,
    /// Requests sent there, by model.
    pub models: Vec<LiveRegionModel>,
}

/// This node's requests to another region, for one model.
#[derive(Clone, Debug)]
pub struct LiveRegionModel {
    /// Name of the model.
    pub model: String,
    /// Requests in flight there.
    pub in_flight: u64,
    /// Requests sent there since start.
    pub sent: u64,
    /// Of these, requests refused there.
    pub refused: u64,
    /// Of these, requests lost in transit or with the link.
    pub broken: u64,
}

/// The connections to another node.
#[derive(Clone, Debug)]
pub struct LivePeer {
    /// Name of the node.
    pub name: String,
    /// Region of the node.
    pub region: String,
    /// Connections to the node, by kind.
    pub connections: Vec<LiveConnection>,
}

/// Connection to another node.
#[derive(Clone, Copy, Debug)]
pub struct LiveConnection {
    /// Kind: control or data.
    pub kind: &'static str,
    /// True if the connection is established.
    pub is_connected: bool,
    /// Smoothed round-trip time, in seconds.
    pub rtt_s: f64,
    /// Failed attempts to connect.
    pub dials_failed: u64,
}

/// Knowledge of other nodes; empty on a node that stands alone.
#[derive(Clone, Debug, Default)]
pub struct LiveCluster {
    /// Other regions.
    pub regions: Vec<LiveRegion>,
    /// Other nodes.
    pub peers: Vec<LivePeer>,
    /// Peers that were refused since start, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Datagrams of gossip since start, by result.
    pub datagrams: Vec<(&'static str, u64)>,
    /// Bytes of gossip sent.
    pub datagram_bytes: u64,
    /// Nodes that asked to join, or for their standing, and got an answer.
    pub strangers: u64,
    /// Time when peers will refuse this node's certificate, in seconds since 1970; `None` if
    /// unknown.
    pub certificate_expires_s: Option<u64>,
    /// Number of certificate authorities that this node trusts.
    pub authorities: u64,
    /// This node's part in the control plane; `None` if it takes none.
    pub control: Option<LiveControl>,
}

registered! {
    /// Metrics of other regions and nodes.
    #[derive(Debug)]
    pub(crate) struct RegionMetrics {
        reachable: Family<Labels, Gauge> = metric(regions::REGION_REACHABLE),
        takes_clients: Family<Labels, Gauge> = metric(regions::REGION_TAKES_CLIENTS),
        broken: Family<Labels, Gauge> = metric(regions::REGION_BREAKER_OPEN),
        rtt: Fraction = metric(regions::REGION_RTT),
        age: Fraction = metric(regions::REGION_AGE),
        ramp: Fraction = metric(regions::REGION_RAMP),
        in_flight: Family<Labels, Gauge> = metric(regions::SPILL_IN_FLIGHT),
        forwarded: Family<Labels, Counter> = metric(regions::SPILL_REQUESTS),
        connected: Family<Labels, Gauge> = metric(regions::LINK_CONNECTED),
        link_rtt: Fraction = metric(regions::LINK_RTT),
        dials_failed: Family<Labels, Counter> = metric(regions::LINK_DIALS_FAILED),
        refusals: Family<Labels, Counter> = metric(regions::LINK_REFUSALS),
        datagrams: Family<Labels, Counter> = metric(regions::GOSSIP_DATAGRAMS),
        datagram_bytes: Counter = metric(regions::GOSSIP_BYTES),
        strangers: Counter = metric(regions::LINK_STRANGERS),
        expires: Family<Labels, Gauge> = metric(control::CERTIFICATE_EXPIRES),
        authorities: Family<Labels, Gauge> = metric(control::CERTIFICATE_AUTHORITIES),
        control: ControlMetrics = ControlMetrics::new(),
        /// Counters of the last scrape, so that those of regions and nodes that left can be dropped.
        counted: Mutex<Counted>,
    }
}

/// Labels of the counters that are about a region or a node.
#[derive(Debug, Default)]
struct Counted {
    forwarded: BTreeSet<Labels>,
    dials_failed: BTreeSet<Labels>,
}

impl RegionMetrics {
    /// Shows the regions and nodes in `live`; earlier values of others vanish.
    pub(crate) fn show(&self, live: &LiveCluster) {
        let gauges = [
            &self.reachable,
            &self.takes_clients,
            &self.broken,
            &self.in_flight,
            &self.connected,
            &self.expires,
        ];
        for gauge in gauges {
            gauge.clear();
        }
        for gauge in [&self.rtt, &self.age, &self.ramp, &self.link_rtt] {
            gauge.clear();
        }
        let mut counted = Counted::default();
        live.regions.iter().for_each(|region| self.show_region(region, &mut counted.forwarded));
        live.peers.iter().for_each(|peer| self.show_peer(peer, &mut counted.dials_failed));
        self.forget_others(counted);
        for (family, counts, label) in [
            (&self.refusals, &live.refusals, "reason"),
            (&self.datagrams, &live.datagrams, "result"),
        ] {
            for (name, total) in counts {
                raise(&family.get_or_create(&vec![(label, (*name).to_owned())]), *total);
            }
        }
        raise(&self.datagram_bytes, live.datagram_bytes);
        raise(&self.strangers, live.strangers);
        if let Some(expires_s) = live.certificate_expires_s {
            self.expires.get_or_create(&Labels::new()).set(signed(expires_s));
        }
        self.authorities.get_or_create(&Labels::new()).set(signed(live.authorities));
        self.control.show(live.control.as_ref());
    }

    /// Drops the counters that this scrape did not show: new nodes bring new names without end, and
    /// a node that returns counts from 0.
    fn forget_others(&self, counted: Counted) {
        let mut known = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (family, before, now) in [
            (&self.forwarded, &known.forwarded, &counted.forwarded),
            (&self.dials_failed, &known.dials_failed, &counted.dials_failed),
        ] {
            for labels in before.difference(now) {
                family.remove(labels);
            }
        }
        *known = counted;
    }

    fn show_region(&self, region: &LiveRegion, counted: &mut BTreeSet<Labels>) {
        let labels = vec![("region", region.name.clone())];
        self.reachable.get_or_create(&labels).set(region.is_reachable.into());
        self.takes_clients.get_or_create(&labels).set(region.takes_clients.into());
        self.broken.get_or_create(&labels).set(region.is_broken.into());
        self.rtt.get_or_create(&labels).set(region.rtt_s);
        self.age.get_or_create(&labels).set(region.age_s);
        self.ramp.get_or_create(&labels).set(f64::from(region.ramp_permille) / 1_000.0);
        for model in &region.models {
            let with = |result: Option<&str>| {
                let mut labels = labels.clone();
                labels.push(("model", model.model.clone()));
                labels.extend(result.map(|result| ("result", result.to_owned())));
                labels
            };
            self.in_flight.get_or_create(&with(None)).set(signed(model.in_flight));
            // Served is counted nowhere: it is the rest.
            let served = model.sent.saturating_sub(model.refused + model.broken + model.in_flight);
            for (result, total) in
                [("served", served), ("refused", model.refused), ("broken", model.broken)]
            {
                let labels = with(Some(result));
                raise(&self.forwarded.get_or_create(&labels), total);
                counted.insert(labels);
            }
        }
    }

    fn show_peer(&self, peer: &LivePeer, counted: &mut BTreeSet<Labels>) {
        for connection in &peer.connections {
            let labels = vec![
                ("peer", peer.name.clone()),
                ("region", peer.region.clone()),
                ("kind", connection.kind.to_owned()),
            ];
            self.connected.get_or_create(&labels).set(connection.is_connected.into());
            // A lost connection has no round-trip time.
            if connection.is_connected {
                self.link_rtt.get_or_create(&labels).set(connection.rtt_s);
            }
            raise(&self.dials_failed.get_or_create(&labels), connection.dials_failed);
            counted.insert(labels);
        }
    }
}
