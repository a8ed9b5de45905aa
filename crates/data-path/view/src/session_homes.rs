//! Homes of sessions by header. Nodes send each other their homes, and agree without a clock: a
//! move raises a home's version, and between homes of one version a hash decides.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fair_table::{Bounds, FairTable};

/// Part of a session's idle time after which a node that uses the session sends its home again, so
/// that the other nodes do not forget it.
const TELL_AGAIN: u32 = 4;

/// Longest time within which further requests of a session do not change the order in which sessions
/// are forgotten.
const USE_PERIOD_MAX: Duration = Duration::from_secs(1);
/// Part of a session's idle time within which they do not.
const USE_PERIOD_PART: u32 = 16;

/// Key of a session, equal at all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Keyed hash of model, tenant and header.
    pub session: u64,
    /// Keyed hash of the tenant, whose share of the table the session takes; 0 if an older node
    /// sent it.
    pub tenant: u64,
}

/// Home of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHome {
    /// Identity of the region; `None` for the own one.
    pub region: Option<u64>,
    /// Identity of the replica; `None` for one of another region that has not reported it yet.
    pub replica: Option<u64>,
    /// Number of homes that the session has had, this one included.
    pub version: u32,
}

type Homes = FairTable<u64, u64, KnownHome>;

/// Homes of a route's sessions. Beyond its size the tenant with the most sessions loses those that
/// it used longest ago. A short lock guards the table.
#[derive(Debug)]
pub(crate) struct SessionHomes {
    homes: Mutex<Homes>,
    idle: Duration,
}

/// Home with the time at which this node last sent or received it.
#[derive(Clone, Copy, Debug)]
struct KnownHome {
    /// Tenant's part of the key.
    tenant: u64,
    home: SessionHome,
    told_at: Instant,
}

impl SessionHome {
    /// Returns the identity by which requests of this region prefer the home; `None` if it is not
    /// known.
    pub(crate) fn target(&self) -> Option<u64> {
        self.region.or(self.replica)
    }

    /// Returns true if this home goes before another one of the same session.
    fn precedes(&self, other: &Self, key: u64) -> bool {
        // Keyed, so that no target wins all sessions that two nodes begin at once.
        let rank = |home: &Self| home.replica.map_or(0, |it| mix(it ^ key));
        match self.version.cmp(&other.version) {
            std::cmp::Ordering::Equal => rank(self) > rank(other),
            order => order.is_gt(),
        }
    }
}

impl SessionHomes {
    /// Returns an empty table that forgets a session after the time `idle`, and keeps `count_max`.
    pub(crate) fn new(idle: Duration, count_max: u64) -> Self {
        let bounds = Bounds {
            size_max: usize::try_from(count_max).unwrap_or(usize::MAX),
            idle,
            use_period: (idle / USE_PERIOD_PART).min(USE_PERIOD_MAX),
        };
        Self { homes: Mutex::new(FairTable::new(bounds)), idle }
    }

    pub(crate) fn find(&self, key: SessionKey, now: Instant) -> Option<SessionHome> {
        self.locked(|homes| homes.find(&key.session, now).map(|known| known.home))
    }

    /// Notes that a request of a session is served at `region` and `replica`. Returns the home if
    /// it has to be sent to the other nodes.
    pub(crate) fn served(
        &self,
        key: SessionKey,
        region: Option<u64>,
        replica: Option<u64>,
        now: Instant,
    ) -> Option<SessionHome> {
        self.locked(|homes| {
            let known = homes.find(&key.session, now).copied();
            let version = match known {
                None => 1,
                Some(KnownHome { home, told_at, .. }) => {
                    let is_same_region = home.region == region;
                    if is_same_region && (replica.is_none() || home.replica == replica) {
                        let silent = now.saturating_duration_since(told_at);
                        if silent <= self.idle / TELL_AGAIN || replica.is_none() {
                            return None;
                        }
                        home.version
                    } else if is_same_region && home.replica.is_none() {
                        home.version
                    } else {
                        home.version.saturating_add(1)
                    }
                }
            };
            let home = SessionHome { region, replica, version };
            put(homes, key, home, now);
            // The region that serves a new session sends its home. Both regions send a move, since
            // the other region may not know that it is one.
            (replica.is_some() || version > 1).then_some(home)
        })
    }

    /// Takes in a home that another node reports. Returns the home that this node gives up for it:
    /// both began or moved the session at the same time.
    pub(crate) fn receive(
        &self,
        key: SessionKey,
        told: SessionHome,
        now: Instant,
    ) -> Option<SessionHome> {
        self.locked(|homes| {
            let known = homes.look(&key.session, now).copied();
            // An older node does not send the tenant of the session.
            let tenant = known.filter(|_| key.tenant == 0).map_or(key.tenant, |known| known.tenant);
            let known = known.map(|known| known.home);
            let is_same = known.is_some_and(|home| {
                let is_open = home.replica.is_none() || home.replica == told.replica;
                home.region == told.region && home.version == told.version && is_open
            });
            if !is_same && known.is_some_and(|home| !told.precedes(&home, key.session)) {
                return None;
            }
            put(homes, SessionKey { tenant, ..key }, told, now);
            known.filter(|home| !is_same && home.version == told.version)
        })
    }

    /// Returns up to `count` homes by key. Sorting them would hold requests up.
    pub(crate) fn some(&self, count: usize, now: Instant) -> Vec<(SessionKey, SessionHome)> {
        let home = |(session, known): (&u64, &KnownHome)| {
            (SessionKey { session: *session, tenant: known.tenant }, known.home)
        };
        self.locked(|homes| homes.iter(now).take(count).map(home).collect())
    }

    fn locked<T>(&self, act: impl FnOnce(&mut Homes) -> T) -> T {
        act(&mut self.homes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.locked(|homes| homes.len())
    }
}

fn put(homes: &mut Homes, key: SessionKey, home: SessionHome, now: Instant) {
    let SessionKey { session, tenant } = key;
    homes.put((tenant, session), KnownHome { tenant, home, told_at: now }, 1, now);
}

/// Spreads every bit over all others.
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const EU: Option<u64> = Some(70);

    fn homes() -> SessionHomes {
        SessionHomes::new(IDLE, 100)
    }

    fn of(session: u64) -> SessionKey {
        SessionKey { session, tenant: 5 }
    }

    fn home(region: Option<u64>, replica: u64, version: u32) -> SessionHome {
        SessionHome { region, replica: Some(replica), version }
    }

    #[test]
    fn the_others_are_told_of_a_session_when_it_begins_moves_or_lasts() {
        let (homes, now) = (homes(), Instant::now());
        assert_eq!(homes.served(of(1), None, Some(7), now), Some(home(None, 7, 1)));
        assert_eq!(homes.served(of(1), None, Some(7), now), None, "they know");
        let later = now + IDLE / 3;
        assert_eq!(homes.served(of(1), None, Some(7), later), Some(home(None, 7, 1)), "it lasts");
        assert_eq!(homes.served(of(1), None, Some(8), later), Some(home(None, 8, 2)));
        // In another region, which itself sends the replica.
        let moved = SessionHome { region: EU, replica: None, version: 3 };
        assert_eq!(homes.served(of(1), EU, None, later), Some(moved));
        assert_eq!(homes.receive(of(1), home(EU, 9, 1), later), None, "from before it moved");
        assert_eq!(homes.find(of(1), now), Some(moved));
        assert_eq!(homes.receive(of(1), home(EU, 9, 3), later), None);
        assert_eq!(homes.find(of(1), now), Some(home(EU, 9, 3)));
        assert_eq!(homes.served(of(1), EU, None, later), None, "where it is known to be");
        assert_eq!(homes.find(of(1), now), Some(home(EU, 9, 3)));
        assert_eq!(homes.served(of(2), EU, None, later), None, "its region tells of it");
    }

    #[test]
    fn a_newer_home_wins_whatever_the_order() {
        let now = Instant::now();
        for order in [[1, 2], [2, 1]] {
            let homes = homes();
            for version in order {
                assert_eq!(
                    homes.receive(of(1), home(None, u64::from(version), version), now),
                    None
                );
            }
            assert_eq!(homes.find(of(1), now), Some(home(None, 2, 2)));
        }
    }

    #[test]
    fn nodes_that_begin_a_session_at_once_agree_and_one_of_them_moves_it() {
        let now = Instant::now();
        let mut wins = [0, 0];
        for key in 0..100 {
            let (one, other) = (homes(), homes());
            let mine = one.served(of(key), None, Some(7), now).unwrap();
            let theirs = other.served(of(key), None, Some(8), now).unwrap();
            let lost = [one.receive(of(key), theirs, now), other.receive(of(key), mine, now)];
            assert_eq!(one.find(of(key), now), other.find(of(key), now), "{key}");
            assert_eq!(lost.iter().flatten().count(), 1, "{key}");
            wins[usize::from(one.find(of(key), now) == Some(theirs))] += 1;
        }
        assert!(wins.iter().all(|wins| *wins > 20), "{wins:?}");
    }

    #[test]
    fn a_tenant_with_many_sessions_displaces_its_own_alone() {
        let (homes, now) = (homes(), Instant::now());
        let mine = |session| SessionKey { session, tenant: 7 };
        for session in 0..10 {
            homes.served(mine(session), None, Some(1), now);
        }
        for session in 100..1_000 {
            homes.served(of(session), None, Some(1), now);
        }
        assert_eq!(homes.len(), 100);
        assert!((0..10).all(|session| homes.find(mine(session), now).is_some()));
        assert!(homes.find(of(909), now).is_none() && homes.find(of(910), now).is_some());
    }

    #[test]
    fn a_session_stays_its_tenant_s_when_an_older_node_tells_of_it() {
        let (homes, now) = (homes(), Instant::now());
        homes.served(of(1), None, Some(7), now);
        homes.receive(SessionKey { session: 1, tenant: 0 }, home(None, 8, 2), now);
        assert_eq!(homes.some(9, now), [(of(1), home(None, 8, 2))]);
    }

    #[test]
    fn an_idle_session_is_forgotten() {
        let (homes, now) = (homes(), Instant::now());
        homes.served(of(1), None, Some(7), now);
        assert!(homes.find(of(1), now + IDLE).is_some(), "which is a use");
        assert!(homes.find(of(1), now + 2 * IDLE).is_some());
        assert_eq!(homes.find(of(1), now + 3 * IDLE + USE_PERIOD_MAX), None);
    }
}
