//! Models that other regions have reported, remembered while such a region is silent.
//!
//! A region that is silent, or that has just restarted, still has the models that it had. A client
//! that asks for one has to try again, and must not get the error that there is no such model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spillway_types::{ModelName, RegionName};

/// Time for which a model is remembered after its region reports without it: long enough for a node
/// that restarts to find all its replicas again.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of models that are remembered of one region.
const MODELS_MAX: usize = 10_000;

/// Models by region, each with the time since which its region reports without it.
#[derive(Debug, Default)]
pub struct ReportedModels {
    regions: BTreeMap<RegionName, BTreeMap<ModelName, Option<Instant>>>,
}

impl ReportedModels {
    /// Notes the models that a region lists. A missing model counts as missing only if `reports` is
    /// true: the region's datagrams arrive and all its names are known.
    pub fn note<'m>(
        &mut self,
        region: &RegionName,
        told: impl Iterator<Item = &'m ModelName>,
        reports: bool,
        now: Instant,
    ) {
        let models = self.regions.entry(region.clone()).or_default();
        let mut missing: BTreeSet<ModelName> = models.keys().cloned().collect();
        for model in told {
            missing.remove(model);
            if models.contains_key(model) || models.len() < MODELS_MAX {
                models.insert(model.clone(), None);
            }
        }
        for model in missing {
            let Some(since) = models.get_mut(&model) else { continue };
            match reports {
                true if now >= *since.get_or_insert(now) + REMEMBERED_FOR => {
                    models.remove(&model);
                }
                true => {}
                // Nothing is known of the model: it is remembered until the region reports.
                false => *since = None,
            }
        }
    }

    /// Forgets regions that are no longer part of the cluster.
    pub fn keep(&mut self, is_member: impl Fn(&RegionName) -> bool) {
        self.regions.retain(|region, _| is_member(region));
    }

    /// Returns every model that is remembered.
    #[must_use]
    pub fn models(&self) -> BTreeSet<ModelName> {
        self.regions.values().flat_map(|models| models.keys().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        remembered: ReportedModels,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            #[expect(clippy::disallowed_methods, reason = "a test needs some moment")]
            let start = Instant::now();
            Self { remembered: ReportedModels::default(), start }
        }

        fn told(
            &mut self,
            second: u64,
            region: &str,
            models: &[&str],
            reports: bool,
        ) -> Vec<String> {
            let models: Vec<ModelName> =
                models.iter().map(|model| ModelName::from(*model)).collect();
            let now = self.start + Duration::from_secs(second);
            self.remembered.note(&region.into(), models.iter(), reports, now);
            self.remembered.models().iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn a_silent_region_keeps_its_models_however_long_it_is_silent() {
        let mut world = World::new();
        assert_eq!(world.told(0, "eu", &["big", "tiny"], true), ["big", "tiny"]);
        assert_eq!(world.told(1, "eu", &[], false), ["big", "tiny"]);
        assert_eq!(world.told(100_000, "eu", &[], false), ["big", "tiny"]);
    }

    #[test]
    fn a_model_that_its_region_reports_without_is_forgotten_after_a_minute() {
        let mut world = World::new();
        world.told(0, "eu", &["big", "tiny"], true);
        assert_eq!(world.told(1, "eu", &["tiny"], true), ["big", "tiny"]);
        assert_eq!(world.told(60, "eu", &["tiny"], true), ["big", "tiny"]);
        assert_eq!(world.told(61, "eu", &["tiny"], true), ["tiny"]);
        // A region that was silent in between has had no time to report.
        world.told(70, "eu", &["tiny", "big"], true);
        world.told(80, "eu", &["tiny"], true);
        world.told(100, "eu", &[], false);
        assert_eq!(world.told(150, "eu", &["tiny"], true), ["big", "tiny"]);
    }

    #[test]
    fn a_region_that_leaves_the_cluster_takes_its_models_with_it() {
        let mut world = World::new();
        world.told(0, "eu", &["big"], true);
        world.told(0, "us", &["tiny"], true);
        world.remembered.keep(|region| region.as_str() == "us");
        assert_eq!(world.told(0, "us", &["tiny"], true), ["tiny"]);
    }

    #[test]
    fn only_so_many_models_of_one_region_are_remembered() {
        let mut world = World::new();
        let names: Vec<String> = (0..MODELS_MAX + 5).map(|number| format!("m{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(world.told(0, "eu", &names, true).len(), MODELS_MAX);
    }
}
