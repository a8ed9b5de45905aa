//! World of the demo: three regions with a node and emulated replicas each, and delayed QUIC
//! between.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use spillway_config::Config;
use spillway_control_plane::ControlPlane;
use spillway_emulator::{Emulator, EmulatorConfig, ReplicaHandle};
use spillway_harness::wait_for;
use spillway_link::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity};
use spillway_link::delayed::{Path, Paths};
use spillway_node::Node;
use spillway_rate_limit::{LimitKind, LimitUsage};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::demo::client::Doors;
use crate::demo::region::DemoRegion;
use crate::demo::workload::{MODEL, PLACES, REPLICAS, engine};

const CLUSTER: &str = "demo";
/// Prefix of node names; the region's name follows.
const NODE: &str = "node";
/// Validity of certificates in days: nodes warn from 30 days before the end.
const CERTIFICATE_DAYS: u32 = 40;
/// Port of the first region's admin address, as the README names it.
const ADMIN_PORT: u16 = 9_900;
/// Longest wait until nodes receive each other's reports: some round trips, and much for a busy
/// machine.
const MEETING_MAX: Duration = Duration::from_secs(60);
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Milliseconds without a new token after which a stream ends, such as one of a lost region.
const STALL_MS: u32 = 3_000;

/// Permission for requests to go to other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spill {
    Off,
    On,
}

/// The three regions and the paths between them.
#[derive(Debug)]
pub(crate) struct DemoWorld {
    regions: [Option<Site>; 3],
    doors: Doors,
    links: [SocketAddr; 3],
    /// Emulated network paths, which delay the packets of each node.
    paths: [Arc<Paths>; 3],
    /// Certificates; nodes read them again now and then.
    _folder: TempDir,
}

/// Processes of one region.
#[derive(Debug)]
struct Site {
    node: Node,
    emulator: Emulator,
}

/// Figures of a region's node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DemoFigures {
    /// Requests at its replicas.
    pub(crate) in_flight: u32,
    /// Requests in the node's queue.
    pub(crate) waiting: usize,
    /// Requests that another region refused.
    pub(crate) refused: u64,
    /// Requests that were lost in transit.
    pub(crate) broken: u64,
    /// Tokens of prompts that replicas read, and the cached part of them.
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl DemoWorld {
    /// Starts everything; [`Self::meet`] waits until all nodes know each other. Clients connect to
    /// `listen` and the next two ports. If one of them is taken, its node takes any free port.
    pub(crate) async fn start(listen: SocketAddr, spill: Spill) -> Result<Self> {
        let folder = tempfile::tempdir().context("can't make a folder for certificates")?;
        write_certificates(folder.path()).context("can't make certificates")?;
        let links = free_udp_addresses()?;
        let paths = DemoRegion::ALL.map(|from| {
            let paths = Paths::new(from.index() as u64);
            for to in from.others() {
                paths.set(links[to.index()], Path::of(from.rtt_to(to) / 2));
            }
            paths
        });
        let mut world =
            Self { regions: [None, None, None], doors: [listen; 3], links, paths, _folder: folder };
        for region in DemoRegion::ALL {
            let plan =
                DemoPlan { region, spill, folder: world._folder.path(), links: &world.links };
            let site = plan.start(listen, &world.paths[region.index()]).await?;
            // Its own port, since the wanted one may have been taken.
            world.doors[region.index()] = site.node.addresses()[0];
            world.regions[region.index()] = Some(site);
        }
        Ok(world)
    }

    /// Returns the addresses that clients connect to.
    pub(crate) fn doors(&self) -> Doors {
        self.doors
    }

    /// Returns the admin address of a region; None if the region is lost.
    pub(crate) fn admin(&self, region: DemoRegion) -> Option<SocketAddr> {
        self.node(region)?.admin_address()
    }

    /// Returns a region's view of the control plane; None if the region is lost.
    pub(crate) fn control_plane(&self, region: DemoRegion) -> Option<&Arc<ControlPlane>> {
        self.node(region)?.control_plane()
    }

    /// Returns the weight that `from` gives `to` when it chooses a region, in thousandths.
    pub(crate) fn weight(&self, from: DemoRegion, to: DemoRegion) -> Option<u16> {
        let regions = self.node(from)?.gateway().routing.regions();
        let other = regions.others.iter().find(|other| other.name.as_str() == to.name())?;
        Some(other.terms.weight_permille)
    }

    /// Returns true if the region has not been lost.
    pub(crate) fn is_up(&self, region: DemoRegion) -> bool {
        self.regions[region.index()].is_some()
    }

    /// Returns true if `from` would forward requests to `to`.
    pub(crate) fn reaches(&self, from: DemoRegion, to: DemoRegion) -> bool {
        let Some(node) = self.node(from) else { return false };
        let regions = node.gateway().routing.regions();
        regions.others.iter().any(|other| {
            other.name.as_str() == to.name()
                && other.is_reachable
                && other.models.keys().any(|model| model.as_str() == MODEL)
        })
    }

    /// Returns the figures of a region's node; zeros if the region is lost.
    pub(crate) fn figures(&self, region: DemoRegion) -> DemoFigures {
        let Some(site) = &self.regions[region.index()] else { return DemoFigures::default() };
        let gateway = site.node.gateway();
        let regions = gateway.routing.regions();
        let models = regions.others.iter().flat_map(|other| other.models.values());
        let (refused, broken) = models.fold((0, 0), |(refused, broken), model| {
            (refused + model.counts.refused(), broken + model.counts.broken())
        });
        let engines = || site.emulator.replicas().iter().map(|replica| replica.stats().engine);
        DemoFigures {
            in_flight: gateway
                .routing
                .view()
                .replicas()
                .iter()
                .map(|replica| replica.in_flight())
                .sum(),
            waiting: gateway.routing.waiting.count(),
            refused,
            broken,
            prompt_tokens: engines().map(|engine| engine.prefix_cache_queries_tokens).sum(),
            cached_tokens: engines().map(|engine| engine.prefix_cache_hits_tokens).sum(),
        }
    }

    /// Returns the requests that a region's node may admit by the only limit, 0 without one.
    pub(crate) fn share(&self, region: DemoRegion) -> u64 {
        let held = self.limits(region).into_iter().map(|usage| usage.held[LimitKind::RequestRate]);
        held.max().unwrap_or(0)
    }

    /// Returns true if a region's node knows any limit.
    pub(crate) fn has_limit(&self, region: DemoRegion) -> bool {
        !self.limits(region).is_empty()
    }

    fn limits(&self, region: DemoRegion) -> Vec<LimitUsage> {
        let Some(node) = self.node(region) else { return Vec::new() };
        let standings = node.gateway().clients.quotas.standings(Instant::now(), 1);
        standings.into_iter().map(|(_, usage)| usage).collect()
    }

    /// Returns the replicas of a region; none if the region is lost.
    pub(crate) fn replicas(&self, region: DemoRegion) -> Vec<ReplicaHandle> {
        let site = self.regions[region.index()].as_ref();
        site.map(|site| site.emulator.replicas().to_vec()).unwrap_or_default()
    }

    /// Cuts a region's network off from the others, or restores it.
    pub(crate) fn cut(&self, region: DemoRegion, is_cut: bool) {
        for other in region.others() {
            // Both ways, since each path is only what its own node sends.
            self.paths[region.index()].cut(self.links[other.index()], is_cut);
            self.paths[other.index()].cut(self.links[region.index()], is_cut);
        }
    }

    /// Loses a region: cuts its network, then its power. So no node gets a farewell.
    pub(crate) async fn lose(&mut self, region: DemoRegion) {
        self.cut(region, true);
        if let Some(site) = self.regions[region.index()].take() {
            let doors: Vec<SocketAddr> = site.node.addresses().to_vec();
            drop(site.node);
            site.emulator.shutdown().await;
            closed(&doors).await;
        }
    }

    /// Stops everything once requests in flight have been answered.
    pub(crate) async fn stop(self) {
        let stop = async |site: Option<Site>| {
            if let Some(site) = site {
                site.node.stop().await;
                site.emulator.shutdown().await;
            }
        };
        let [one, two, three] = self.regions;
        tokio::join!(stop(one), stop(two), stop(three));
    }

    fn node(&self, region: DemoRegion) -> Option<&Node> {
        self.regions[region.index()].as_ref().map(|site| &site.node)
    }

    /// Waits until all nodes know each other.
    ///
    /// # Errors
    /// Returns an error if that takes too long.
    pub(crate) async fn meet(&self) -> Result<()> {
        let knows_all = |from: DemoRegion| from.others().all(|to| self.reaches(from, to));
        let look = async || {
            let have_met = DemoRegion::ALL.into_iter().all(knows_all);
            have_met.then_some(()).ok_or("one knows too few")
        };
        wait_for("the nodes do not receive each other", MEETING_MAX, LOOK, look).await
    }
}

/// Waits until the addresses refuse connections. A node that is dropped closes its listeners a
/// moment later, and connections in between would be reset; a region without power resets none.
async fn closed(doors: &[SocketAddr]) {
    let started = Instant::now();
    for door in doors {
        while started.elapsed() < MEETING_MAX && TcpStream::connect(door).await.is_ok() {
            // wait: no event reports that the kernel has closed a listener.
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Addresses that a node listens on.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
}

/// Setup of one region.
struct DemoPlan<'a> {
    region: DemoRegion,
    spill: Spill,
    folder: &'a FilePath,
    links: &'a [SocketAddr; 3],
}

impl DemoPlan<'_> {
    async fn start(&self, listen: SocketAddr, paths: &Arc<Paths>) -> Result<Site> {
        let emulator = Emulator::start(EmulatorConfig {
            replicas: REPLICAS,
            models: vec![MODEL.to_owned()],
            engine: engine(),
            ..EmulatorConfig::default()
        })
        .await
        .context("can't start the emulated replicas")?;
        let replicas = emulator.addresses();
        // Another program may have a wanted port: then any will do.
        let wanted = self.addresses(listen);
        let any = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
        let less = Addresses { admin: any(wanted.admin), ..wanted };
        let least = Addresses { listen: any(wanted.listen), ..less };
        let mut started = self.node(wanted, &replicas, paths).await;
        for addresses in [less, least] {
            if started.is_err() {
                started = self.node(addresses, &replicas, paths).await;
            }
        }
        Ok(Site { node: started?, emulator })
    }

    /// Returns the addresses that the region's node listens on: the ports after those of the first
    /// region.
    fn addresses(&self, listen: SocketAddr) -> Addresses {
        let offset = u16::try_from(self.region.index()).unwrap_or(u16::MAX);
        // If any port will do, the admin address needs no fixed one either.
        let behind = |port: u16| match listen.port() {
            0 => 0,
            _ => port.checked_add(offset).unwrap_or(0),
        };
        Addresses {
            listen: SocketAddr::new(listen.ip(), behind(listen.port())),
            admin: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), behind(ADMIN_PORT)),
        }
    }

    async fn node(
        &self,
        addresses: Addresses,
        replicas: &[SocketAddr],
        paths: &Arc<Paths>,
    ) -> Result<Node> {
        let text = self.text(addresses, replicas);
        let mut config = Config::parse(&text, FilePath::new("demo.toml"), [])?;
        if let Some(cluster) = &mut config.cluster {
            cluster.paths = Some(Arc::clone(paths));
            // All regions begin at once, so none has to begin slowly.
            cluster.ramp = Duration::ZERO;
        }
        let region = self.region.name();
        // Boxed, since this future is far larger than the ones around it.
        let starting = Box::pin(Node::start(config));
        starting.await.with_context(|| format!("can't start the node of {region}"))
    }

    fn text(&self, addresses: Addresses, replicas: &[SocketAddr]) -> String {
        let Addresses { listen, admin } = addresses;
        let Self { region, spill, folder, links } = self;
        let authority = AuthorityFiles::in_folder(folder);
        let files = NodeFiles::in_folder(folder, region.name(), &node_name(*region))
            .with_authority(&authority);
        // All replicas begin at once, so no slow start.
        let mut text = format!(
            "[node]\nname = \"{}\"\nregion = \"{}\"\nworkers = 1\nexpose_routing = true\n\
             [[listener]]\naddress = \"{listen}\"\nauth = \"none\"\n[admin]\naddress = \"{admin}\"\n\
             [health]\nslow_start_ms = 0\n[[route]]\nname = \"llm\"\ncontinue_streams = true\n\
             [timeouts]\nidle_ms = {STALL_MS}\n[spill]\nenabled = {}\n\
             [cluster]\nid = \"{CLUSTER}\"\naddress = \"{}\"\nca = {:?}\n\
             certificate = {:?}\nkey = {:?}\nprefix_key = {:?}\ndata = {:?}\n",
            node_name(*region),
            region.name(),
            *spill == Spill::On,
            links[region.index()],
            files.authority,
            files.certificate,
            files.key,
            authority.prefix_key,
            folder.join(format!("data-{}", region.name())),
        );
        for other in region.others() {
            let (name, link) = (other.name(), links[other.index()]);
            let rtt_ms = region.rtt_to(other).as_millis();
            text += &format!(
                "[[peer]]\nname = \"{}\"\nregion = \"{name}\"\naddress = \"{link}\"\n\
                 [[region]]\nname = \"{name}\"\nrtt_ms = {rtt_ms}\n",
                node_name(other)
            );
        }
        // As many connections as the replica works on: requests wait in the node, from where they
        // can still go to another region.
        for (index, address) in replicas.iter().enumerate() {
            text += &format!(
                "[[replica]]\nname = \"replica-{index}\"\nurl = \"http://{address}\"\n\
                 models = [\"{MODEL}\"]\nconnections_max = {PLACES}\n"
            );
        }
        text
    }
}

fn node_name(region: DemoRegion) -> String {
    format!("{NODE}-{}", region.name())
}

fn write_certificates(folder: &FilePath) -> Result<()> {
    let validity = Validity::days(SystemTime::now(), CERTIFICATE_DAYS)?;
    let authority = Authority::new(CLUSTER, validity)?;
    let key = PrefixKey::random()?;
    AuthorityFiles::in_folder(folder).write(&authority, &key, IfExists::Refuse)?;
    for region in DemoRegion::ALL {
        let node = node_name(region);
        let issued = authority.issue(region.name(), &node, validity)?;
        NodeFiles::in_folder(folder, region.name(), &node).write(issued, IfExists::Refuse)?;
    }
    Ok(())
}

/// Returns free UDP addresses, since nodes need each other's addresses before they start.
fn free_udp_addresses() -> Result<[SocketAddr; 3]> {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let bind = || UdpSocket::bind(any).context("can't open a UDP port");
    // All are held at the same time, so that they differ.
    let sockets = [bind()?, bind()?, bind()?];
    let mut addresses = [any; 3];
    for (address, socket) in addresses.iter_mut().zip(&sockets) {
        *address = socket.local_addr()?;
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::ask;
    use crate::demo::sample::SampleEnd;
    use crate::demo::workload::arrivals;

    /// Longest time in which a farewell would arrive: one way takes 113 ms at most. Silence is
    /// noticed after 900 ms, counted from the last message, which is up to a heartbeat and a
    /// one-way delay old.
    const FAREWELL_MAX: Duration = Duration::from_millis(400);

    async fn ask_from(home: DemoRegion, doors: Doors) -> (DemoRegion, SampleEnd) {
        let mut all = arrivals(1, [50; 3], Duration::from_secs(9)).into_iter();
        let arrival = all.find(|arrival| arrival.home == home && arrival.chat.is_stream);
        let sample = ask(&arrival.expect("a stream"), Instant::now(), doors).await;
        (sample.door, sample.end)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clients_of_a_lost_region_are_served_by_the_nearest_and_the_others_know() {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let mut world = Box::pin(DemoWorld::start(any, Spill::On)).await.expect("a world");
        world.meet().await.expect("they meet");
        let lost = DemoRegion::ApNortheast;
        let (door, end) = ask_from(lost, world.doors()).await;
        assert!(matches!(end, SampleEnd::Served { by, .. } if by == lost), "{end:?}");
        assert_eq!(door, lost);

        let lost_at = Instant::now();
        world.lose(lost).await;
        assert!(!world.is_up(lost));
        let (door, end) = ask_from(lost, world.doors()).await;
        let SampleEnd::Served { by, first_token: Some(first_token) } = end else {
            panic!("{end:?}")
        };
        assert_eq!((door, by), (DemoRegion::UsEast, DemoRegion::UsEast));
        assert!(first_token >= lost.rtt_to(DemoRegion::UsEast), "{first_token:?} has no way in it");
        let deadline = Instant::now() + MEETING_MAX;
        while lost.others().any(|other| world.reaches(other, lost)) {
            assert!(Instant::now() < deadline, "they never noticed");
            // wait: the other nodes notice by silence, which no event reports.
            tokio::time::sleep(LOOK).await;
        }
        assert!(lost_at.elapsed() > FAREWELL_MAX, "they were told");
        assert!(world.reaches(DemoRegion::UsEast, DemoRegion::EuCentral));
        Box::pin(world.stop()).await;
    }
}
