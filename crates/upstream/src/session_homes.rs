//! Homes of sessions by header. Nodes tell each other of theirs, and agree without a clock: a move
//! raises a home's version, and between homes of one version a hash decides.

use std::time::{Duration, Instant};

use moka::sync::Cache;

/// Part of a session's idle time after which a node in use tells the others of it again, so that
/// they do not forget it.
const TELL_AGAIN: u32 = 4;

/// Home of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHome {
    /// Identity of the region; `None` for the own one.
    pub region: Option<u64>,
    /// Identity of the replica; `None` for one of another region that has not told it yet.
    pub replica: Option<u64>,
    /// Number of homes that the session has had, this one included.
    pub version: u32,
}

/// Homes of a route's sessions.
#[derive(Debug)]
pub(crate) struct SessionHomes {
    homes: Cache<u64, KnownHome>,
    idle: Duration,
}

/// Home with the time at which this node told it last, or heard of it.
#[derive(Clone, Copy, Debug)]
struct KnownHome {
    home: SessionHome,
    told_at: Instant,
}

impl SessionHome {
    /// Returns the identity by which requests of this region prefer the home; `None` if it is not
    /// known.
    pub(crate) fn place(&self) -> Option<u64> {
        self.region.or(self.replica)
    }

    /// Returns true if this home goes before another one of the same session.
    fn precedes(&self, other: &Self, key: u64) -> bool {
        // Keyed, so that no place wins all sessions that two nodes begin at once.
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
        let homes = Cache::builder().max_capacity(count_max).time_to_idle(idle).build();
        Self { homes, idle }
    }

    pub(crate) fn find(&self, key: u64) -> Option<SessionHome> {
        self.homes.get(&key).map(|known| known.home)
    }

    /// Notes that a request of a session is served at `region` and `replica`. Returns the home if
    /// the other nodes are to be told of it.
    pub(crate) fn served(
        &self,
        key: u64,
        (region, replica): (Option<u64>, Option<u64>),
        now: Instant,
    ) -> Option<SessionHome> {
        let known = self.homes.get(&key);
        let version = match known {
            None => 1,
            Some(KnownHome { home, told_at }) => {
                let is_same_region = home.region == region;
                if is_same_region && (replica.is_none() || home.replica == replica) {
                    let is_due = now.saturating_duration_since(told_at) > self.idle / TELL_AGAIN;
                    if !is_due || replica.is_none() {
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
        self.homes.insert(key, KnownHome { home, told_at: now });
        // The region that serves a new session tells of it. A move is told by both, since the other
        // region may not know that it is one.
        (replica.is_some() || version > 1).then_some(home)
    }

    /// Takes in a home that another node tells. Returns the home that this node gives up for it:
    /// both began or moved the session at once.
    pub(crate) fn hear(&self, key: u64, told: SessionHome, now: Instant) -> Option<SessionHome> {
        let known = self.homes.get(&key).map(|known| known.home);
        let is_same = known.is_some_and(|home| {
            let is_open = home.replica.is_none() || home.replica == told.replica;
            home.region == told.region && home.version == told.version && is_open
        });
        if !is_same && known.is_some_and(|home| !told.precedes(&home, key)) {
            return None;
        }
        self.homes.insert(key, KnownHome { home: told, told_at: now });
        known.filter(|home| !is_same && home.version == told.version)
    }

    /// Returns up to `count` homes by key.
    pub(crate) fn some(&self, count: usize) -> Vec<(u64, SessionHome)> {
        self.homes.iter().take(count).map(|(key, known)| (*key, known.home)).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.homes.run_pending_tasks();
        self.homes.entry_count()
    }
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

    fn home(region: Option<u64>, replica: u64, version: u32) -> SessionHome {
        SessionHome { region, replica: Some(replica), version }
    }

    #[test]
    fn the_others_are_told_of_a_session_when_it_begins_moves_or_lasts() {
        let (homes, now) = (homes(), Instant::now());
        assert_eq!(homes.served(1, (None, Some(7)), now), Some(home(None, 7, 1)));
        assert_eq!(homes.served(1, (None, Some(7)), now), None, "they know");
        let later = now + IDLE / 3;
        assert_eq!(homes.served(1, (None, Some(7)), later), Some(home(None, 7, 1)), "it lasts");
        assert_eq!(homes.served(1, (None, Some(8)), later), Some(home(None, 8, 2)));
        // In another region, which tells of its replica itself.
        let moved = SessionHome { region: EU, replica: None, version: 3 };
        assert_eq!(homes.served(1, (EU, None), later), Some(moved));
        assert_eq!(homes.hear(1, home(EU, 9, 1), later), None, "from before it moved");
        assert_eq!(homes.find(1), Some(moved));
        assert_eq!(homes.hear(1, home(EU, 9, 3), later), None);
        assert_eq!(homes.find(1), Some(home(EU, 9, 3)));
        assert_eq!(homes.served(1, (EU, None), later), None, "where it is known to be");
        assert_eq!(homes.find(1), Some(home(EU, 9, 3)));
        assert_eq!(homes.served(2, (EU, None), later), None, "its region tells of it");
    }

    #[test]
    fn a_newer_home_wins_whatever_the_order() {
        let now = Instant::now();
        for order in [[1, 2], [2, 1]] {
            let homes = homes();
            for version in order {
                assert_eq!(homes.hear(1, home(None, u64::from(version), version), now), None);
            }
            assert_eq!(homes.find(1), Some(home(None, 2, 2)));
        }
    }

    #[test]
    fn nodes_that_begin_a_session_at_once_agree_and_one_of_them_moves_it() {
        let now = Instant::now();
        let mut wins = [0, 0];
        for key in 0..100 {
            let (one, other) = (homes(), homes());
            let mine = one.served(key, (None, Some(7)), now).unwrap();
            let theirs = other.served(key, (None, Some(8)), now).unwrap();
            let lost = [one.hear(key, theirs, now), other.hear(key, mine, now)];
            assert_eq!(one.find(key), other.find(key), "{key}");
            assert_eq!(lost.iter().flatten().count(), 1, "{key}");
            wins[usize::from(one.find(key) == Some(theirs))] += 1;
        }
        assert!(wins.iter().all(|wins| *wins > 20), "{wins:?}");
    }
}
