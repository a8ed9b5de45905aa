//! Waits of requests whose key this node does not know yet: another node may have made it a moment
//! ago.
//!
//! Everything has a limit, since any client can send keys that do not exist: so many waits at a
//! time, so many a second, so many for each client network, and none for a key that a wait has just
//! failed to find. A request beyond these limits is refused at once.

use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Longest wait for a key. News of a key take a round trip between regions and a tenth of a second.
pub const KEY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Most requests that wait at a time.
const WAITERS_MAX: usize = 64;
/// Most waits that begin in one second.
const PER_SECOND_MAX: u64 = 64;
/// Most waits of one network within [`NETWORK_WINDOW_S`].
const PER_NETWORK_MAX: u64 = 32;
/// Seconds over which the waits of a network are counted.
const NETWORK_WINDOW_S: u64 = 10;
/// Networks that are distinguished at a time; others share a count.
const NETWORKS: usize = 1_024;
/// Most keys without a result that are remembered.
const VAIN: usize = 256;
/// Bits of a count, behind those of its window.
const COUNT_BITS: u32 = 16;

/// Asks if the cluster may know of keys that this node does not know yet.
type Hope = Box<dyn Fn() -> bool + Send + Sync>;

/// Waits for keys, of all workers.
pub struct KeyNews {
    version: watch::Sender<u64>,
    hope: OnceLock<Hope>,
    waiters: Semaphore,
    limits: WaitLimits,
    since: Instant,
}

/// Counts of waits by second and by network, and keys that waits did not find. Its size never
/// changes.
struct WaitLimits {
    all: AtomicU64,
    networks: Box<[AtomicU64]>,
    vain: Box<[AtomicU64]>,
}

/// Wait of one request.
pub(super) struct KeyWait<'a> {
    news: watch::Receiver<u64>,
    _permit: SemaphorePermit<'a>,
}

impl KeyNews {
    pub(super) fn new() -> Self {
        let counts = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let limits =
            WaitLimits { all: AtomicU64::new(0), networks: counts(NETWORKS), vain: counts(VAIN) };
        Self {
            version: watch::Sender::new(0),
            hope: OnceLock::new(),
            waiters: Semaphore::new(WAITERS_MAX),
            limits,
            since: Instant::now(),
        }
    }

    /// Lets requests wait while `hope` says that the cluster may know more keys. Without it, none
    /// waits. The first call counts.
    pub fn hope(&self, hope: impl Fn() -> bool + Send + Sync + 'static) {
        drop(self.hope.set(Box::new(hope)));
    }

    pub(super) fn tell(&self, version: u64) {
        self.version.send_replace(version);
    }

    /// Begins the wait of a request of this client with a key of this fingerprint; `None` if it may
    /// not wait.
    pub(super) fn begin(&self, client: IpAddr, fingerprint: u64) -> Option<KeyWait<'_>> {
        let hope = self.hope.get()?;
        let permit = self.waiters.try_acquire().ok()?;
        let now_s = self.since.elapsed().as_secs();
        // Asked last: the other answers cost less.
        let may_wait = self.limits.admit(network_of(client), fingerprint, now_s) && hope();
        may_wait.then(|| KeyWait { news: self.version.subscribe(), _permit: permit })
    }

    /// Remembers that the wait for a key has ended without a result: as far as is known, it does
    /// not exist.
    pub(super) fn was_in_vain(&self, fingerprint: u64) {
        self.limits.note_vain(fingerprint);
    }
}

impl KeyWait<'_> {
    /// Waits for other keys.
    ///
    /// # Errors
    /// Returns an error at the end of the time, of which `left` is left.
    pub(super) async fn changed(
        &mut self,
        left: Duration,
    ) -> Result<(), tokio::time::error::Elapsed> {
        // The sender lives as long as the node.
        tokio::time::timeout(left, self.news.changed()).await.map(drop)
    }
}

impl WaitLimits {
    /// Counts a wait that begins at second `now_s`. Returns false if it is one too many.
    fn admit(&self, network: u64, fingerprint: u64, now_s: u64) -> bool {
        if self.vain[place(fingerprint, VAIN)].load(Ordering::Relaxed) == fingerprint {
            return false;
        }
        let count = &self.networks[place(network, NETWORKS)];
        take(count, now_s / NETWORK_WINDOW_S, PER_NETWORK_MAX)
            && take(&self.all, now_s, PER_SECOND_MAX)
    }

    fn note_vain(&self, fingerprint: u64) {
        self.vain[place(fingerprint, VAIN)].store(fingerprint, Ordering::Relaxed);
    }
}

/// Counts one up in a window, unless the count is at its maximum. An earlier window's count is over.
fn take(count: &AtomicU64, window: u64, most: u64) -> bool {
    let mask = (1 << COUNT_BITS) - 1;
    let next = |known: u64| {
        let so_far = if known >> COUNT_BITS == window { known & mask } else { 0 };
        (so_far < most).then_some(window << COUNT_BITS | (so_far + 1))
    };
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
}

/// Returns a number for the network that a client can choose its addresses in.
fn network_of(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits() >> 8),
        // A site has 56 bits as a rule.
        IpAddr::V6(address) => (address.to_bits() >> 72) as u64 | 1 << 63,
    }
}

/// Returns the place of a number among so many. The numbers may be chosen by clients: those who share
/// a place share its count, and nothing else.
fn place(number: u64, places: usize) -> usize {
    // Mixed by a multiplication, whose upper bits depend on all bits of the number.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % places
}

impl fmt::Debug for KeyNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyNews").field(&*self.version.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn without_hope_no_request_waits() {
        let news = KeyNews::new();
        assert!(news.begin(address("192.0.2.1"), 1).is_none(), "no cluster");
        news.hope(|| false);
        assert!(news.begin(address("192.0.2.1"), 1).is_none(), "no leader");
    }

    #[test]
    fn so_many_wait_at_a_time_and_places_come_back() {
        let news = KeyNews::new();
        news.hope(|| true);
        let of = |number: usize| address(&format!("10.{}.0.1", number % 256));
        let waits: Vec<_> = (0..WAITERS_MAX).map(|number| news.begin(of(number), 1)).collect();
        assert!(waits.iter().all(Option::is_some));
        assert!(news.begin(of(0), 1).is_none());
        drop(waits);
        assert_eq!(news.waiters.available_permits(), WAITERS_MAX);
    }

    #[test]
    fn a_network_waits_so_often_and_others_all_the_same() {
        let limits = KeyNews::new().limits;
        let (one, other) = (network_of(address("192.0.2.1")), network_of(address("198.51.100.1")));
        assert_eq!(one, network_of(address("192.0.2.200")));
        assert_eq!(one, network_of(address("::ffff:192.0.2.7")));
        let v6 = |text| network_of(address(text));
        assert_eq!(v6("2001:db8:0:1::1"), v6("2001:db8:0:2::9"));
        assert_ne!(v6("2001:db8:0:1::1"), v6("2001:db8:1:1::1"));
        let of = |network, now_s| {
            (0..1_000).filter(|key| limits.admit(network, *key + 1, now_s)).count()
        };
        assert_eq!(of(one, 100) as u64, PER_NETWORK_MAX);
        assert_eq!(of(other, 100) as u64, PER_NETWORK_MAX, "all together are at the end now");
        assert_eq!(of(v6("2001:db8::1"), 100), 0);
        assert_eq!(of(v6("2001:db8:5::1"), 101) as u64, PER_NETWORK_MAX, "the next second");
        assert_eq!(of(one, 105), 0);
        assert_eq!(of(one, 110) as u64, PER_NETWORK_MAX, "the next ten seconds");
    }

    #[test]
    fn a_key_that_came_in_vain_does_not_wait_again_soon() {
        let limits = KeyNews::new().limits;
        assert!(limits.admit(1, 77, 0));
        limits.note_vain(77);
        assert!(!limits.admit(1, 77, 1) && limits.admit(1, 78, 1));
        // Its place is another key's by and by.
        (1_000..5_000).for_each(|key| limits.note_vain(key));
        assert!(limits.admit(1, 77, 2));
    }
}
