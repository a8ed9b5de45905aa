//! A changed config takes effect without a restart; a bad one changes nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use spillway_link::Link;
use spillway_proxy::{AccessMode, Listener, ServerTls};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access::KeyBook;
use crate::config::{AdminListener, AtStart, Config, ListenerConfig};
use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;

/// Editors and deployment tools touch a file several times in a row: one reload serves all.
const SETTLE: Duration = Duration::from_millis(200);

/// What a reload acts on.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) path: PathBuf,
    /// What the file held when the node was started from it.
    pub(crate) text: String,
    /// What it held that takes effect at the start.
    pub(crate) at_start: AtStart,
    pub(crate) keeper: KeeperHandle,
    pub(crate) keys: Arc<KeyBook>,
    pub(crate) admin: Option<RunningAdmin>,
    /// By the addresses in the config that they were opened by.
    pub(crate) listeners: Vec<(SocketAddr, Arc<Listener>)>,
    pub(crate) feedback: Arc<Feedback>,
    /// Its certificates are read again.
    pub(crate) link: Option<Weak<Link>>,
}

/// The admin listener that serves.
#[derive(Debug)]
pub(crate) struct RunningAdmin {
    /// As it was started.
    pub(crate) config: AdminListener,
    pub(crate) api: spillway_admin::Admin,
    pub(crate) tls: Option<Arc<ServerTls>>,
}

impl RunningAdmin {
    /// Takes other tokens, names and certificates into use.
    fn replace(&self, config: AdminListener) -> Result<(), String> {
        let mut api = config.api;
        // The address that is open may be another than the one that the config was checked for.
        api.requires_token |= !self.config.address.ip().to_canonical().is_loopback();
        self.api.replace(api);
        match (&self.tls, &config.tls) {
            (Some(tls), Some(identity)) => tls.replace(identity).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}

impl Reloader {
    /// Reloads on SIGHUP and whenever the file or one with tokens changes, until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // One place: a second change while one waits needs no second reload.
        let (changed, mut changes) = mpsc::channel(1);
        let files = self.admin.as_ref().map(|admin| admin.config.files.clone()).unwrap_or_default();
        let mut watcher = self.watch(files, &changed);
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => hangup,
            Err(error) => return tracing::warn!(%error, "SIGHUP will not be noticed"),
        };
        // Changed after it was read, and before anybody watched.
        if self.is_stale() {
            let _: Result<(), _> = changed.try_send(());
        }
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                _ = changes.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    let _: Result<(), _> = changes.try_recv();
                }
                () = stop.cancelled() => return,
            }
            if let Some(files) = self.reload().await
                && watcher.as_ref().is_none_or(|(_, watched)| *watched != files)
            {
                watcher = self.watch(files, &changed);
            }
        }
    }

    /// Watches the config and these files.
    fn watch(
        &self,
        files: Vec<PathBuf>,
        changed: &mpsc::Sender<()>,
    ) -> Option<(RecommendedWatcher, Vec<PathBuf>)> {
        let all: Vec<PathBuf> = std::iter::once(&self.path).chain(&files).cloned().collect();
        watch(all, changed.clone())
            .inspect_err(|error| tracing::warn!(%error, "file changes will not be noticed"))
            .ok()
            .map(|watcher| (watcher, files))
    }

    fn is_stale(&self) -> bool {
        let is_other = |text: String| text != self.text;
        let Some(admin) = &self.admin else {
            return std::fs::read_to_string(&self.path).is_ok_and(is_other);
        };
        let now =
            Config::load(&self.path).ok().and_then(|config| Some((config.text, config.admin?)));
        now.is_some_and(|(text, now)| is_other(text) || now.api.tokens != admin.api.config().tokens)
    }

    /// Reloads everything. Returns the files with tokens, if the config could be read.
    async fn reload(&self) -> Option<Vec<PathBuf>> {
        let loaded = Config::load(&self.path);
        let files = loaded.as_ref().ok().map(|config| {
            config.admin.as_ref().map(|admin| admin.files.clone()).unwrap_or_default()
        });
        let mut waiting = String::new();
        let result = match loaded {
            Ok(config) => {
                waiting = self.at_start.changed(&config.at_start).join(", ");
                self.apply(config).await
            }
            Err(error) => Err(error.to_string()),
        };
        self.feedback.metrics.record_reload(result.is_ok());
        match result {
            Ok(()) if !waiting.is_empty() => tracing::warn!(
                path = %self.path.display(),
                waiting,
                "config reloaded, but some changes wait for a restart"
            ),
            Ok(()) => tracing::info!(path = %self.path.display(), "config reloaded"),
            Err(error) => tracing::error!("config not reloaded, the old one stays in use: {error}"),
        }
        files
    }

    /// Replicas, routes, aliases, keys, tokens and certificates change; everything else waits for a
    /// restart.
    async fn apply(&self, config: Config) -> Result<(), String> {
        let identities = config.world.identities.clone();
        let places = self.places(&config.listeners);
        // First: the names of new replicas are looked up, and a revoked key may not wait for that.
        self.keys.take_config(config.access);
        self.feedback.gateway.quotas().set_own(&config.limits);
        let admin = match (&self.admin, config.admin) {
            (Some(running), Some(admin)) => running.replace(admin),
            _ => Ok(()),
        };
        if let Some(places) = &places {
            self.replace_access(&config.listeners, places);
        }
        self.feedback.gateway.set_expose_routing(config.gateway.expose_routing);
        self.keeper.reload(config.world).await?;
        for ((_, listener), place) in self.listeners.iter().zip(places.into_iter().flatten()) {
            if let Some(identity) = identities.get(place).and_then(Option::as_ref) {
                listener.replace_identity(identity).map_err(|error| error.to_string())?;
            }
        }
        if let Some(link) = self.link.as_ref().and_then(Weak::upgrade) {
            link.reload().await.map(drop).map_err(|error| error.to_string())?;
        }
        admin
    }

    /// Where each listener stands in the config now; `None` if the config has others.
    fn places(&self, configs: &[ListenerConfig]) -> Option<Vec<usize>> {
        let before: Vec<SocketAddr> = self.listeners.iter().map(|(address, _)| *address).collect();
        let after: Vec<SocketAddr> = configs.iter().map(|config| config.address).collect();
        places(&before, &after)
    }

    /// Listeners change how they find out who asks. That keys are asked for no more has to be said:
    /// it must not follow from the last key's being removed.
    fn replace_access(&self, configs: &[ListenerConfig], places: &[usize]) {
        for ((_, listener), place) in self.listeners.iter().zip(places) {
            let access = &configs[*place].access;
            if access.is_said || access.mode != AccessMode::None {
                listener.replace_access(access.mode);
            }
        }
    }
}

/// Where each of `before` is in `after`, if these are the same addresses in whatever order. Those that
/// share an address, as all that ask for any free port do, are told apart by their order.
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

/// Watches the files' folders: many tools replace a file instead of writing to it.
fn watch(files: Vec<PathBuf>, changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let folder = |file: &Path| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or_else(|| Path::new(".")).to_owned()
    };
    let folders: BTreeSet<PathBuf> = files.iter().map(|file| folder(file)).collect();
    let names: BTreeSet<OsString> =
        files.iter().filter_map(|file| file.file_name()).map(ToOwned::to_owned).collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let is_named = |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
        let is_ours = event.paths.iter().any(is_named);
        // Kubernetes swaps a link beside the file instead of the file.
        let is_link = event.paths.iter().any(|path| path.ends_with("..data"));
        if !event.kind.is_access() && (is_ours || is_link) {
            // A change that waits already covers this one.
            let _: Result<(), _> = changed.try_send(());
        }
    })?;
    for folder in folders {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
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
