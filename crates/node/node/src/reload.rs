//! Reloads a changed config without a restart; a bad one changes nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use spillway_config::{
    AdminListener, AtStart, Config, ConfigErrors, ListenerConfig, ReadFiles, Severity, changes,
};
use spillway_front::access::AccessMode;
use spillway_front::client::{Listener, ServerTls};
use spillway_link::Link;
use spillway_replicas::FileWatch;
use spillway_request::gateway::{ClientState, Switches};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access::KeyBook;
use crate::certificates::{Certificates, shown_identities};
use crate::keeper::KeeperHandle;
use crate::locating::Locating;
use crate::outcomes::Outcomes;

/// Wait after a change: editors and deployment tools touch a file several times in a row, and one
/// reload serves all.
pub(crate) const SETTLE: Duration = Duration::from_millis(200);
/// Wait for a file that has only the beginning of the config in use: it may still be written, and what
/// it lacks so far would be taken out.
const CUT_SETTLE: Duration = Duration::from_secs(2);

/// Parts of the node that a reload changes.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) path: PathBuf,
    /// Text of the file as it was taken into use last.
    pub(crate) text: String,
    /// Files that it names, as they were read last.
    pub(crate) files: ReadFiles,
    /// Settings of that file that take effect at the start.
    pub(crate) at_start: AtStart,
    pub(crate) keeper: KeeperHandle,
    pub(crate) keys: Arc<KeyBook>,
    pub(crate) locating: Locating,
    pub(crate) admin: Option<RunningAdmin>,
    /// Listeners, by the addresses in the config that they were opened by.
    pub(crate) listeners: Vec<(SocketAddr, Arc<Listener>)>,
    pub(crate) clients: Arc<ClientState>,
    pub(crate) switches: Arc<Switches>,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) certificates: Arc<Certificates>,
    /// The link, whose certificates are read again.
    pub(crate) link: Weak<Link>,
}

/// The admin listener that serves.
#[derive(Debug)]
pub(crate) struct RunningAdmin {
    /// Settings at its start.
    pub(crate) config: AdminListener,
    pub(crate) api: spillway_admin::Admin,
    pub(crate) tls: Option<Arc<ServerTls>>,
}

/// Returns the first error of a refused config, and the number of all.
fn refusal(errors: &ConfigErrors) -> String {
    let first = errors.iter().find(|error| error.severity == Severity::Error);
    let counted = errors.counted().unwrap_or_default();
    first.map_or_else(|| counted.clone(), |first| format!("{first}; {counted}"))
}

impl RunningAdmin {
    /// Takes other tokens, names and certificates into use.
    fn replace(&self, config: AdminListener) -> Result<(), String> {
        let mut api = config.api;
        // The open address may differ from the one that the config was checked for.
        api.requires_token |= !self.config.address.ip().to_canonical().is_loopback();
        self.api.replace(api);
        match (&self.tls, &config.tls) {
            (Some(tls), Some(identity)) => tls.replace(identity).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}

impl Reloader {
    /// Reloads on SIGHUP and whenever the file or one that it names changes, until told to stop.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // Capacity 1: a second change while one waits needs no second reload.
        let (changed, mut changes) = mpsc::channel(1);
        let mut watcher = self.watch(&changed);
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => hangup,
            Err(error) => return tracing::warn!(%error, "SIGHUP will not be noticed"),
        };
        // The file may have changed after it was read, and before it was watched.
        if self.is_stale() {
            let _: Result<(), _> = changed.try_send(());
        }
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                _ = changes.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    if self.is_cut() {
                        tokio::time::sleep(CUT_SETTLE).await;
                    }
                    // The file is read only now, so a change in the meantime needs no second
                    // reload.
                    let _: Result<(), _> = changes.try_recv();
                }
                () = stop.cancelled() => return,
            }
            Box::pin(self.reload()).await;
            if watcher.as_ref().is_none_or(|(_, watched)| !watched.iter().eq(self.files.keys())) {
                watcher = self.watch(&changed);
            }
        }
    }

    /// Watches the config and the files that it names.
    fn watch(&self, changed: &mpsc::Sender<()>) -> Option<(FileWatch, Vec<PathBuf>)> {
        let named: Vec<PathBuf> = self.files.keys().cloned().collect();
        let all: Vec<PathBuf> = std::iter::once(&self.path).chain(&named).cloned().collect();
        FileWatch::start(&all, changed.clone())
            .inspect_err(|error| tracing::warn!(%error, "file changes will not be noticed"))
            .ok()
            .map(|watcher| (watcher, named))
    }

    fn is_stale(&self) -> bool {
        Config::load(&self.path)
            .is_ok_and(|config| config.text != self.text || config.files != self.files)
    }

    /// Returns true if the file has only the beginning of the config in use.
    fn is_cut(&self) -> bool {
        let text = std::fs::read_to_string(&self.path);
        text.is_ok_and(|text| text.len() < self.text.len() && self.text.starts_with(&text))
    }

    /// Reloads everything.
    async fn reload(&mut self) {
        let loaded = Config::load(&self.path);
        let result = match loaded {
            Ok(config) => {
                let files = std::mem::replace(&mut self.files, config.files.clone());
                let waiting = self.at_start.changed(&config.at_start);
                let taken = changes(&self.text, &config.text, &waiting);
                let taken = taken + &changed_files(&files, &self.files);
                let waiting = waiting.join(", ");
                let (text, warnings) = (config.text.clone(), config.warnings.clone());
                Box::pin(self.apply(config)).await.map(|()| {
                    self.text = text;
                    log(&warnings);
                    self.tell(&taken, &waiting);
                })
            }
            Err(errors) => {
                log(&errors);
                Err(refusal(&errors))
            }
        };
        self.outcomes.metrics.record_reload(result.is_ok());
        self.outcomes.health.note_config(result.as_ref().err().cloned(), SystemTime::now());
        if let Err(error) = result {
            tracing::error!("config not reloaded, the old one stays in use: {error}");
        }
    }

    /// Logs what a reload took, and what waits for a restart.
    fn tell(&self, taken: &str, waiting: &str) {
        let path = self.path.display();
        match waiting {
            "" => tracing::info!(%path, "config reloaded: {taken}"),
            waiting => {
                tracing::warn!(%path, "config reloaded: {taken}; waits for a restart: {waiting}");
            }
        }
    }

    /// Applies replicas, routes, names, keys, limits of this node, tokens, certificates, location
    /// databases and the like. Settings in [`AtStart`] wait for a restart.
    async fn apply(&self, config: Config) -> Result<(), String> {
        let identities = config.world.identities.clone();
        let places = self.places(&config.listeners);
        // Only these can be replaced: a listener keeps its address, and stays with or without TLS.
        let admin_tls = config.admin.as_ref().filter(|_| self.has_admin_tls());
        let shown = shown_identities(&config.listeners, admin_tls);
        // First: the names of new replicas are looked up later, and a revoked key may not wait for
        // that.
        let budgets = config.access.budgets.clone();
        self.keys.take_config(config.access);
        let overflow = config.world.overflow();
        self.outcomes.usage.set_budgets(budgets, overflow, SystemTime::now());
        self.clients.quotas.set_own(&config.limits);
        self.outcomes.usage.set_prices(config.prices);
        let admin = match (&self.admin, config.admin) {
            (Some(running), Some(admin)) => running.replace(admin),
            _ => Ok(()),
        };
        if let Some(places) = &places {
            self.replace_access(&config.listeners, places);
        }
        self.switches.set_expose_routing(config.gateway.expose_routing);
        // Returned only at the end: a bad database does not keep replicas and certificates back.
        self.outcomes.requests.set_access_log(&config.access_log);
        self.outcomes.set_traces(config.traces.as_deref(), &self.switches);
        let located = self.locating.replace(config.geo).await;
        let cors = config.world.cors.clone();
        self.keeper.reload(config.world).await?;
        self.clients.replace_cors(cors);
        let has_places = places.is_some();
        for ((_, listener), place) in self.listeners.iter().zip(places.into_iter().flatten()) {
            if let Some(identity) = identities.get(place).and_then(Option::as_ref) {
                listener.replace_identity(identity).map_err(|error| error.to_string())?;
            }
        }
        if let Some(link) = self.link.upgrade() {
            link.reload().await.map(drop).map_err(|error| error.to_string())?;
        }
        admin.and(located)?;
        if has_places {
            self.certificates.show(shown);
        }
        Ok(())
    }

    fn has_admin_tls(&self) -> bool {
        self.admin.as_ref().is_some_and(|admin| admin.tls.is_some())
    }

    /// Returns the index of each listener in the config now; `None` if the config has others.
    fn places(&self, configs: &[ListenerConfig]) -> Option<Vec<usize>> {
        let before: Vec<SocketAddr> = self.listeners.iter().map(|(address, _)| *address).collect();
        let after: Vec<SocketAddr> = configs.iter().map(|config| config.address).collect();
        places(&before, &after)
    }

    /// Changes the authentication mode of listeners. The config has to set the mode `none` in so
    /// many words: it must not follow from the removal of the last key.
    fn replace_access(&self, configs: &[ListenerConfig], places: &[usize]) {
        for ((_, listener), place) in self.listeners.iter().zip(places) {
            let access = &configs[*place].access;
            if access.is_said || access.mode != AccessMode::None {
                listener.replace_access(access.mode);
            }
        }
    }
}

/// Logs diagnostics, one a line.
/// Describes the files whose content differs, by their names alone.
fn changed_files(before: &ReadFiles, after: &ReadFiles) -> String {
    let is_other =
        |(path, hash): &(&PathBuf, &u64)| before.get(*path).is_some_and(|it| it != *hash);
    let changed: Vec<String> =
        after.iter().filter(is_other).map(|(path, _)| path.display().to_string()).collect();
    if changed.is_empty() { String::new() } else { format!(", content of {}", changed.join(", ")) }
}

fn log(diagnostics: &ConfigErrors) {
    for one in diagnostics.iter() {
        match one.severity {
            Severity::Error => tracing::error!("{one}"),
            Severity::Warning => tracing::warn!("{one}"),
        }
    }
}

/// Returns the index in `after` of each of `before`, if both hold the same addresses in any order.
/// Listeners that share an address, as all with port 0 do, are distinguished by their order.
fn places(before: &[SocketAddr], after: &[SocketAddr]) -> Option<Vec<usize>> {
    let mut is_taken = vec![false; after.len()];
    let place = |address: &SocketAddr| {
        let mut free =
            after.iter().zip(&is_taken).map(|(other, is_taken)| other == address && !is_taken);
        let place = free.position(|is_it| is_it)?;
        is_taken[place] = true;
        Some(place)
    };
    let places: Option<Vec<usize>> = before.iter().map(place).collect();
    places.filter(|places| places.len() == after.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &[u16], after: &[u16]) -> Option<Vec<usize>> {
        let addresses = |ports: &[u16]| -> Vec<SocketAddr> {
            ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect()
        };
        places(&addresses(before), &addresses(after))
    }

    #[test]
    fn listeners_are_known_by_their_addresses_wherever_they_stand() {
        assert_eq!(of(&[1, 2, 3], &[1, 2, 3]), Some(vec![0, 1, 2]));
        assert_eq!(of(&[1, 2, 3], &[3, 1, 2]), Some(vec![1, 2, 0]));
        assert_eq!(of(&[0, 7, 0], &[7, 0, 0]), Some(vec![1, 0, 2]), "equal ones by their order");
    }

    #[test]
    fn other_listeners_are_not_taken_for_those_there_are() {
        for after in [&[1, 2][..], &[1, 2, 4], &[1, 2, 3, 4], &[1, 1, 2]] {
            assert_eq!(of(&[1, 2, 3], after), None, "{after:?}");
        }
    }
}
