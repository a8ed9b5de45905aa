//! Carries out a script against running replicas and the gateway, and records when replicas were
//! broken.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    account::Trouble,
    emulators::Emulators,
    fault::Fault,
    gateway::Gateway,
    script::{Action, ScriptStep},
};

/// Script in progress, with the troubles so far.
#[derive(Debug)]
pub(crate) struct FaultsStage {
    start: Instant,
    open: BTreeMap<u16, (Fault, Duration)>,
    troubles: Vec<Trouble>,
}

impl FaultsStage {
    /// Returns a stage without troubles; the load starts at `start`.
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, open: BTreeMap::new(), troubles: Vec::new() }
    }

    /// Carries out each step at its due time. Heals every replica at the end in any case, so that
    /// their stats can be read. Returns the troubles.
    ///
    /// # Errors
    /// Returns an error if an action is refused.
    pub(crate) async fn play(
        mut self,
        steps: &[ScriptStep],
        emulators: &Emulators,
        gateway: &mut Gateway,
    ) -> anyhow::Result<Vec<Trouble>> {
        for step in steps {
            tokio::time::sleep_until((self.start + step.at).into()).await;
            self.act(step.action, emulators, gateway)
                .await
                .with_context(|| format!("{:?}", step.action))?;
        }
        // Listed first, because healing changes the map.
        let broken: Vec<u16> = self.open.keys().copied().collect();
        for replica in broken {
            self.act(Action::Heal(replica), emulators, gateway).await?;
        }
        Ok(self.troubles)
    }

    async fn act(
        &mut self,
        action: Action,
        emulators: &Emulators,
        gateway: &mut Gateway,
    ) -> anyhow::Result<()> {
        match action {
            Action::Break(replica, fault) => {
                // Noted before the fault and ended after it, so that the fault is never outside of
                // the noted time.
                self.open.insert(replica, (fault, self.start.elapsed()));
                emulators.set_fault(replica, fault.setting()).await
            }
            Action::Heal(replica) => {
                emulators.set_fault(replica, None).await?;
                self.note_end(replica);
                Ok(())
            }
            Action::Join(first, count) => {
                let replicas: Vec<u16> = (first..first + count).collect();
                gateway.join(&replicas)
            }
            Action::Leave(replica) => gateway.leave(replica),
            Action::Drain(replica) => gateway.order(replica, "drain").await,
            Action::Resume(replica) => gateway.order(replica, "resume").await,
        }
    }

    fn note_end(&mut self, replica: u16) {
        if let Some((fault, from)) = self.open.remove(&replica) {
            let until = self.start.elapsed();
            self.troubles.push(Trouble { replica, fault, from, until });
        }
    }
}
