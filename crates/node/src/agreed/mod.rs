//! What this node makes of what the cluster agreed on, and what it says there itself.
//!
//! The data path does not know of it: the agreed state changes what the driver is told of regions,
//! orders to the keeper, and who the link talks to. A node that never reached its cluster serves
//! its configured replicas as if there were none.

mod age;
mod follow;
mod leases;
mod peers;
mod said;
mod seen;
mod speak;
#[cfg(test)]
pub(crate) mod test_state;
mod watched;
mod witness;

use std::pin::Pin;
use std::sync::Arc;

use spillway_agreement::{Agreement, AgreementConfig};
use spillway_consensus::{Seed, StartFault};
use spillway_control::Fingerprint;
use spillway_link::Link;
use spillway_types::{NodeName, RegionName};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use crate::agreed::said::{Book, Said};
pub(crate) use crate::agreed::watched::WatchedAgreement;
use crate::config::ClusterConfig;
use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;

/// This node's part in what the cluster agrees on.
#[derive(Debug)]
pub(crate) struct Agreed {
    agreement: Arc<Agreement>,
}

/// What it works with.
#[derive(Debug)]
pub(crate) struct AgreedParts<'a> {
    pub(crate) config: ClusterConfig,
    pub(crate) me: (NodeName, RegionName),
    pub(crate) link: Arc<Link>,
    pub(crate) book: Arc<Book>,
    pub(crate) keeper: KeeperHandle,
    pub(crate) feedback: &'a Feedback,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Agreed {
    /// Opens the data folder and takes part from now on; `None` if the config names none.
    ///
    /// # Errors
    /// If the folder can't be used.
    pub(crate) async fn start(parts: AgreedParts<'_>) -> Result<Option<Self>, StartFault> {
        let Some(folder) = parts.config.data.clone() else { return Ok(None) };
        let (name, region) = parts.me.clone();
        let own = Seed { name: name.clone(), region: region.clone() };
        let others = parts.config.peers.iter();
        let others =
            others.map(|peer| Seed { name: peer.name.clone(), region: peer.region.clone() });
        let rtts = parts.config.regions.iter().filter_map(|region| region.rtt);
        let config = AgreementConfig {
            name,
            region,
            advertise: parts.config.advertise.clone(),
            fingerprint: Fingerprint(parts.link.fingerprint()),
            folder,
            seeds: others.chain([own]).collect(),
            join_token: parts.config.join_token_file.clone(),
            is_operator: parts.config.has_replicas,
            rtt_max: rtts.max().unwrap_or(RTT_MAX_UNKNOWN),
        };
        let agreement = Agreement::start(config, Arc::clone(&parts.link)).await?;
        parts.feedback.watch_agreement(WatchedAgreement(Arc::downgrade(&agreement)));
        // What this node does as a member ends with its membership, or with the node.
        let (tasks, stop) = (parts.tasks.clone(), parts.stop.child_token());
        let removed = Removed {
            removal: agreement.removal(),
            link: Arc::clone(&parts.link),
            book: Arc::clone(&parts.book),
            alone: Said::of_config(&parts.config.regions),
            part: stop.clone(),
        };
        let node_stops = parts.stop.clone();
        let gateway = Arc::clone(&parts.feedback.gateway);
        let aging = age::keep(Arc::downgrade(&agreement), gateway);
        let aging_stops = stop.clone();
        tasks.spawn(async move { aging_stops.run_until_cancelled(aging).await });
        let mut peers = peers::Peers::new(&parts, Arc::clone(&agreement));
        peers.look(&agreement.known());
        let peers = Box::pin(peers.run());
        let follower = follow::Follower::new(&parts, Arc::clone(&agreement));
        let speaker = speak::Speaker::new(parts, Arc::clone(&agreement));
        let (following, speaking) = (Box::pin(follower.run()), Box::pin(speaker.run()));
        let doing: [Pin<Box<dyn Future<Output = ()> + Send>>; 3] = [peers, following, speaking];
        let doing = doing.map(|task| {
            let stop = stop.clone();
            tasks.spawn(async move {
                let _: Option<()> = stop.run_until_cancelled(task).await;
            })
        });
        tasks.spawn(async move { node_stops.run_until_cancelled(removed.wait(doing)).await });
        Ok(Some(Self { agreement }))
    }

    /// The replicated state.
    pub(crate) fn agreement(&self) -> &Arc<Agreement> {
        &self.agreement
    }

    /// Hands over what others should do from now on, and goes on as one of those who follow.
    pub(crate) async fn hand_over(&self) {
        self.agreement.hand_over().await;
    }

    /// Hands over what others should do now, and ends.
    pub(crate) async fn shutdown(&self) {
        self.agreement.shutdown().await;
    }
}

/// What is to be done when the cluster has removed this node.
struct Removed {
    removal: watch::Receiver<bool>,
    link: Arc<Link>,
    book: Arc<Book>,
    /// What is said of regions where nobody else says anything.
    alone: Said,
    /// Everything that this node does as a member.
    part: CancellationToken,
}

impl Removed {
    /// Waits for that. Then the node is on its own: it sends nothing to the others and takes
    /// nothing from them, and serves its clients with its own replicas.
    async fn wait(mut self, doing: [JoinHandle<()>; 3]) {
        // An error means that the node ends.
        if self.removal.wait_for(|removed| *removed).await.is_ok() {
            self.part.cancel();
            for task in doing {
                // An error means that it has ended in another way. None is left that could say
                // something else than what follows.
                drop(task.await);
            }
            self.link.set_peers(Vec::new());
            self.book.store(Arc::new(self.alone));
        }
    }
}

/// The longest round trip between regions that neither config nor measurement knows: Virginia to
/// Singapore has less.
const RTT_MAX_UNKNOWN: std::time::Duration = std::time::Duration::from_millis(250);
