//! What this node makes of what the cluster agreed on, and what it says there itself.
//!
//! The data path does not know of it: the agreed state changes what the driver is told of regions,
//! orders to the keeper, and who the link talks to. A node that never reached its cluster serves
//! its configured replicas as if there were none.

mod follow;
mod said;
mod speak;
mod watched;

use std::sync::Arc;

use spillway_agreement::{Agreement, AgreementConfig};
use spillway_consensus::{Seed, StartFault};
use spillway_control::Fingerprint;
use spillway_link::Link;
use spillway_proxy::Gateway;
use spillway_types::{NodeName, RegionName};
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
    pub(crate) gateway: Arc<Gateway>,
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
            rtt_max: rtts.max().unwrap_or(RTT_MAX_UNKNOWN),
        };
        let agreement = Agreement::start(config, Arc::clone(&parts.link)).await?;
        parts.feedback.watch_agreement(WatchedAgreement(Arc::downgrade(&agreement)));
        let (tasks, stop) = (parts.tasks.clone(), parts.stop.clone());
        let follower = follow::Follower::new(&parts, Arc::clone(&agreement));
        let speaker = speak::Speaker::new(parts, Arc::clone(&agreement));
        let stopped = stop.clone();
        let (following, speaking) = (Box::pin(follower.run()), Box::pin(speaker.run()));
        tasks.spawn(async move { stopped.run_until_cancelled(following).await });
        tasks.spawn(async move { stop.run_until_cancelled(speaking).await });
        Ok(Some(Self { agreement }))
    }

    /// The replicated state.
    pub(crate) fn agreement(&self) -> &Arc<Agreement> {
        &self.agreement
    }

    /// Hands over what others should do now, and ends.
    pub(crate) async fn shutdown(&self) {
        self.agreement.shutdown().await;
    }
}

/// The longest round trip between regions that neither config nor measurement knows: Virginia to
/// Singapore has less.
const RTT_MAX_UNKNOWN: std::time::Duration = std::time::Duration::from_millis(250);
