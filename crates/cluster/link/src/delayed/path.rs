//! Simulated paths of packets to an address, which can be changed at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Path to one address. The default path is perfect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Time that each packet takes in one direction.
    pub one_way: Duration,
    /// Largest random addition to that time. Packets stay in order, as in most networks.
    pub jitter: Duration,
    /// Packets of a thousand that are lost, each by chance.
    pub loss_permille: u16,
    /// Packets of a thousand that arrive twice.
    pub double_permille: u16,
    /// Bandwidth of the bottleneck; `None` for no limit.
    pub bits_per_s: Option<u64>,
    /// Bytes that may wait at the bottleneck; further packets are lost.
    pub queue_bytes: usize,
    /// True if no packet arrives.
    pub cut: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            one_way: Duration::ZERO,
            jitter: Duration::ZERO,
            loss_permille: 0,
            double_permille: 0,
            bits_per_s: None,
            queue_bytes: 512 << 10,
            cut: false,
        }
    }
}

impl Path {
    /// Makes a path with this one-way delay and no loss.
    #[must_use]
    pub fn of(one_way: Duration) -> Self {
        Self { one_way, ..Self::default() }
    }

    /// Returns true if the path changes nothing about a packet.
    fn is_perfect(&self) -> bool {
        // Without a bottleneck nothing waits, so the length of the queue does not matter.
        Self { queue_bytes: 0, ..*self } == Self { queue_bytes: 0, ..Self::default() }
    }
}

/// Counts of packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Packets that were passed on, at once or later.
    pub passed: u64,
    /// Packets that were lost by chance or because the queue was full.
    pub lost: u64,
    /// Packets that were lost because the path was cut.
    pub cut: u64,
    /// Packets that arrive twice.
    pub doubled: u64,
}

/// Paths from one node to all addresses. Clones of the `Arc` are handles: a change holds from the
/// next packet on.
pub struct Paths {
    state: Mutex<PathState>,
}

struct PathState {
    random: fastrand::Rng,
    paths: BTreeMap<SocketAddr, Road>,
    counts: PathCounts,
}

struct Road {
    path: Path,
    /// Time when the bottleneck has passed on all waiting packets.
    free_at: Option<Instant>,
    /// Arrival of the last packet, which no later packet overtakes.
    last_at: Option<Instant>,
}

impl Paths {
    /// Makes perfect paths to all addresses; random numbers are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let state = PathState {
            random: fastrand::Rng::with_seed(seed),
            paths: BTreeMap::new(),
            counts: PathCounts::default(),
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Sets the path to an address.
    pub fn set(&self, to: SocketAddr, path: Path) {
        let mut state = self.lock();
        let road = state.paths.entry(to).or_insert(Road { path, free_at: None, last_at: None });
        road.path = path;
    }

    /// Changes the path to an address.
    pub fn change(&self, to: SocketAddr, change: impl FnOnce(&mut Path)) {
        let mut path = self.path(to);
        change(&mut path);
        self.set(to, path);
    }

    /// Returns the path to an address.
    #[must_use]
    pub fn path(&self, to: SocketAddr) -> Path {
        self.lock().paths.get(&to).map(|road| road.path).unwrap_or_default()
    }

    /// Cuts the path to an address, or restores it. The way back belongs to the other node.
    pub fn cut(&self, to: SocketAddr, cut: bool) {
        self.change(to, |path| path.cut = cut);
    }

    /// Returns the counts of packets so far.
    #[must_use]
    pub fn counts(&self) -> PathCounts {
        self.lock().counts
    }

    /// Decides the fate of a packet of `bytes` bytes that is sent at `now`.
    pub(super) fn fate(&self, to: SocketAddr, bytes: usize, now: Instant) -> Fate {
        self.lock().fate(to, bytes, now)
    }

    fn lock(&self) -> MutexGuard<'_, PathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The packet is sent at once, as if there were no simulation.
    AtOnce,
    /// The packet is sent at that time, so many times.
    Then(Instant, u8),
    /// The packet is lost.
    Lost,
}

impl PathState {
    fn fate(&mut self, to: SocketAddr, bytes: usize, now: Instant) -> Fate {
        // A dual-stack socket writes IPv4 addresses in the form of IPv6.
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let Some(road) = self.paths.get_mut(&to) else { return Fate::AtOnce };
        let path = road.path;
        if path.cut {
            self.counts.cut += 1;
            return Fate::Lost;
        }
        // A path that has just become perfect must not let packets overtake others.
        if path.is_perfect() && road.last_at.is_none_or(|last| last <= now) {
            self.counts.passed += 1;
            return Fate::AtOnce;
        }
        let permille = |random: &mut fastrand::Rng, chance: u16| random.u16(0..1_000) < chance;
        if permille(&mut self.random, path.loss_permille) {
            self.counts.lost += 1;
            return Fate::Lost;
        }
        let Some(passed_at) = road.pass(bytes, now) else {
            self.counts.lost += 1;
            return Fate::Lost;
        };
        let at = passed_at + path.one_way + path.jitter.mul_f64(self.random.f64());
        // Jitter never changes the order of packets.
        let at = road.last_at.map_or(at, |last| at.max(last));
        road.last_at = Some(at);
        self.counts.passed += 1;
        let doubled = permille(&mut self.random, path.double_permille);
        self.counts.doubled += u64::from(doubled);
        Fate::Then(at, 1 + u8::from(doubled))
    }
}

impl Road {
    /// Returns the time when the bottleneck has passed a packet on; `None` if its queue is full.
    fn pass(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let Some(bits_per_s) = self.path.bits_per_s else { return Some(now) };
        let rate = bits_per_s.max(1) as f64 / 8.0;
        let begin = self.free_at.map_or(now, |free| free.max(now));
        let waiting_bytes = begin.saturating_duration_since(now).as_secs_f64() * rate;
        if waiting_bytes > self.path.queue_bytes as f64 {
            return None;
        }
        let done = begin + Duration::from_secs_f64(bytes as f64 / rate);
        self.free_at = Some(done);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> SocketAddr {
        "127.0.0.1:4000".parse().unwrap()
    }

    fn arrivals(path: Path, packets: usize, gap: Duration) -> (Vec<Duration>, PathCounts) {
        let paths = Paths::new(3);
        paths.set(address(), path);
        let start = Instant::now();
        let mut times = Vec::new();
        for packet in 0..packets {
            let now = start + gap * packet as u32;
            if let Fate::Then(at, copies) = paths.fate(address(), 1_000, now) {
                times.extend((0..copies).map(|_| at - now));
            }
        }
        (times, paths.counts())
    }

    #[test]
    fn packets_take_their_time_and_stay_in_order() {
        let path = Path { jitter: Duration::from_millis(5), ..Path::of(Duration::from_millis(20)) };
        let paths = Paths::new(1);
        paths.set(address(), path);
        let start = Instant::now();
        let mut last = start;
        for packet in 0..1_000 {
            let now = start + Duration::from_micros(100 * packet);
            let Fate::Then(at, 1) = paths.fate(address(), 1_000, now) else { panic!("lost") };
            let took = at - now;
            assert!((20..=26).contains(&took.as_millis()), "{took:?}");
            assert!(at >= last, "overtaken");
            last = at;
        }
    }

    #[test]
    fn loss_and_doubles_come_as_often_as_said() {
        let path = Path { loss_permille: 200, double_permille: 100, ..Path::default() };
        let (_, counts) = arrivals(path, 10_000, Duration::from_millis(1));
        assert!((1_850..2_150).contains(&counts.lost), "{counts:?}");
        assert!((650..950).contains(&counts.doubled), "{counts:?}");
        assert_eq!(counts.passed + counts.lost, 10_000);
    }

    #[test]
    fn a_narrow_place_passes_on_its_rate_and_loses_what_does_not_fit() {
        // 8 Mbit/s are 1 kB a millisecond; the queue holds 10 kB and the packet that passes.
        let path = Path { bits_per_s: Some(8_000_000), queue_bytes: 10_000, ..Path::default() };
        let (times, counts) = arrivals(path, 100, Duration::ZERO);
        assert_eq!((times.len(), counts.lost), (11, 89));
        assert_eq!(times[10].as_millis(), 11);
        let (times, counts) = arrivals(path, 100, Duration::from_millis(1));
        assert_eq!((times.len(), counts.lost), (100, 0));
    }

    #[test]
    fn a_cut_way_passes_nothing_until_it_is_mended() {
        let paths = Paths::new(1);
        let now = Instant::now();
        assert_eq!(paths.fate(address(), 100, now), Fate::AtOnce);
        paths.cut(address(), true);
        assert_eq!(paths.fate(address(), 100, now), Fate::Lost);
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:4000".parse().unwrap();
        assert_eq!(paths.fate(mapped, 100, now), Fate::Lost, "the same address in another form");
        paths.cut(address(), false);
        assert_eq!(paths.fate(address(), 100, now), Fate::AtOnce);
        assert_eq!(paths.counts().cut, 2);
    }
}
