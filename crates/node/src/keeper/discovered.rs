//! Replicas that were discovered rather than listed in the config.

use std::path::PathBuf;
use std::sync::Arc;

use spillway_config::{CareDefaults, DiscoveryConfig, Found, ReplicaConfig, read_replicas};
use spillway_replicas::discovery::{DiscoveredEndpoint, DnsSource, FileSource};
use spillway_types::ReplicaName;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// All discoveries, with the replicas that they have found.
#[derive(Debug)]
pub(crate) struct Discovered {
    sources: Vec<DiscoverySource>,
    changes: mpsc::Receiver<()>,
    changed: mpsc::Sender<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
    seed: u64,
}

/// A discovery and its feed.
#[derive(Debug)]
struct DiscoverySource {
    config: DiscoveryConfig,
    feed: Feed,
    /// Replicas made of the feed's last value.
    replicas: Vec<ReplicaConfig>,
    /// Ends the discovery once it is no longer in the config.
    stop: CancellationToken,
}

#[derive(Debug)]
enum Feed {
    Dns {
        template: Box<ReplicaConfig>,
        endpoints: watch::Receiver<Option<Vec<DiscoveredEndpoint>>>,
    },
    File {
        path: PathBuf,
        defaults: Box<CareDefaults>,
        text: watch::Receiver<Option<Arc<str>>>,
    },
}

impl Discovered {
    /// Starts all sources of a config.
    pub(super) fn start(
        configs: &[DiscoveryConfig],
        tasks: &TaskTracker,
        stop: &CancellationToken,
        seed: u64,
    ) -> Self {
        // Capacity 1: a second change while one waits needs no second look.
        let (changed, changes) = mpsc::channel(1);
        let (tasks, stop) = (tasks.clone(), stop.clone());
        let mut discovered = Self { sources: Vec::new(), changes, changed, tasks, stop, seed };
        discovered.reconcile(configs);
        discovered
    }

    /// Takes over another config. Discoveries that did not change go on, and keep what they found.
    pub(super) fn reconcile(&mut self, configs: &[DiscoveryConfig]) {
        let mut before = std::mem::take(&mut self.sources);
        for config in configs {
            let kept = before.iter().position(|source| source.config == *config);
            let source = match kept {
                Some(index) => before.swap_remove(index),
                None => self.start_source(config),
            };
            self.sources.push(source);
        }
        for ended in before {
            ended.stop.cancel();
        }
    }

    /// Returns when a discovery has found a change.
    pub(super) async fn changed(&mut self) {
        // Never ends: a sender is kept here.
        let _: Option<()> = self.changes.recv().await;
        for source in &mut self.sources {
            source.look();
        }
    }

    /// Returns all replicas found.
    pub(super) fn replicas(&self) -> impl Iterator<Item = ReplicaConfig> {
        self.sources.iter().flat_map(|source| source.replicas.iter().cloned())
    }

    fn start_source(&self, config: &DiscoveryConfig) -> DiscoverySource {
        let stop = self.stop.child_token();
        let (feed, replicas) = match &config.source {
            Found::Dns { question, resolver, empty_grace, template } => {
                let source = DnsSource {
                    resolver: *resolver,
                    empty_grace: *empty_grace,
                    ..DnsSource::new(question.clone())
                };
                let endpoints = source.watch(&self.tasks, self.seed, stop.clone());
                self.tell_changes(endpoints.clone(), &stop);
                (Feed::Dns { template: template.clone(), endpoints }, Vec::new())
            }
            Found::File { path, replicas } => {
                let text = FileSource::new(path.clone()).watch(&self.tasks, stop.clone());
                self.tell_changes(text.clone(), &stop);
                let defaults = Box::new(config.defaults.clone());
                (Feed::File { path: path.clone(), defaults, text }, replicas.clone())
            }
        };
        DiscoverySource { config: config.clone(), feed, replicas, stop }
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
    fn look(&mut self) {
        match &mut self.feed {
            Feed::Dns { template, endpoints } => {
                // Nothing was found out yet, which must not look like a name without addresses.
                let Some(endpoints) = endpoints.borrow_and_update().clone() else { return };
                let name = &self.config.name;
                self.replicas =
                    endpoints.iter().map(|endpoint| found(name, template, endpoint)).collect();
            }
            Feed::File { path, defaults, text } => {
                // Until the first reading, the replicas that the config's reader found stay.
                let Some(text) = text.borrow_and_update().clone() else { return };
                match read_replicas(&text, path, defaults) {
                    Ok(replicas) => self.replicas = replicas,
                    Err(error) => {
                        tracing::error!("replicas not taken over, the old ones stay: {error}");
                    }
                }
            }
        }
    }
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
    spec.name = ReplicaName::from(format!("{discovery}-{place}:{port}"));
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
