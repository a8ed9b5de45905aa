//! The resolver of a node: keeps the addresses of all names that are in use.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use hickory_resolver::proto::rr::Name;
use spillway_tasks::restarted;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{DnsClient, FoundAddresses};
use crate::error::LookupError;
use crate::forbidden::Forbidden;
use crate::host::Host;
use crate::host_port::HostPort;
use crate::hosts_file::HostsFile;
use crate::name::dns_name;
use crate::system::{SystemChange, SystemFiles, SystemState};

/// Limits of the time for which an answer is used, whatever TTL it has.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// First and longest pause after look-ups without an answer.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Shortest time between two look-ups of a name, however often its addresses fail.
const LOOKUPS_APART: Duration = Duration::from_secs(1);
/// Time limit of a name's first look-up. Later ones have [`LOOKUP_MAX`], in the line of the names that
/// failed: so names that no server answers for soon make way for others.
const FIRST_LOOKUP_MAX: Duration = Duration::from_secs(1);
/// Time limit of a look-up, with all its tries.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Most look-ups at a time. Each has up to four sockets.
const LOOKUPS_MAX: usize = 32;
/// Most look-ups at a time of names whose last one failed.
const FAILED_LOOKUPS_MAX: usize = 8;
/// Period of looking for changed files and for names that are no longer used.
const PERIOD: Duration = Duration::from_secs(1);
/// Time for which a name is still looked up after its last use: longer than the pauses of checks, which
/// hold a name only while they run.
const UNUSED_MAX: Duration = Duration::from_secs(15);

/// Resolver of a node; clones share it. The default one knows addresses but no names.
#[derive(Clone, Debug, Default)]
pub struct Resolver(Option<Arc<SharedResolver>>);

#[derive(Debug)]
struct SharedResolver {
    names: Mutex<BTreeMap<String, UsedHost>>,
    hosts_file: ArcSwap<HostsFile>,
    /// `None` if the DNS configuration can't be used.
    client: ArcSwapOption<DnsClient>,
    /// Number of changes of addresses, of all names together.
    version: AtomicU64,
    forbidden: Forbidden,
    lookups: Semaphore,
    failed_lookups: Semaphore,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct UsedHost {
    host: Arc<Host>,
    unused_since: Option<Instant>,
}

impl PartialEq for Resolver {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Resolver {}

impl Resolver {
    /// Starts a resolver. Its tasks run on the caller's runtime until `stop`; they never block.
    #[must_use]
    pub fn start(files: SystemFiles, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let mut state = SystemState::new(files.clone());
        let SystemChange { hosts, client } = state.read(true);
        let shared = Arc::new(SharedResolver {
            names: Mutex::default(),
            hosts_file: ArcSwap::from_pointee(hosts.unwrap_or_default()),
            client: ArcSwapOption::new(client.flatten()),
            version: AtomicU64::new(0),
            forbidden: Forbidden::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            failed_lookups: Semaphore::new(FAILED_LOOKUPS_MAX),
            runtime: Handle::current(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let (mut read, watched) = (Some(state), Arc::clone(&shared));
        shared.spawn(restarted("files of names", move || {
            let state = read.take().unwrap_or_else(|| SystemState::new(files.clone()));
            Arc::clone(&watched).watch(state)
        }));
        Self(Some(shared))
    }

    /// Returns a port of a host, which may be an address. Never waits: the name is looked up in the
    /// background for as long as it is used. Names in the hosts file have their addresses at once.
    #[must_use]
    pub fn endpoint(&self, host: &str, port: u16) -> HostPort {
        let forbidden = self.0.as_ref().map(|shared| shared.forbidden.clone());
        HostPort::new(self.host(host), port, forbidden.unwrap_or_default())
    }

    /// Forbids connections to these addresses of this node, which trust callers on the same machine.
    /// Replaces those of the last call.
    pub fn forbid(&self, own: Vec<SocketAddr>) {
        if let Some(shared) = &self.0 {
            shared.forbidden.set(own);
        }
    }

    /// Returns a number that changes whenever a name has other addresses.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.version.load(Ordering::Relaxed))
    }

    /// Returns the client of the system's name servers; `None` if there is none.
    #[must_use]
    pub fn client(&self) -> Option<Arc<DnsClient>> {
        self.0.as_ref()?.client.load_full()
    }

    /// Returns the addresses that the hosts file has for a name; `None` if the file lacks the name.
    #[must_use]
    pub fn in_hosts_file(&self, host: &str) -> Option<Vec<IpAddr>> {
        self.0.as_ref()?.hosts_file.load().addresses(host)
    }

    fn host(&self, host: &str) -> Arc<Host> {
        if let Ok(address) = host.parse() {
            return Arc::new(Host::fixed(host, Ok(address)));
        }
        let fixed = |error| Arc::new(Host::fixed(host, Err(error)));
        let name = match dns_name(host) {
            Ok(name) => name,
            Err(error) => return fixed(error.into()),
        };
        let Some(shared) = &self.0 else {
            if let Some(addresses) = HostsFile::default().addresses(host) {
                return Arc::new(Host::of_file(host, addresses));
            }
            return fixed(LookupError::NoAnswer("there is no resolver".to_owned()));
        };
        let key = host.to_ascii_lowercase();
        let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = names.entry(key).or_insert_with(|| {
            let host = Arc::new(Host::pending(host));
            shared.take_from_file(&host);
            let (weak, wake) = (Arc::downgrade(&host), host.wake());
            let keeper = Arc::clone(shared);
            shared.spawn(restarted("addresses of a name", move || {
                Arc::clone(&keeper).keep(weak.clone(), Arc::clone(&wake), name.clone())
            }));
            UsedHost { host, unused_since: None }
        });
        Arc::clone(&entry.host)
    }
}

impl SharedResolver {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let task = async move {
            stop.run_until_cancelled(task).await;
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Looks for changed files and unused names, forever.
    async fn watch(self: Arc<Self>, mut state: SystemState) {
        loop {
            sleep(PERIOD).await;
            let SystemChange { hosts, client } = state.read(false);
            let hosts = hosts.filter(|hosts| *hosts != **self.hosts_file.load());
            let has_changed = hosts.is_some() || client.is_some();
            if let Some(hosts) = hosts {
                self.hosts_file.store(Arc::new(hosts));
            }
            if let Some(client) = client {
                self.client.store(client);
            }
            let now = Instant::now();
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.retain(|_, used| used.is_kept(now));
            if has_changed {
                for used in names.values() {
                    // At once: the name's task may wait for others that no server answers for.
                    self.take_from_file(&used.host);
                    used.host.look_up_again();
                }
            }
        }
    }

    /// Keeps the addresses of a host until it is dropped.
    async fn keep(self: Arc<Self>, host: Weak<Host>, wake: Arc<Notify>, name: Name) {
        let mut pace = LookupPace::default();
        loop {
            let Some(pause) = self.look_up(&host, &name, &mut pace).await else { return };
            let asked_at = Instant::now();
            tokio::select! {
                () = sleep_or_wait(pause) => {}
                () = wake.notified() => {
                    let Some(host) = host.upgrade() else { return };
                    if self.hosts_file.load().addresses(host.name()).is_none() {
                        drop(host);
                        sleep_until(asked_at + LOOKUPS_APART).await;
                    }
                }
            }
        }
    }

    /// Looks a host up once. Returns the pause until the next look-up, of which there is none for a
    /// name in the hosts file; `None` once the host is dropped.
    async fn look_up(
        &self,
        host: &Weak<Host>,
        name: &Name,
        pace: &mut LookupPace,
    ) -> Option<Option<Duration>> {
        if self.take_from_file(&*host.upgrade()?) {
            *pace = LookupPace::default();
            return Some(None);
        }
        let lane = if pace.failures == 0 { &self.lookups } else { &self.failed_lookups };
        // The semaphores are never closed.
        let _permit = lane.acquire().await.ok()?;
        let host = host.upgrade()?;
        // The file may have changed in the meantime.
        if self.take_from_file(&host) {
            return Some(None);
        }
        let client = self.client.load_full();
        let limit = if pace.is_first { FIRST_LOOKUP_MAX } else { LOOKUP_MAX };
        let found = match client {
            Some(client) => timeout(limit, Box::pin(client.addresses(name))).await,
            None => {
                let why = "the DNS configuration can't be used".to_owned();
                Ok(Err((LookupError::NoAnswer(why), None)))
            }
        };
        let found = found.unwrap_or_else(|_| {
            Err((LookupError::NoAnswer("the name servers do not answer".to_owned()), None))
        });
        pace.log(&host, found.as_ref().err().map(|(error, _)| error));
        let has_changed = host.take(found.as_ref().map_err(|(error, _)| error.clone()));
        if has_changed {
            self.version.fetch_add(1, Ordering::Relaxed);
        }
        let share = fastrand::f64();
        Some(Some(match found {
            Ok(found) => pace.after_answer(found.ttl, share),
            Err((LookupError::NotFound(_), ttl)) => pace.after_nothing(ttl, share),
            Err(_) => pace.after_failure(share),
        }))
    }

    /// Gives the host the addresses that the hosts file has for it; returns false if it has none.
    fn take_from_file(&self, host: &Host) -> bool {
        let Some(addresses) = self.hosts_file.load().addresses(host.name()) else { return false };
        if host.take(Ok(&FoundAddresses::of_file(addresses))) {
            tracing::debug!(host = host.name(), "the hosts file has its addresses");
            self.version.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

impl UsedHost {
    /// Returns true if the host is used, or was until a moment ago.
    fn is_kept(&mut self, now: Instant) -> bool {
        if Arc::strong_count(&self.host) > 1 {
            self.unused_since = None;
        }
        now.duration_since(*self.unused_since.get_or_insert(now)) < UNUSED_MAX
    }
}

async fn sleep_or_wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Pace of one name's look-ups.
#[derive(Debug)]
struct LookupPace {
    is_first: bool,
    /// Look-ups without an answer since the last one with an answer.
    failures: u32,
    /// True if the log has the failure that lasts.
    is_logged: bool,
}

impl Default for LookupPace {
    fn default() -> Self {
        Self { is_first: true, failures: 0, is_logged: false }
    }
}

impl LookupPace {
    /// Logs the first of several failures, and the answer after them.
    fn log(&mut self, host: &Host, error: Option<&LookupError>) {
        let name = host.name();
        match error {
            // The name is asked for again at once, with more time.
            Some(LookupError::NoAnswer(_)) if self.is_first => {}
            Some(error) if !self.is_logged => {
                self.is_logged = true;
                let consequence = match host.has_address() {
                    true => "its known addresses stay in use",
                    false => "no address is known",
                };
                tracing::warn!(host = name, %error, "look-up failed; {consequence}");
            }
            None if std::mem::take(&mut self.is_logged) => {
                tracing::info!(host = name, "the name resolves again");
            }
            _ => {}
        }
    }

    /// Returns the pause after an answer that is valid for `ttl`. `share`, from 0 to 1, draws it up
    /// to a tenth shorter, so that many names are not looked up at the same moment.
    fn after_answer(&mut self, ttl: Duration, share: f64) -> Duration {
        (self.is_first, self.failures) = (false, 0);
        ttl.clamp(TTL.0, TTL.1).mul_f64(1.0 - 0.1 * share)
    }

    /// Returns the pause after the answer that there is no address.
    fn after_nothing(&mut self, ttl: Option<Duration>, share: f64) -> Duration {
        match ttl {
            Some(ttl) => self.after_answer(ttl, share),
            None => self.after_answer(RETRY.1, share),
        }
    }

    /// Returns the pause after a look-up without an answer: twice the last, drawn between half of
    /// that and all of it. After the first try, which has little time, there is none.
    fn after_failure(&mut self, share: f64) -> Duration {
        let was_first = std::mem::replace(&mut self.is_first, false);
        self.failures = self.failures.saturating_add(1);
        if was_first {
            return Duration::ZERO;
        }
        let doublings = (self.failures - 1).min(8);
        RETRY.0.saturating_mul(1 << doublings).min(RETRY.1).mul_f64(0.5 + 0.5 * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn answers_are_used_for_their_ttl_within_limits() {
        let mut pace = LookupPace::default();
        for (ttl, pause) in [(0, 1), (5, 5), (30, 30), (86_400, 30)] {
            assert_eq!(pace.after_answer(s(ttl), 0.0), s(pause));
            assert_eq!(pace.after_answer(s(ttl), 1.0), s(pause).mul_f64(0.9));
        }
        assert_eq!(pace.after_nothing(Some(s(600)), 0.0), s(30));
        assert_eq!(pace.after_nothing(None, 0.0), s(5), "nothing says how long");
    }

    #[test]
    fn failures_space_the_look_ups_out_and_the_first_try_is_repeated_at_once() {
        let mut pace = LookupPace::default();
        assert_eq!(pace.after_failure(1.0), Duration::ZERO);
        assert_eq!([(); 4].map(|()| pace.after_failure(1.0)), [2, 4, 5, 5].map(s));
        assert_eq!(pace.after_failure(0.0), s(5) / 2);
        pace.after_answer(s(5), 0.0);
        assert_eq!(
            pace.after_failure(1.0),
            s(1),
            "a name that was answered has time at its first try"
        );
    }

    #[tokio::test]
    async fn addresses_and_impossible_names_need_no_resolver() {
        let resolver = Resolver::default();
        let endpoint = resolver.endpoint("::1", 80);
        assert_eq!(endpoint.addresses(), ["[::1]:80".parse().unwrap()]);
        assert_eq!(endpoint.host().error(), None);
        let endpoint = resolver.endpoint("a..b", 80);
        assert!(matches!(endpoint.host().error(), Some(LookupError::Name(_))));
        let endpoint = resolver.endpoint("gpu", 80);
        assert!(matches!(endpoint.host().error(), Some(LookupError::NoAnswer(_))));
    }
}
