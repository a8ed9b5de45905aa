//! Replicas that were discovered rather than listed in the config.

use std::collections::BTreeSet;
use std::path::Path;

use spillway_config::{
    CareDefaults, DiscoveryConfig, DiscoveryOrigin, ReplicaConfig, read_replicas,
};
use spillway_replicas::discovery::{DiscoveredEndpoint, DnsSource, EmptyGrace, FileSource};
use spillway_resolver::Resolver;
use spillway_types::{ReplicaName, to_record_name};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::discovery_watch::{DiscoveryFeed, DiscoveryWatch};

/// All discoveries, with the replicas that they have found.
#[derive(Debug)]
pub(crate) struct Discovered {
    sources: Vec<DiscoverySource>,
    changes: mpsc::Receiver<()>,
    changed: mpsc::Sender<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
    resolver: Resolver,
    seed: u64,
}

/// A discovery and its feed.
#[derive(Debug)]
struct DiscoverySource {
    config: DiscoveryConfig,
    feed: DiscoveryFeed,
    /// Replicas made of the feed's last value.
    replicas: Vec<ReplicaConfig>,
    /// Reason for which the feed's last value can't be used.
    failure: Option<String>,
    /// True if the feed's last value lists no replica.
    is_empty: bool,
    grace: EmptyGrace,
    /// Ends the discovery once it is no longer in the config.
    stop: CancellationToken,
}

impl Discovered {
    /// Starts all sources of a config. The seed spreads their look-ups.
    pub(super) fn start(
        configs: &[DiscoveryConfig],
        resolver: &Resolver,
        seed: u64,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        // Capacity 1: a second change while one waits needs no second look.
        let (changed, changes) = mpsc::channel(1);
        let (tasks, stop, resolver) = (tasks.clone(), stop.clone(), resolver.clone());
        let sources = Vec::new();
        let mut discovered = Self { sources, changes, changed, tasks, stop, resolver, seed };
        discovered.reconcile(configs);
        discovered
    }

    /// Takes over another config. A discovery that asks for the same goes on and keeps what it found,
    /// even if its replicas get other settings.
    pub(super) fn reconcile(&mut self, configs: &[DiscoveryConfig]) {
        let mut before = std::mem::take(&mut self.sources);
        for config in configs {
            let kept = before.iter().position(|source| source.config.asks_the_same(config));
            let source = match kept {
                Some(index) => {
                    let mut source = before.swap_remove(index);
                    source.config = config.clone();
                    self.look(&mut source);
                    source
                }
                None => self.start_source(config),
            };
            self.sources.push(source);
        }
        for ended in before {
            ended.stop.cancel();
        }
    }

    /// Returns the names of the replicas of discoveries that this config no longer has.
    pub(super) fn removed_by(&self, configs: &[DiscoveryConfig]) -> BTreeSet<ReplicaName> {
        let is_removed =
            |source: &&DiscoverySource| !configs.iter().any(|it| it.name == source.config.name);
        let removed = self.sources.iter().filter(is_removed);
        removed.flat_map(|it| &it.replicas).map(|it| it.spec.name.clone()).collect()
    }

    /// Returns when a discovery has found a change.
    pub(super) async fn changed(&mut self) {
        // Never ends: a sender is kept here.
        let _: Option<()> = self.changes.recv().await;
        let mut sources = std::mem::take(&mut self.sources);
        sources.iter_mut().for_each(|source| self.look(source));
        self.sources = sources;
    }

    /// Returns all replicas found.
    pub(super) fn replicas(&self) -> impl Iterator<Item = ReplicaConfig> {
        self.sources.iter().flat_map(|source| source.replicas.iter().cloned())
    }

    /// Returns a view of each source.
    pub(super) fn watches(&self) -> Vec<DiscoveryWatch> {
        self.sources.iter().map(DiscoverySource::watch).collect()
    }

    fn start_source(&self, config: &DiscoveryConfig) -> DiscoverySource {
        let stop = self.stop.child_token();
        let (feed, replicas) = match &config.source {
            DiscoveryOrigin::Dns { question, resolver, .. } => {
                let source = DnsSource {
                    resolver: *resolver,
                    system: self.resolver.clone(),
                    empty_grace: config.empty_grace,
                    ..DnsSource::new(question.clone())
                };
                let endpoints = source.watch(&self.tasks, self.seed, stop.clone());
                self.tell_changes(endpoints.clone(), &stop);
                (DiscoveryFeed::Dns(endpoints), Vec::new())
            }
            DiscoveryOrigin::File { path, replicas } => {
                let text = FileSource::new(path.clone()).watch(&self.tasks, stop.clone());
                self.tell_changes(text.clone(), &stop);
                (DiscoveryFeed::File(text), may_vanish(replicas.clone()))
            }
        };
        let grace = EmptyGrace::new(config.empty_grace);
        DiscoverySource {
            config: config.clone(),
            feed,
            replicas,
            failure: None,
            is_empty: false,
            grace,
            stop,
        }
    }

    /// Takes over a source's value. If the source is empty, looks again when its grace ends.
    fn look(&self, source: &mut DiscoverySource) {
        let Some(until) = source.look(Instant::now()) else { return };
        let (changed, stop) = (self.changed.clone(), source.stop.clone());
        self.tasks.spawn(async move {
            stop.run_until_cancelled(sleep_until(until)).await;
            // A change that waits already covers this one.
            let _: Result<(), _> = changed.try_send(());
        });
    }

    fn tell_changes<T: Send + Sync + 'static>(
        &self,
        mut feed: watch::Receiver<T>,
        stop: &CancellationToken,
    ) {
        let (changed, stop) = (self.changed.clone(), stop.clone());
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    told = feed.changed() => if told.is_err() { return },
                    () = stop.cancelled() => return,
                }
                feed.mark_unchanged();
                // A change that waits already covers this one.
                let _: Result<(), _> = changed.try_send(());
            }
        });
    }
}

impl DiscoverySource {
    /// Makes replicas of the feed's current value; a value that can't be read changes nothing.
    /// Returns the time for the next look, if replicas that the value lacks stay until then.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        match (&mut self.feed, &self.config.source) {
            (DiscoveryFeed::Dns(endpoints), DiscoveryOrigin::Dns { template, .. }) => {
                // Nothing was found out yet, which must not look like a name without addresses.
                let endpoints = endpoints.borrow_and_update().found.clone()?;
                let name = &self.config.name;
                self.replicas =
                    endpoints.iter().map(|endpoint| found(name, template, endpoint)).collect();
                None
            }
            (DiscoveryFeed::File(text), DiscoveryOrigin::File { path, .. }) => {
                // Until the first reading, the replicas that the config's reader found stay.
                let text = text.borrow_and_update().found.clone()?;
                let read = read_listed(&text, path, &self.config.defaults);
                self.take_listed(read, now)
            }
            // A source of another kind is another discovery.
            _ => None,
        }
    }

    /// Takes over the replicas of a file.
    fn take_listed(
        &mut self,
        read: Result<Vec<ReplicaConfig>, String>,
        now: Instant,
    ) -> Option<Instant> {
        let replicas = match read {
            Ok(replicas) => replicas,
            Err(error) => {
                // The value may be looked at again because another discovery has changed.
                if self.failure.as_ref() != Some(&error) {
                    tracing::error!("replicas not taken over, the old ones stay: {error}");
                }
                self.failure = Some(error);
                return None;
            }
        };
        self.failure = None;
        self.is_empty = replicas.is_empty();
        if !replicas.is_empty() {
            self.grace.note_some();
        } else if !self.replicas.is_empty() {
            let until = self.grace.note_empty(now);
            if now < until {
                let name = self.config.name.as_str();
                let grace_ms = until.duration_since(now).as_millis();
                tracing::warn!(
                    discovery = name,
                    grace_ms,
                    "its file is empty; its replicas stay for now"
                );
                return Some(until);
            }
        }
        self.replicas = replicas;
        None
    }

    fn watch(&self) -> DiscoveryWatch {
        DiscoveryWatch {
            name: self.config.name.clone(),
            source: self.config.source.to_string(),
            replicas: self.replicas.len(),
            failure: self.failure.clone(),
            is_empty: self.is_empty,
            feed: self.feed.clone(),
        }
    }
}

/// Reads a file of replicas. Replicas may be missing for a moment: the process that writes the file
/// may be about to write more.
fn read_listed(
    text: &str,
    path: &Path,
    defaults: &CareDefaults,
) -> Result<Vec<ReplicaConfig>, String> {
    read_replicas(text, path, defaults).map(may_vanish).map_err(|error| error.to_string())
}

/// Marks the replicas of a file.
fn may_vanish(mut replicas: Vec<ReplicaConfig>) -> Vec<ReplicaConfig> {
    replicas.iter_mut().for_each(|replica| replica.may_vanish = true);
    replicas
}

/// Returns a replica like the template, at this endpoint.
fn found(
    discovery: &str,
    template: &ReplicaConfig,
    endpoint: &DiscoveredEndpoint,
) -> ReplicaConfig {
    let DiscoveredEndpoint { host, address, port, weight } = endpoint;
    let mut config = template.clone();
    config.may_vanish = true;
    let place = address.map_or_else(|| host.clone(), |address| address.to_string());
    let spec = &mut config.spec;
    spec.name = name_of(&format!("{discovery}-{place}:{port}"));
    if let Some(tls) = &mut spec.tls {
        // Certificates are for the name, while connections go to the address.
        tls.server_name.get_or_insert_with(|| host.trim_end_matches('.').to_owned());
    }
    spec.host = place;
    spec.port = *port;
    // SRV weights go up to 65,535, ours to 1,000.
    spec.weight = spec.weight.saturating_mul(*weight).clamp(1, 1000);
    config
}

/// Returns the name of a replica that was found: one that all nodes can agree on, the same at each
/// start.
fn name_of(found: &str) -> ReplicaName {
    ReplicaName::from(to_record_name(found, crc32c::crc32c(found.as_bytes())))
}
