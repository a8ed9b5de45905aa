//! Requests of a node without a number to be taken into a cluster.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use spillway_cluster_state::{ClusterId, JoinText};
use spillway_link::{Identity, JoinError, PeerConfig};

use super::message::{JoinAnswer, Membership, Question, Wish};
use crate::control_plane::ControlPlane;

/// Time limit of one node's answer; a little longer than its gate serves one node.
const ASK_LIMIT: Duration = Duration::from_secs(16);
/// Time between two rounds. Short, so that a new token works soon; each round costs the cluster one
/// read.
const PAUSE: Duration = Duration::from_secs(2);
/// Time after which an unchanged reason is logged again, for people who read the end of the log.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Longest token file, in bytes; a token has 100.
const TOKEN_BYTES_MAX: u64 = 1_024;

/// Asks until this node is a member, then opens its log. Clients are served during that time.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    let mut said: Option<(String, Instant)> = None;
    while let Some(this) = control_plane.upgrade() {
        match this.ask_everybody().await {
            Ok((peer, membership)) => {
                tracing::info!(
                    asked = %peer.identity, number = %membership.number, cluster = %membership.cluster,
                    "this node is taken into the cluster",
                );
                this.trouble.store(None);
                this.meet(&peer, &membership);
                match this.begin(membership.number).await {
                    Ok(()) => return this.take_part(),
                    // A full disk may have room again: the other nodes answer the same then.
                    Err(error) => this.note_trouble(&mut said, format!("the log: {error}")),
                }
            }
            Err(why) => this.note_trouble(&mut said, why),
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop(this);
        tokio::time::sleep(PAUSE).await;
    }
}

impl ControlPlane {
    /// Notes why this node is in no cluster yet, and logs it if it is news.
    fn note_trouble(&self, said: &mut Option<(String, Instant)>, why: String) {
        self.trouble.store(Some(Arc::new(why.clone())));
        let is_said =
            said.as_ref().is_some_and(|(last, at)| *last == why && at.elapsed() < SAY_AGAIN);
        if !is_said {
            tracing::error!("this node has not joined a cluster yet and retries: {why}");
            *said = Some((why, Instant::now()));
        }
    }

    /// Asks one node after the other to take this node in. Returns the node that did, and the
    /// membership.
    ///
    /// # Errors
    /// Returns the reasons of all nodes that did not.
    async fn ask_everybody(&self) -> Result<(PeerConfig, Membership), String> {
        let (token, mut why) = match &self.config.join_token {
            Some(file) => match read_token(file) {
                Ok(token) => (Some(token), Vec::new()),
                Err(fault) => (None, vec![fault]),
            },
            None => (None, Vec::new()),
        };
        for peer in &self.contacts {
            let at = &peer.identity;
            match self.ask(peer, token.as_deref()).await {
                Ok(JoinAnswer::Member(membership)) => return Ok((peer.clone(), membership)),
                // The refusal comes from the agreed state, so every other node would refuse, too.
                Ok(JoinAnswer::Refused(refusal)) => {
                    why.push(format!("{at} refuses: {refusal}"));
                    break;
                }
                Ok(JoinAnswer::NotFormed) => why.push(format!("{at} is in no cluster itself")),
                Ok(JoinAnswer::Cluster(_)) => why.push(format!("{at} answers something else")),
                Ok(JoinAnswer::NotNow(reason)) => {
                    why.push(format!("{at} can't take it in: {reason}"));
                }
                Err(fault) => why.push(format!("{at} at {}: {fault}", peer.address)),
            }
        }
        Err(if why.is_empty() { "it knows no node to ask".to_owned() } else { why.join("; ") })
    }

    /// Asks `peer` to take this node in. With a token, first asks for the cluster's id: a signature
    /// is valid for one cluster alone.
    async fn ask(&self, peer: &PeerConfig, token: Option<&str>) -> Result<JoinAnswer, JoinError> {
        let node = self.spec();
        let ask_to_join = async |cluster: Option<ClusterId>, wish: Wish| {
            let question = Question { cluster, node: node.clone(), wish };
            self.link.ask_to_join::<_, JoinAnswer>(peer, &question, ASK_LIMIT).await
        };
        // Without a token that can be read the node asks unsigned; the answer then has the reason
        // for the refusal.
        let Some(token) = token.and_then(JoinText::read) else {
            return ask_to_join(None, Wish::Join).await;
        };
        match ask_to_join(None, Wish::Cluster).await {
            Ok(JoinAnswer::Cluster(cluster)) => {
                ask_to_join(Some(cluster), Wish::JoinSigned(token.sign(cluster, &node))).await
            }
            other => other,
        }
    }

    /// Gives the link the other members, until this node's own state knows them.
    pub(super) fn meet(&self, asked: &PeerConfig, membership: &Membership) {
        let mut peers = vec![asked.clone()];
        for other in &membership.others {
            let (region, name) = (other.region.as_str(), other.name.as_str());
            let identity = Identity::new(asked.identity.cluster(), region, name);
            let configured = self.contacts.iter().find(|peer| peer.identity.node() == &other.name);
            match (configured, identity) {
                // The config may name a shorter way to this member.
                (Some(peer), _) => peers.push(peer.clone()),
                (None, Ok(identity)) => peers.push(PeerConfig {
                    identity,
                    address: other.address.clone(),
                    rtt_ms: None,
                }),
                (None, Err(error)) => tracing::error!(%error, "a member has an impossible name"),
            }
        }
        if let Some(log) = self.log() {
            log.vouch(peers.iter().map(|peer| peer.identity.node().clone()));
        }
        self.met.store(Arc::new(peers.clone()));
        self.link.set_peers(peers);
    }
}

/// Reads the token in `file`. The secret goes nowhere, not even into an error.
fn read_token(file: &Path) -> Result<String, String> {
    let path = file.display();
    let fault = |error: std::io::Error| format!("the join token {path} can't be read: {error}");
    let length = std::fs::metadata(file).map_err(fault)?.len();
    if length > TOKEN_BYTES_MAX {
        return Err(format!("{path} is no join token: it has {length} bytes"));
    }
    let text = std::fs::read_to_string(file).map_err(fault)?;
    let token = JoinText::read(text.trim()).map(|_| text.trim().to_owned());
    let no_token = || {
        format!("{path} holds no join token: put there what `spillway join-token create` prints")
    };
    token.ok_or_else(no_token)
}
