//! Formation of a new cluster.

use std::time::Duration;

use openraft::errors::RaftError;
use spillway_types::{ClusterId, NodeName};
use tokio::time::sleep;

use super::Consensus;
use super::members::NewMembers;
use crate::error::FormError;
use crate::ids::random_id;
use crate::machine::Machine;
use crate::rules::formation::{Formation, FormationStep, Own, Seed, SeedAnswer};
use crate::wire::Introduction;

/// Pause before seeds that did not answer are asked again, and before a seed that forms no cluster
/// looks again whether it is in one.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for the answer of a seed.
const HELLO_LIMIT: Duration = Duration::from_millis(1_000);

impl<M: Machine> Consensus<M> {
    /// Forms the cluster with the other seeds, or waits until this node is in one. Returns the id
    /// of the cluster. All seeds call this at every start; a seed that is in a cluster gets the id
    /// at once. The link has to know the seeds.
    ///
    /// # Errors
    /// Returns an error if the seeds are in different clusters or have other numbers, or if this
    /// node's log can't take part.
    pub async fn form(&self, seeds: &[Seed]) -> Result<ClusterId, FormError> {
        let mut formation = Formation::new(self.config.name.clone(), seeds);
        loop {
            match formation.step(self.own()) {
                FormationStep::In(cluster) => return Ok(cluster),
                FormationStep::Conflict(why) => return Err(FormError::Conflict(why)),
                FormationStep::Form(named, members) => {
                    let cluster = match named {
                        // An earlier start named the cluster and ended before the cluster was
                        // formed.
                        Some(cluster) => cluster,
                        None => random_id()?,
                    };
                    return self.initialise(cluster, members).await.map(|()| cluster);
                }
                FormationStep::Wait => sleep(PAUSE).await,
                FormationStep::Ask(missing) => {
                    if !self.ask(&mut formation, missing).await {
                        sleep(PAUSE).await;
                    }
                }
            }
            self.check_running().map_err(FormError::Stopped)?;
        }
    }

    /// Makes a new cluster of `members` at once. Only for an empty log, and only on one node;
    /// [`Self::form`] ensures both.
    ///
    /// # Errors
    /// Returns an error if the log is not empty, or if this node is not among the members.
    pub async fn initialise(
        &self,
        cluster: ClusterId,
        members: NewMembers,
    ) -> Result<(), FormError> {
        if !self.context.log.is_blank() {
            return Err(FormError::Refused("its log is not empty".to_owned()));
        }
        // The disk has to be right, too: the others would refuse to mean this node by another one.
        if members.get(&self.context.node) != Some(&self.member()) {
            return Err(FormError::Refused("this node is not among its members".to_owned()));
        }
        // The id is written first, so that a crash in between does not lead to two clusters.
        self.context.log.join(cluster).await?;
        match self.raft.initialize(members).await {
            Ok(()) => Ok(()),
            Err(RaftError::Fatal(fatal)) => Err(FormError::Stopped(fatal.to_string())),
            Err(RaftError::APIError(error)) => Err(FormError::Refused(error.to_string())),
        }
    }

    fn own(&self) -> Own {
        let log = &self.context.log;
        Own { disk: self.context.disk, cluster: log.cluster(), is_blank: log.is_blank() }
    }

    /// Asks seeds for their identity, all at once; returns true if each has answered.
    async fn ask(&self, formation: &mut Formation, seeds: Vec<NodeName>) -> bool {
        let asked = seeds.into_iter().map(|name| async move {
            let answer = self.context.hello(&name, HELLO_LIMIT).await;
            (name, answer)
        });
        let mut all = true;
        for (name, answer) in futures_util::future::join_all(asked).await {
            match answer {
                Ok(Introduction { node, disk, cluster }) => {
                    formation.answered(&name, SeedAnswer { node, disk, cluster });
                }
                Err(fault) => {
                    tracing::debug!(seed = %name, %fault, "a seed does not answer");
                    all = false;
                }
            }
        }
        all
    }
}
