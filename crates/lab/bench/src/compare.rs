//! Side-by-side runs: the same load through each proxy in turn, round after round.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use spillway_harness::Process;

use crate::{
    backend::BackendAnswer,
    load::{self, LoadSpec, Protocol, Times},
    peers::{Peer, start_peer},
    proxy::{Proxy, Site, SpillwaySetup, start_nginx, start_spillway},
    report::{ReportSample, ScenarioReport, Subject},
    scenario::Scenario,
    settle::settle,
    usage::{TreeUsage, descendants_usage},
};

/// Number of backends behind each proxy.
pub(crate) const BACKENDS: usize = 4;

/// Longest wait until a proxy answers.
pub(crate) const START_MAX: Duration = Duration::from_secs(15);

/// Longest wait until a peer answers; two processes of Python take 20 s to load LiteLLM.
const PEER_START_MAX: Duration = Duration::from_secs(120);

/// Settings of a comparison.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CompareSpec {
    /// Rounds per scenario.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    #[command(flatten)]
    times: Times,
    /// The nginx binary.
    #[arg(long, default_value = "nginx")]
    nginx: PathBuf,
    /// The Spillway binary; without it there is none in the comparison.
    #[arg(long)]
    spillway: Option<PathBuf>,
    /// An earlier Spillway binary, measured in the same rounds: what a change costs.
    #[arg(long)]
    earlier: Option<PathBuf>,
    /// Lines for the config of a further Spillway, measured in the same rounds: what they cost.
    #[arg(long, value_name = "FILE", requires = "spillway")]
    with: Option<PathBuf>,
    /// Policy of Spillway's route; its default if left out.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Proxies and gateways of others to measure in the same rounds, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) peers: Vec<Peer>,
    /// Folder that crates/lab/bench/peers.sh has installed the peers in.
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub(crate) peers_folder: PathBuf,
}

/// Runs all rounds of one scenario; `progress` is called with each sample.
pub(crate) async fn compare(
    scenario: Scenario,
    spec: &CompareSpec,
    mut progress: impl FnMut(usize, &Subject, &ReportSample),
) -> anyhow::Result<ScenarioReport> {
    let folder = tempfile::Builder::new().prefix("spillway-bench-").tempdir()?;
    let (_backends, addresses) = start_backends(folder.path(), scenario.answer())?;
    let load = scenario.load(spec.times.warm_up(), spec.times.window());
    let site = Site { folder: folder.path(), backends: &addresses, protocol: load.protocol };
    let mut field = start_field(spec, site)?;
    if scenario.has_direct() {
        // Shows the latency without a proxy.
        field.insert(
            0,
            ComparedEntry { subject: Subject::Direct, target: addresses[0], proxy: None },
        );
    }
    let mut report = ScenarioReport::new(scenario, field.iter().map(|entry| entry.subject));
    for (index, entry) in field.iter_mut().enumerate() {
        report.start(index, entry.wait_until_ready(&load).await?);
    }
    for round in 0..usize::from(spec.rounds) {
        for turn in 0..field.len() {
            // Every other round runs backwards, so that no subject always comes first after a
            // pause.
            let index = if round % 2 == 0 { turn } else { field.len() - 1 - turn };
            let sample = field[index].measure(&load).await?;
            progress(round, &field[index].subject, &sample);
            report.add(index, sample);
        }
    }
    report.summarize();
    Ok(report)
}

/// Subject of a comparison with its process.
#[derive(Debug)]
struct ComparedEntry {
    subject: Subject,
    target: SocketAddr,
    proxy: Option<Proxy>,
}

impl ComparedEntry {
    fn of(subject: Subject, proxy: Proxy) -> Self {
        Self { subject, target: proxy.address, proxy: Some(proxy) }
    }

    /// Returns the proxy's use of CPU and memory once it is idle; `None` without a proxy.
    async fn wait_until_ready(&mut self, load: &LoadSpec) -> anyhow::Result<Option<TreeUsage>> {
        let load = self.load(load);
        let limit = if self.peer().is_some() { PEER_START_MAX } else { START_MAX };
        let check = async || load::check(self.target, &load).await;
        let Some(proxy) = &mut self.proxy else {
            // The backends announced their addresses, so they serve already.
            return check().await.map(|()| None);
        };
        proxy.process.ready(limit, check).await?;
        Ok(Some(settle(proxy.process.id()).await.context("read /proc")?))
    }

    fn peer(&self) -> Option<Peer> {
        match self.subject {
            Subject::Peer(peer) => Some(peer),
            Subject::Direct
            | Subject::Nginx
            | Subject::NginxCopy
            | Subject::Earlier
            | Subject::Spillway
            | Subject::With => None,
        }
    }

    /// Returns the load as this subject can take it.
    fn load(&self, load: &LoadSpec) -> LoadSpec {
        let load = load.clone();
        match self.peer() {
            Some(peer) => peer.load(load),
            None => load,
        }
    }

    async fn measure(&self, load: &LoadSpec) -> anyhow::Result<ReportSample> {
        let load = self.load(load);
        let root = self.proxy.as_ref().map(|proxy| proxy.process.id());
        let probe = || -> anyhow::Result<Option<TreeUsage>> {
            root.map(descendants_usage).transpose().context("read /proc")
        };
        let (measurement, before, after) = load::run(self.target, &load, probe)
            .await
            .with_context(|| format!("load through {}", self.subject))?;
        if let (Some(root), Some(_)) = (root, self.peer()) {
            settle(root).await.context("read /proc")?;
        }
        Ok(ReportSample::new(measurement, before, after))
    }
}

/// Starts the proxies: nginx first, its copy last, peers and then Spillway between them.
fn start_field(spec: &CompareSpec, site: Site<'_>) -> anyhow::Result<Vec<ComparedEntry>> {
    let nginx = |subject: Subject, name| -> anyhow::Result<ComparedEntry> {
        Ok(ComparedEntry::of(subject, start_nginx(&spec.nginx, name, site)?))
    };
    let mut field = vec![nginx(Subject::Nginx, "nginx")?];
    // Their configs are for HTTP/1.1, which all of them speak.
    let peers = spec.peers.iter().filter(|_| site.protocol == Protocol::Http1);
    for &peer in peers {
        let proxy = start_peer(peer, &spec.peers_folder, site)?;
        field.push(ComparedEntry::of(Subject::Peer(peer), proxy));
    }
    field.extend(start_builds(spec, site)?);
    field.push(nginx(Subject::NginxCopy, "nginx-copy")?);
    Ok(field)
}

/// Starts all builds of Spillway.
fn start_builds(spec: &CompareSpec, site: Site<'_>) -> anyhow::Result<Vec<ComparedEntry>> {
    let with = spec.with.as_ref().and(spec.spillway.as_ref());
    let builds = [
        (spec.earlier.as_ref(), Subject::Earlier),
        (spec.spillway.as_ref(), Subject::Spillway),
        (with, Subject::With),
    ];
    let mut started = Vec::new();
    for (program, subject) in builds {
        let Some(program) = program else { continue };
        let name = subject.to_string().replace(' ', "-");
        let more = match (&spec.with, subject) {
            (Some(file), Subject::With) => fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
            _ => String::new(),
        };
        let policy = spec.policy.as_deref();
        let setup = SpillwaySetup { policy, replica: "", more: &more };
        let proxy = start_spillway(program, &name, setup, site)?;
        started.push(ComparedEntry::of(subject, proxy));
    }
    Ok(started)
}

/// Starts the backends in a process of their own, so that they share no thread with the load.
pub(crate) fn start_backends(
    folder: &Path,
    answer: BackendAnswer,
) -> anyhow::Result<(Process, Vec<SocketAddr>)> {
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into(), "backend".into()];
    match answer {
        BackendAnswer::Json { bytes } => {
            command.extend(["--reply-bytes".into(), bytes.to_string().into()]);
        }
        BackendAnswer::Stream { tokens, interval } => command.extend([
            "--stream-tokens".into(),
            tokens.to_string().into(),
            "--interval-us".into(),
            interval.as_micros().to_string().into(),
        ]),
    }
    let mut guarded = Process::guarded("backends", &command, &folder.join("backends.log"))?;
    let addresses = serde_json::from_str(&guarded.first_line()?).context("backend addresses")?;
    Ok((guarded, addresses))
}
