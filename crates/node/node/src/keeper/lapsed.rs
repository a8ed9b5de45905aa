//! Models without replicas, after all that were registered or discovered are gone: they crashed
//! together with the process that renewed their leases, the file that lists them is being written
//! again, or they were taken out for good.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spillway_config::ReplicaConfig;
use spillway_types::{ModelName, ReplicaName};

use crate::fold::AgreedWorld;

/// Time for which such a model stays known. A replica that has crashed and is started again
/// registers within this time; a model that was taken out on purpose is listed no longer than this.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Maximum number of models that are remembered.
const MODELS_MAX: usize = 10_000;

/// Models without a replica, each with the time since when.
#[derive(Debug, Default)]
pub(super) struct Lapsed(BTreeMap<ModelName, Instant>);

impl Lapsed {
    /// Notes changes in the registrations of this region.
    pub(super) fn note(&mut self, before: &AgreedWorld, after: &AgreedWorld, now: Instant) {
        for model in registered(before) {
            if self.0.len() < MODELS_MAX {
                self.0.insert(model.clone(), now);
            }
        }
        for model in registered(after) {
            self.0.remove(model);
        }
    }

    /// Notes the models of discovered replicas that are gone, and the models that are listed again.
    /// Replicas that the config file itself no longer lists are gone for good.
    pub(super) fn note_listed(
        &mut self,
        before: &[ReplicaConfig],
        after: &[ReplicaConfig],
        now: Instant,
    ) {
        let names: BTreeSet<&ReplicaName> = after.iter().map(|config| &config.spec.name).collect();
        let is_gone =
            |config: &&ReplicaConfig| config.may_vanish && !names.contains(&config.spec.name);
        for model in before.iter().filter(is_gone).flat_map(|config| &config.spec.models) {
            if self.0.len() < MODELS_MAX {
                self.0.insert(model.clone(), now);
            }
        }
        for model in after.iter().flat_map(|config| &config.spec.models) {
            self.0.remove(model);
        }
    }

    /// Forgets models that an operator took out of the config.
    pub(super) fn forget(&mut self, models: &BTreeSet<ModelName>) {
        self.0.retain(|model, _| !models.contains(model));
    }

    /// Forgets models that were remembered for long enough. Returns true if there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let count = self.0.len();
        self.0.retain(|_, since| now < *since + REMEMBERED_FOR);
        self.0.len() < count
    }

    /// Returns the models that are remembered.
    pub(super) fn models(&self) -> impl Iterator<Item = &ModelName> {
        self.0.keys()
    }
}

fn registered(world: &AgreedWorld) -> impl Iterator<Item = &ModelName> {
    let specs = world.replicas.values().filter_map(|replica| replica.registered.as_ref());
    specs.flat_map(|spec| spec.models.iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreed::test_state::{lease, registered};

    #[test]
    fn a_model_whose_lease_ended_is_remembered_for_ten_minutes() {
        let none = AgreedWorld::default();
        let some = AgreedWorld::of(&registered("r", Some(lease(15_000))), &"one".into());
        let models = |lapsed: &Lapsed| lapsed.models().cloned().collect::<Vec<_>>();
        let (start, mut lapsed) = (Instant::now(), Lapsed::default());
        lapsed.note(&none, &some, start);
        assert!(models(&lapsed).is_empty(), "it is served");
        lapsed.note(&some, &none, start);
        let gone = models(&lapsed);
        assert_eq!(gone.len(), 1);
        // Unrelated news changes nothing.
        lapsed.note(&none, &none, start + Duration::from_secs(500));
        assert!(!lapsed.expire(start + Duration::from_secs(599)));
        assert_eq!(models(&lapsed), gone);
        assert!(lapsed.expire(start + REMEMBERED_FOR));
        assert!(models(&lapsed).is_empty());
        lapsed.note(&some, &none, start);
        lapsed.note(&none, &some, start);
        assert!(models(&lapsed).is_empty(), "it was registered again");
    }
}
