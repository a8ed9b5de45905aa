//! Permits for connections of the admin listener, and the choice of a connection that makes room for
//! a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Maximum number of connections: a few scrapers, people, and replicas that push their load.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of connections that have not shown a good token. The other permits are kept for
/// those that have.
const GUESTS_MAX: usize = 128;
/// Maximum number of one client's connections without a good token.
const GUESTS_PER_CLIENT_MAX: usize = 64;
/// Time in which a connection without a good token must send its next request, TLS handshake
/// included: checks and scrapers send one at once.
const GUEST_LIMIT: Duration = Duration::from_secs(5);
/// Number of bits of an IPv6 address that identify one client.
const IPV6_BITS: u32 = 64;

/// The connections of the admin listener.
#[derive(Debug, Default)]
pub struct ConnectionPermits(Mutex<PermitTable>);

/// Permit of one connection; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    number: u64,
    places: Arc<ConnectionPermits>,
    /// Cancelled when another connection needs the permit.
    taken_back: CancellationToken,
}

/// A request in flight. Its connection is not idle until this value is dropped.
#[derive(Debug)]
pub struct Busy(Arc<ConnectionPermit>);

#[derive(Debug, Default)]
struct PermitTable {
    /// Holders by number; an older connection has a lower number.
    holders: BTreeMap<u64, PermitHolder>,
    next: u64,
}

#[derive(Debug)]
struct PermitHolder {
    client: IpAddr,
    /// True if the last request showed a good token, or needed none.
    is_known: bool,
    /// Number of requests in flight.
    requests: u32,
    /// End of the last request, or the time of connecting.
    idle_since: Instant,
    taken_back: CancellationToken,
}

impl ConnectionPermits {
    /// Takes a permit for one more connection. If there is none, the oldest connection without a
    /// good token makes room, first among those of the same client, then of the client with most;
    /// else the longest idle one. `None` if all are busy.
    pub fn take(self: &Arc<Self>, client: IpAddr, now: Instant) -> Option<ConnectionPermit> {
        let (number, taken_back) = self.table().take(client_of(client), now)?;
        Some(ConnectionPermit { number, places: Arc::clone(self), taken_back })
    }

    fn table(&self) -> MutexGuard<'_, PermitTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Notes that a request has come. `is_known` is true if it showed a good token or needs none.
    pub fn busy(self: &Arc<Self>, is_known: bool) -> Busy {
        if let Some(holder) = self.places.table().holders.get_mut(&self.number) {
            holder.is_known = is_known;
            holder.requests += 1;
        }
        Busy(Arc::clone(self))
    }

    /// Returns when the connection has to end: another one needs its permit, or it has shown no good
    /// token and sends nothing.
    pub async fn over(&self) {
        let stayed = async {
            while let Some(until) = self.idle_until(Instant::now()) {
                tokio::time::sleep_until(until.into()).await;
            }
        };
        tokio::select! {
            () = self.taken_back.cancelled() => {}
            () = stayed => {}
        }
    }

    /// Returns the time of the next look; `None` if the connection has stayed too long.
    fn idle_until(&self, now: Instant) -> Option<Instant> {
        let table = self.places.table();
        let holder = table.holders.get(&self.number)?;
        if holder.is_known || holder.requests > 0 {
            return Some(now + GUEST_LIMIT);
        }
        Some(holder.idle_since + GUEST_LIMIT).filter(|until| *until > now)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(holder) = self.0.places.table().holders.get_mut(&self.0.number) {
            holder.requests -= 1;
            holder.idle_since = Instant::now();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.table().holders.remove(&self.number);
    }
}

impl PermitTable {
    fn take(&mut self, client: IpAddr, now: Instant) -> Option<(u64, CancellationToken)> {
        if let Some(number) = self.leaving(client) {
            let leaves = self.holders.remove(&number)?;
            leaves.taken_back.cancel();
        }
        if self.holders.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.next += 1;
        let (number, taken_back) = (self.next, CancellationToken::new());
        let holder = PermitHolder {
            client,
            is_known: false,
            requests: 0,
            idle_since: now,
            taken_back: taken_back.clone(),
        };
        self.holders.insert(number, holder);
        Some((number, taken_back))
    }

    /// Returns the connection that has to make room for one more of `client`; `None` if none has
    /// to.
    fn leaving(&self, client: IpAddr) -> Option<u64> {
        let guests = || self.holders.iter().filter(|(_, holder)| !holder.is_known);
        let oldest_of = |client: IpAddr| {
            { guests() }.find(|(_, holder)| holder.client == client).map(|(number, _)| *number)
        };
        let own = guests().filter(|(_, holder)| holder.client == client).count();
        // A client over its share makes room itself, so that it can't push out others.
        if own >= GUESTS_PER_CLIENT_MAX {
            return oldest_of(client);
        }
        let is_full = self.holders.len() >= CONNECTIONS_MAX;
        if !is_full && guests().count() < GUESTS_MAX {
            return None;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        guests().for_each(|(_, holder)| *counts.entry(holder.client).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let idle = || {
            let idle = self.holders.iter().filter(|(_, holder)| holder.requests == 0);
            idle.min_by_key(|(_, holder)| holder.idle_since).map(|(number, _)| *number)
        };
        // Without any guest, the longest idle connection of the others has to go.
        most.and_then(|(client, _)| oldest_of(client)).or_else(idle)
    }
}

/// Returns the address by which connections of one client are counted: an IPv4 address, or a /64 of
/// IPv6.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = address.to_bits() >> (128 - IPV6_BITS) << (128 - IPV6_BITS);
            Ipv6Addr::from_bits(kept).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn guests(
        places: &Arc<ConnectionPermits>,
        client: u8,
        count: usize,
    ) -> Vec<Arc<ConnectionPermit>> {
        let now = Instant::now();
        (0..count).map(|_| Arc::new(places.take(address(client), now).unwrap())).collect()
    }

    fn left(places: &[Arc<ConnectionPermit>]) -> usize {
        places.iter().filter(|place| !place.taken_back.is_cancelled()).count()
    }

    #[test]
    fn a_newcomer_takes_the_place_of_its_own_client_s_oldest_guest() {
        let places = Arc::new(ConnectionPermits::default());
        let other = guests(&places, 2, 1);
        let first = guests(&places, 1, GUESTS_PER_CLIENT_MAX);
        let more = guests(&places, 1, 3);
        assert!(first[..3].iter().all(|place| place.taken_back.is_cancelled()));
        assert_eq!((left(&first), left(&more), left(&other)), (GUESTS_PER_CLIENT_MAX - 3, 3, 1));
    }

    #[test]
    fn who_has_shown_a_token_never_makes_room_for_guests() {
        let places = Arc::new(ConnectionPermits::default());
        let mut known = Vec::new();
        for _ in 0..100 {
            known.extend(guests(&places, 1, 1));
            drop(known[known.len() - 1].busy(true));
        }
        let mut held = Vec::new();
        for client in 2..250 {
            held.extend(guests(&places, client, 5));
        }
        assert_eq!((left(&known), left(&held)), (100, GUESTS_MAX));
        assert!(places.table().holders.len() <= CONNECTIONS_MAX);
    }

    #[test]
    fn the_client_with_most_guests_makes_room_when_there_are_too_many() {
        let places = Arc::new(ConnectionPermits::default());
        let operator = guests(&places, 9, 1);
        let mut held = guests(&places, 1, GUESTS_PER_CLIENT_MAX);
        held.extend(guests(&places, 2, GUESTS_PER_CLIENT_MAX + 20));
        assert_eq!(left(&operator), 1);
        assert_eq!(left(&held), GUESTS_MAX - 1);
    }

    #[test]
    fn of_known_ones_the_longest_idle_makes_room_and_a_busy_one_never() {
        let places = Arc::new(ConnectionPermits::default());
        let mut known = Vec::new();
        for client in 0..=255 {
            let place = guests(&places, client, 1).remove(0);
            drop(place.busy(true));
            known.push(place);
        }
        let stays = known[0].busy(true);
        let next = guests(&places, 1, 1);
        assert!(known[1].taken_back.is_cancelled() && !known[0].taken_back.is_cancelled());
        drop(next[0].busy(true));
        let _busy: Vec<Busy> = known.iter().chain(&next).map(|place| place.busy(true)).collect();
        assert!(places.take(address(1), Instant::now()).is_none());
        drop(stays);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let client = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }

    #[test]
    fn places_are_given_back() {
        let places = Arc::new(ConnectionPermits::default());
        drop(guests(&places, 1, 500));
        assert!(places.table().holders.is_empty());
    }

    #[tokio::test]
    async fn a_guest_that_sends_nothing_is_let_go_and_a_known_one_is_not() {
        let places = Arc::new(ConnectionPermits::default());
        let [guest, known] = [1, 2].map(|client| guests(&places, client, 1).remove(0));
        drop(known.busy(true));
        let over = |place: Arc<ConnectionPermit>| async move { place.over().await };
        let later = Instant::now() + 2 * GUEST_LIMIT;
        assert!(known.idle_until(later).is_some());
        let known_is_over =
            tokio::time::timeout(Duration::from_millis(1), over(Arc::clone(&known))).await;
        assert!(known_is_over.is_err());
        drop(known.busy(false));
        assert_eq!(known.idle_until(later), None, "it has shown something else since");
        let busy = guest.busy(false);
        assert!(guest.idle_until(Instant::now() + 2 * GUEST_LIMIT).is_some(), "it is answered");
        drop(busy);
        assert!(guest.idle_until(Instant::now()).is_some());
        assert_eq!(guest.idle_until(Instant::now() + 2 * GUEST_LIMIT), None);
    }
}
