//! Does what the cluster agreed on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spillway_agreement::Agreement;
use spillway_control::State;
use spillway_health::Witnesses;
use spillway_link::Link;
use spillway_types::{Country, NodeName, RegionName, ReplicaName};

use crate::agreed::witness::{connected, witnesses};
use crate::agreed::{AgreedParts, Book, Said};
use crate::config::ClusterConfig;
use crate::fold::AgreedWorld;
use crate::keeper::KeeperHandle;

/// How often it looks whether what other nodes say still counts: they fall silent, or this node
/// loses the cluster, without anything new in the log.
const PERIOD: Duration = Duration::from_secs(1);
/// What others say counts as long as this node's knowledge is no older. Without a quorum nobody can
/// say anything else any more.
const WITNESSES_AGE_MAX: Duration = Duration::from_secs(15);

/// Follows the agreed state.
#[derive(Debug)]
pub(super) struct Follower {
    agreement: Arc<Agreement>,
    config: ClusterConfig,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    book: Arc<Book>,
    keeper: KeeperHandle,
    /// Of the own region, by the config.
    country: Option<Country>,
    /// The state that was taken in last.
    seen: Arc<State>,
    /// What others said last.
    witnesses: BTreeMap<ReplicaName, Witnesses>,
}

impl Follower {
    pub(super) fn new(parts: &AgreedParts<'_>, agreement: Arc<Agreement>) -> Self {
        Self {
            agreement,
            config: parts.config.clone(),
            me: parts.me.clone(),
            link: Arc::clone(&parts.link),
            book: Arc::clone(&parts.book),
            keeper: parts.keeper.clone(),
            country: parts.feedback.gateway.config().country,
            seen: Arc::new(State::new()),
            witnesses: BTreeMap::new(),
        }
    }

    /// Does what is new, as long as the state is published.
    pub(super) async fn run(mut self) {
        let mut publications = self.agreement.publications();
        loop {
            publications.mark_unchanged();
            let state = self.agreement.published();
            if state.cluster().is_some() {
                self.take_in(&state).await;
            }
            if let Ok(Err(_)) = tokio::time::timeout(PERIOD, publications.changed()).await {
                return;
            }
        }
    }

    async fn take_in(&mut self, state: &Arc<State>) {
        if state.applied() != self.seen.applied() {
            self.take_regions(state);
            if changes_requests(state, &self.seen) {
                self.keeper.take_agreed(AgreedWorld::of(state, &self.me.1)).await;
            }
            self.seen = Arc::clone(state);
        }
        let witnesses = self.witnesses(state);
        if witnesses != self.witnesses {
            self.witnesses.clone_from(&witnesses);
            self.keeper.take_witnesses(witnesses).await;
        }
    }

    fn take_regions(&self, state: &State) {
        let own = (&self.me.1, self.country);
        let said = Said::agreed(state, &self.config.regions, own);
        let before = self.book.load();
        for region in said.new_contradictions(&before) {
            let remedy = "correct the region's record or the nodes' configs: until then nobody serves \
                          there what has to stay in certain countries";
            tracing::error!(region, remedy, "a region is said to be in several countries");
        }
        if **before != said {
            tracing::info!(%said, "what is said of regions changed");
            self.book.store(Arc::new(said));
        }
    }

    /// What the region's other nodes say of its replicas.
    fn witnesses(&self, state: &State) -> BTreeMap<ReplicaName, Witnesses> {
        let age = self.agreement.status().age;
        if age.is_none_or(|age| age > WITNESSES_AGE_MAX) {
            return BTreeMap::new();
        }
        witnesses(state, (&self.me.0, &self.me.1), &connected(&self.link, &self.me.1))
    }
}

/// Whether what decides about requests is another than `before`. Most entries are about something
/// else.
fn changes_requests(state: &State, before: &State) -> bool {
    let (now, before) = (state.records(), before.records());
    now.models != before.models
        || now.splits != before.splits
        || now.routes != before.routes
        || now.replicas != before.replicas
}
