//! Helpers of the tests: an emulator, a target that watches it, and waits with a deadline.

use std::time::Duration;

use spillway_emulator::{Emulator, EmulatorConfig, EngineConfig, Profile};
use spillway_replicas::{
    ActiveCheck, CheckKind, CheckResult, DeepCheck, DeepRequest, Fact, FactKind, FactSender,
    HttpProtocol, Monitors, ReplicaTarget, Scrape, ServerKind,
};
use spillway_resolver::Resolver;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest wait: no step that works takes as long, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) async fn emulator() -> Emulator {
    let config = EmulatorConfig {
        engine: EngineConfig::from_profile(Profile::H100),
        time_scale: 0.1,
        ..EmulatorConfig::default()
    };
    Emulator::start(config).await.unwrap()
}

/// Makes a target without checks or scrapes.
pub(crate) fn target(port: u16) -> ReplicaTarget {
    ReplicaTarget {
        replica: "r".into(),
        resolver: Resolver::default(),
        host: "127.0.0.1".to_owned(),
        port,
        base: None,
        tls: None,
        protocol: HttpProtocol::Http1,
        headers: Vec::new(),
        models: vec!["tiny".into()],
        active: None,
        deep: None,
        notice: None,
        identity: None,
        scrapes: Vec::new(),
    }
}

/// Makes an active check at the pace that the tests need.
pub(crate) fn active() -> ActiveCheck {
    ActiveCheck {
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
        ..ActiveCheck::new(ServerKind::Vllm.probe())
    }
}

pub(crate) fn deep() -> DeepCheck {
    DeepCheck {
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
        ..DeepCheck::new(DeepRequest::Chat { model: "tiny".into() })
    }
}

pub(crate) fn scrape() -> Scrape {
    Scrape::new(ServerKind::Vllm.metrics().unwrap())
}

/// Monitors with the receiver of their channel.
pub(crate) struct Watching {
    pub(crate) monitors: Monitors,
    pub(crate) sender: FactSender,
    pub(crate) facts: mpsc::Receiver<Fact>,
}

impl Watching {
    pub(crate) fn new(places: usize) -> Self {
        let (channel, facts) = mpsc::channel(places);
        let sender = FactSender::new(channel);
        let monitors = Monitors::new(sender.clone(), Handle::current(), 7);
        Self { monitors, sender, facts }
    }

    pub(crate) fn of(target: ReplicaTarget) -> Self {
        let mut watching = Self::new(1024);
        watching.monitors.reconcile(vec![target]);
        watching
    }

    /// Returns the next fact.
    pub(crate) async fn next(&mut self) -> Fact {
        timeout(DEADLINE, self.facts.recv()).await.expect("no fact came").expect("a channel")
    }

    /// Returns the result of `select` for the next fact that it accepts.
    pub(crate) async fn until<T>(&mut self, mut select: impl FnMut(&FactKind) -> Option<T>) -> T {
        let found = timeout(DEADLINE, async {
            loop {
                let fact = self.facts.recv().await.expect("a channel");
                if let Some(found) = select(&fact.kind) {
                    return found;
                }
            }
        });
        found.await.expect("what is waited for did not come")
    }

    /// Waits for a check with this result.
    pub(crate) async fn until_check(&mut self, wanted: CheckKind, expected: CheckResult) {
        let mut last = None;
        let found = timeout(DEADLINE, async {
            while last != Some(expected) {
                let fact = self.facts.recv().await.expect("a channel");
                if let FactKind::Check { kind, result, .. } = fact.kind
                    && kind == wanted
                {
                    last = Some(result);
                }
            }
        });
        let found = found.await.is_ok();
        assert!(found, "{expected:?} did not come; the last was {last:?}");
    }

    /// Drops all facts that have come so far.
    pub(crate) fn drain(&mut self) {
        while self.facts.try_recv().is_ok() {}
    }
}
