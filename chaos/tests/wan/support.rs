//! Helpers for tests of real networks.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use spillway_chaos::wan::{ControlAnswer, ControlCommand, WanNetwork, WanStats, config};

/// Limit for steps that take almost no time; the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Returns false, with a note, without the rights to make networks. Panics in CI, which must have
/// them.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("CI").is_none(), "these tests need root, and CI must run them");
        #[expect(
            clippy::print_stderr,
            reason = "a test that did not run must not look like one that did"
        )]
        let () = eprintln!("skipped: network namespaces need root");
    }
    is_root
}

/// Starts a network from the text of a config.
pub(crate) fn start(text: &str) -> WanNetwork {
    WanNetwork::start(config::parse(text, Path::new(".")).unwrap()).unwrap()
}

pub(crate) fn ask(network: &WanNetwork, json: &str) -> ControlAnswer {
    network.handle().ask(serde_json::from_str(json).unwrap()).unwrap()
}

pub(crate) fn stats(network: &WanNetwork) -> WanStats {
    match network.handle().ask(ControlCommand::Stats {}).unwrap() {
        ControlAnswer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn address(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

/// Waits until `holds`, or fails with `what`.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what}");
        // wait: between two looks at something outside of this process
        std::thread::sleep(Duration::from_millis(2));
    }
}
