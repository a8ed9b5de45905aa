//! Choice of the region that a client is directed to.

use std::net::IpAddr;

use crate::Coordinates;
use crate::dns::client::ClientNetwork;
use crate::dns::{DnsView, Zone};

/// Kilometres that light travels in a fibre in one millisecond: two thirds of its speed in a
/// vacuum.
const FIBRE_KM_PER_MS: f64 = 199.86;
/// Average ratio of cable length to great-circle distance.
///
/// The factor alone changes no order of regions. It makes a distance comparable with a measured
/// round trip, and it turns [`crate::dns::ZoneSpec::equal_ms`] into milliseconds.
pub const DETOUR: f64 = 1.5;
/// Smallest expected round trip, in milliseconds, that a measured one is compared with: shorter
/// distances reveal no detours.
const COMPARABLE_MS: f64 = 1.0;
/// Largest factor by which a measured round trip may correct an estimate. A longer round trip comes
/// from a queue, not from the cable.
const CORRECTION_MAX: f64 = 4.0;

/// Client of a query, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// Coordinates of the client; `None` if no database has them.
    pub(crate) at: Option<Coordinates>,
    /// Network of the client, or of its resolver.
    pub(crate) network: ClientNetwork,
    /// Name that the query asks for, in lower case.
    pub(crate) name: &'a [u8],
}

/// Estimates the round trip time from the distance, in milliseconds.
#[must_use]
pub fn rtt_by_distance_ms(from: Coordinates, to: Coordinates) -> f64 {
    2.0 * from.distance_km(to) / FIBRE_KM_PER_MS * DETOUR
}

/// Chooses the region of an answer: the nearest region that is offered. Among regions that are
/// about equally near, a hash chooses by weight. Returns `None` only for a zone without regions.
///
/// A network gets the same region again as long as the same regions are offered. A resolver that
/// renews its answer therefore does not move its clients.
pub(crate) fn choose(zone: &Zone, view: &DnsView, asking: &Asking<'_>) -> Option<usize> {
    let pool = pool(zone, view);
    let regions = zone.regions();
    // Resolvers prefer name servers that answer fast. A client of unknown place is therefore
    // probably nearer to this node than to any other. A spread over all regions would send most of
    // these clients to other continents.
    let own = view.own.and_then(|own| regions.get(own)).map(|own| own.coordinates);
    let Some(at) = asking.at.or(own) else { return by_weight(zone, view, &pool, asking) };
    let estimates: Vec<f64> =
        (0..regions.len()).map(|index| estimate_ms(zone, view, at, index)).collect();
    let ms = |index: usize| estimates.get(index).copied().unwrap_or(f64::INFINITY);
    let nearest = pool.iter().map(|&index| ms(index)).fold(f64::INFINITY, f64::min);
    // Regions within this margin count as equally near and share clients by weight.
    let limit = nearest + f64::from(zone.spec().equal_ms);
    let equal: Vec<usize> = pool.into_iter().filter(|&index| ms(index) <= limit).collect();
    by_weight(zone, view, &equal, asking)
}

/// Returns the addresses of a region in the order for this client, at most `addresses_max` of each
/// family.
///
/// All addresses belong to one region, because clients try them one after the other and resolvers
/// change their order. A far region listed behind the near one would get half of all clients, not
/// only those whose first try failed.
pub(crate) fn addresses(zone: &Zone, index: usize, asking: &Asking<'_>) -> Vec<IpAddr> {
    let Some(region) = zone.regions().get(index) else { return Vec::new() };
    let mut addresses = region.addresses.clone();
    let order = |address: &IpAddr| match address {
        IpAddr::V4(address) => asking.network.hash(2, &address.octets()),
        IpAddr::V6(address) => asking.network.hash(2, &address.octets()),
    };
    addresses.sort_by_cached_key(order);
    let most = zone.spec().addresses_max;
    let (mut v4, mut v6) = (0, 0);
    addresses.retain(|address| {
        let count = if address.is_ipv4() { &mut v4 } else { &mut v6 };
        *count += 1;
        *count <= most
    });
    addresses
}

/// Returns the indexes of the regions to choose from: the offered regions, or else the live ones,
/// or else all.
///
/// A region that sheds load still serves some of its clients and sends the others a Retry-After. A
/// name without addresses fails all clients for as long as resolvers keep that answer. If no region
/// seems alive, this node is cut off and its view means nothing.
fn pool(zone: &Zone, view: &DnsView) -> Vec<usize> {
    let all = 0..zone.regions().len();
    let offered: Vec<usize> = all.clone().filter(|&i| view.region(i).is_offered).collect();
    if !offered.is_empty() {
        return offered;
    }
    let alive: Vec<usize> = all.clone().filter(|&i| view.region(i).is_alive).collect();
    if alive.is_empty() { all.collect() } else { alive }
}

/// Estimates the round trip time from `at` to a region, in milliseconds.
///
/// The distance is corrected by the round trip between the client's nearest region and the target,
/// where this node has measured it: packets of the client likely take the same path.
fn estimate_ms(zone: &Zone, view: &DnsView, at: Coordinates, to: usize) -> f64 {
    let regions = zone.regions();
    let by_distance =
        |index: usize| regions.get(index).map(|region| rtt_by_distance_ms(at, region.coordinates));
    let Some(direct) = by_distance(to) else { return f64::INFINITY };
    let order = |&one: &usize, &other: &usize| {
        let ms = |index| by_distance(index).unwrap_or(f64::INFINITY);
        ms(one).total_cmp(&ms(other))
    };
    let home = (0..regions.len()).min_by(order);
    direct * home.map_or(1.0, |home| correction(zone, view, home, to))
}

/// Returns the measured round trip between two regions divided by the one expected from their
/// distance. Returns 1 without a measurement: a node measures only from its own region.
fn correction(zone: &Zone, view: &DnsView, one: usize, other: usize) -> f64 {
    let far = match view.own {
        Some(own) if own == one && own != other => other,
        Some(own) if own == other && own != one => one,
        _ => return 1.0,
    };
    let regions = zone.regions();
    let (Some(from), Some(to)) = (regions.get(one), regions.get(other)) else { return 1.0 };
    let expected = rtt_by_distance_ms(from.coordinates, to.coordinates);
    let Some(measured) = view.region(far).measured_rtt_ms.map(f64::from) else { return 1.0 };
    // Nothing is faster than light: a shorter round trip means wrong coordinates, so the distance
    // means nothing.
    if expected < COMPARABLE_MS || measured < expected / DETOUR {
        return 1.0;
    }
    (measured / expected).min(CORRECTION_MAX)
}

/// Chooses by weighted rendezvous hashing: each region gets its share of the networks, and a region
/// that disappears moves only its own networks.
fn by_weight(zone: &Zone, view: &DnsView, equal: &[usize], asking: &Asking<'_>) -> Option<usize> {
    if let [only] = equal {
        return Some(*only);
    }
    let salt = asking.network.hash(1, asking.name);
    let score = |index: usize| {
        let name = zone.regions().get(index).map(|region| region.name.as_str());
        let hash = asking.network.hash(salt, name.unwrap_or_default().as_bytes());
        // Upper half of the hash as a number between 0 and 1, both excluded.
        let chance =
            (f64::from(u32::try_from(hash >> 32).unwrap_or_default()) + 0.5) / 2f64.powi(32);
        // All weights may be 0 where no region is offered: then all regions count alike.
        let weight = f64::from(view.region(index).weight_permille.max(1));
        // The smallest of these exponential variates is a choice with probability by weight.
        -chance.ln() / weight
    };
    let order = |&&one: &&usize, &&other: &&usize| score(one).total_cmp(&score(other));
    equal.iter().min_by(order).copied()
}
