//! Proxies and gateways of others, measured beside Spillway. Each gets a config as its users write
//! it, with the answers of nginx's config here: as many workers, kept connections on both sides, no
//! access log, nothing buffered.

mod envoy;
mod haproxy;
mod launch;
mod litellm;
mod router;

use std::{fs, net::SocketAddr, path::Path};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use spillway_harness::Process;

use self::{launch::Launch, router::Router};
use crate::{
    client::BenchReply,
    load::LoadSpec,
    proxy::{Proxy, Site, free_address},
};

/// Script that installs all peers into the folder it is given.
const SCRIPT: &str = "crates/lab/bench/peers.sh";

/// Policy of both routers, by their name for it.
const ROUND_ROBIN: &str = "round_robin";

/// Length of LiteLLM's warm-up and window as a multiple of the others'. It answers so few requests in
/// a second that a window of others might end before the first.
const LITELLM_WINDOW_FACTOR: u32 = 4;

/// Proxy or gateway of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// HAProxy with least connections.
    Haproxy,
    /// Envoy with least requests.
    Envoy,
    /// Router of vLLM in turn.
    VllmRouter,
    /// Router of SGLang in turn.
    SglangRouter,
    /// Router of SGLang by what its replicas have cached.
    SglangRouterCacheAware,
    /// LiteLLM with its default policy.
    Litellm,
}

impl Peer {
    /// Returns the name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Haproxy => "HAProxy",
            Self::Envoy => "Envoy",
            Self::VllmRouter => "vllm-router",
            Self::SglangRouter => "sglang-router",
            Self::SglangRouterCacheAware => "sglang-router, cache aware",
            Self::Litellm => "LiteLLM",
        }
    }

    /// Returns `load` as this peer can take it.
    pub(crate) fn load(self, load: LoadSpec) -> LoadSpec {
        match self {
            Self::Litellm => LoadSpec {
                warm_up: load.warm_up * LITELLM_WINDOW_FACTOR,
                window: load.window * LITELLM_WINDOW_FACTOR,
                // It writes events of its own, so their number is not the backend's.
                reply: match load.reply {
                    BenchReply::Stream { .. } => BenchReply::Stream { tokens: None },
                    BenchReply::Whole => BenchReply::Whole,
                },
                ..load
            },
            Self::Haproxy
            | Self::Envoy
            | Self::VllmRouter
            | Self::SglangRouter
            | Self::SglangRouterCacheAware => load,
        }
    }

    /// Returns the name of its program in the folder `bin`.
    fn program(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::VllmRouter => "vllm-router",
            Self::SglangRouter | Self::SglangRouterCacheAware => "sglang-router",
            Self::Litellm => "litellm",
        }
    }

    /// Checks that it is installed in `folder`.
    ///
    /// # Errors
    /// Returns an error that names the script if it is not.
    pub(crate) fn check_installed(self, folder: &Path) -> anyhow::Result<()> {
        let (program, folder_shown) = (folder.join("bin").join(self.program()), folder.display());
        anyhow::ensure!(
            program.is_file(),
            "no {} in {folder_shown}: `{SCRIPT} {folder_shown}` installs it",
            self.title()
        );
        Ok(())
    }

    fn launch(self, address: SocketAddr, site: Site<'_>) -> anyhow::Result<Launch> {
        let vllm = Router { policy: ROUND_ROBIN, command: None, log_level: "warning" };
        let sglang = |policy| Router { policy, command: Some("launch"), log_level: "warn" };
        let router = |router: Router| -> anyhow::Result<Launch> {
            Ok(router.launch(address, free_address()?, site.backends))
        };
        match self {
            Self::Haproxy => Ok(haproxy::launch(address, site.backends)),
            Self::Envoy => Ok(envoy::launch(address, site.backends)),
            Self::VllmRouter => router(vllm),
            Self::SglangRouter => router(sglang(ROUND_ROBIN)),
            Self::SglangRouterCacheAware => router(sglang("cache_aware")),
            Self::Litellm => Ok(litellm::launch(address, site.backends)),
        }
    }
}

/// Starts `peer` from the `installed` folder, with its config and log in the site's folder.
pub(crate) fn start_peer(peer: Peer, installed: &Path, site: Site<'_>) -> anyhow::Result<Proxy> {
    let name = peer.title().replace([',', ' '], "-");
    let folder = site.folder.join(&name);
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let launch = peer.launch(address, site)?;
    if let Some((file, text)) = &launch.config {
        fs::write(folder.join(file), text)?;
    }
    // The peer runs in its own folder, so a relative path of its program would lead nowhere.
    let program = fs::canonicalize(installed).context("folder of the peers")?;
    let command = launch.command(&program.join("bin").join(peer.program()), &folder);
    Ok(Proxy { address, process: Process::guarded(&name, &command, &folder.join("stderr.log"))? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn litellm_has_longer_windows_and_may_write_any_number_of_events() {
        let second = Duration::from_secs(1);
        let load = Scenario::SsePaced.load(second, 2 * second);
        let unchanged = Peer::Envoy.load(load.clone());
        assert_eq!((unchanged.window, unchanged.reply), (2 * second, load.reply));
        let longer = Peer::Litellm.load(load);
        assert_eq!((longer.warm_up, longer.window), (4 * second, 8 * second));
        assert_eq!(longer.reply, BenchReply::Stream { tokens: None });
        let whole = Peer::Litellm.load(Scenario::Rps1k.load(second, second));
        assert_eq!(whole.reply, BenchReply::Whole);
    }

    #[test]
    fn a_missing_peer_names_the_script_that_installs_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = Peer::VllmRouter.check_installed(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no vllm-router in"), "{error}");
        assert!(error.contains("crates/lab/bench/peers.sh"), "{error}");
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::write(folder.path().join("bin/vllm-router"), "").unwrap();
        Peer::VllmRouter.check_installed(folder.path()).unwrap();
    }
}
