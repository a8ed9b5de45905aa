//! Contender: way of routing that takes part in a contest.

use serde::{Deserialize, Serialize};
use spillway_route::Policy;
use thiserror::Error;

use super::spec::SpecError;
use crate::{Baseline, Conditions, Figures, Knowledge, Scenario, Setup};

/// Name that specifications of Spillway begin with.
const SPILLWAY: &str = "spillway";
/// Name of Spillway's code with the truth and no delays.
const OMNISCIENT: &str = "omni";
/// Region where a central router stands: the one with most clients, where that differs.
const CENTRAL_REGION: usize = 0;

/// Way of routing that takes part in a contest.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Setup(Box<Setup>),
    Baseline(Baseline),
}

/// Part of a contender in a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Spillway, with any settings.
    Spillway,
    /// Spillway's code with the truth and no delays: a reference that nothing real can be.
    Omniscient,
    /// Way of routing that others have published.
    Baseline,
}

/// Text that names no contender.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContenderError {
    /// Name of nothing.
    #[error(
        "no router is called {name}; there are {SPILLWAY}, {OMNISCIENT} and the baselines {}",
        baselines.join(", ")
    )]
    Unknown {
        /// Name as given.
        name: String,
        /// Names of all baselines.
        baselines: Vec<String>,
    },
    /// Settings that Spillway does not have.
    #[error(transparent)]
    Settings(#[from] SpecError),
}

impl Contender {
    /// Returns the contender that a text specifies: `spillway`, `omni`, each with settings as
    /// [`RouterConfig::with_settings`](crate::RouterConfig::with_settings) reads them after a `:`, or the name of a baseline.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such contender or setting.
    pub fn specified(text: &str) -> Result<Self, ContenderError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let setup = match name {
            SPILLWAY => Setup::policy(Policy::PredictedLatency),
            OMNISCIENT => Setup::omniscient(Policy::PredictedLatency),
            _ => {
                let found = Baseline::named(text).map(Self::baseline);
                return found.ok_or_else(|| ContenderError::Unknown {
                    name: text.to_owned(),
                    baselines: Baseline::all().iter().map(|one| one.name.to_string()).collect(),
                });
            }
        };
        let router = setup.router.with_settings(settings)?;
        let setup = Setup { router, ..setup };
        Ok(Self { name: text.to_owned(), way: Way::Setup(Box::new(setup)) })
    }

    /// Returns a baseline as a contender.
    #[must_use]
    pub fn baseline(baseline: Baseline) -> Self {
        Self { name: baseline.name.to_string(), way: Way::Baseline(baseline) }
    }

    /// Returns the text that specifies the contender.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the contender's part in a contest.
    #[must_use]
    pub fn role(&self) -> Role {
        match &self.way {
            Way::Baseline(_) => Role::Baseline,
            Way::Setup(setup) if setup.router.knowledge == Knowledge::Truth => Role::Omniscient,
            Way::Setup(_) => Role::Spillway,
        }
    }

    /// Returns the conditions as they are for this contender: a central router stands in one
    /// region.
    #[must_use]
    pub fn conditions(&self, conditions: &Conditions) -> Conditions {
        let is_central = matches!(&self.way, Way::Baseline(baseline) if baseline.is_central);
        Conditions { central: is_central.then_some(CENTRAL_REGION), ..conditions.clone() }
    }

    /// Runs a scenario that was made for [`Contender::conditions`].
    #[must_use]
    pub fn run(&self, scenario: &Scenario) -> Figures {
        // All contenders are told the size of the caches, as replicas report it.
        let engine = &scenario.world.engine;
        let kv_tokens = engine.kv_blocks.get() as f32 * engine.block_tokens.get() as f32;
        match &self.way {
            Way::Setup(setup) => {
                let mut setup = setup.clone();
                setup.router.speed.kv_tokens = kv_tokens;
                setup.run(scenario)
            }
            Way::Baseline(baseline) => {
                scenario.run_with(&mut |place| baseline.make(place, kv_tokens))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_found_by_their_specifications() {
        let role = |text| Contender::specified(text).unwrap().role();
        assert_eq!(role("spillway"), Role::Spillway);
        assert_eq!(role("spillway:spills=false:predicted.kappa=0"), Role::Spillway);
        assert_eq!(role("omni"), Role::Omniscient);
        for baseline in Baseline::all() {
            assert_eq!(role(baseline.name), Role::Baseline);
        }
        assert_eq!(
            Contender::specified("spillway:spills=false").unwrap().name(),
            "spillway:spills=false"
        );
    }

    #[test]
    fn a_wrong_name_is_answered_with_all_names() {
        let error = Contender::specified("spilway").unwrap_err().to_string();
        for name in ["spilway", "omni", "lmetric-central"] {
            assert!(error.contains(name), "{error}");
        }
        let error = Contender::specified("spillway:kapa=0").unwrap_err().to_string();
        assert!(error.contains("predicted.kappa"), "{error}");
    }

    #[test]
    fn only_central_baselines_have_a_central_region() {
        let central =
            |text| Contender::specified(text).unwrap().conditions(&Conditions::default()).central;
        assert_eq!(central("lmetric-central"), Some(CENTRAL_REGION));
        assert_eq!(
            (central("lmetric-local"), central("spillway"), central("omni")),
            (None, None, None)
        );
    }
}
