//! Contender: a router that takes part in a contest.

use serde::{Deserialize, Serialize};
use spillway_route::Policy;
use thiserror::Error;

use super::spec::SpecError;
use crate::{Baseline, Conditions, Figures, Knowledge, Scenario, Setup};

/// Name that specifications of Spillway begin with.
const SPILLWAY: &str = "spillway";
/// Name of Spillway's code with the truth and no delays.
const OMNISCIENT: &str = "omni";
/// Region where a central router runs unless its name has another one.
const CENTRAL_REGION: usize = 0;
/// Sign before the number of another region in the name of a central baseline.
const AT: char = '@';

/// Router that takes part in a contest.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Setup(Box<Setup>),
    Baseline {
        baseline: Baseline,
        /// Region of a central router; `None` for one in each region.
        central: Option<usize>,
    },
}

/// Part of a contender in a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Spillway, with any settings.
    Spillway,
    /// Spillway's code with the truth and no delays: a reference that nothing real can be.
    Omniscient,
    /// Router that others have published.
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
    /// [`RouterConfig::with_settings`](crate::RouterConfig::with_settings) reads them after a `:`,
    /// or the name of a baseline. A central one runs in the first region, or in the one whose
    /// number follows an `@`, as with `lmetric-central@1`.
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
                return Self::specified_baseline(text).ok_or_else(|| ContenderError::Unknown {
                    name: text.to_owned(),
                    baselines: Baseline::all().iter().map(|one| one.name.to_string()).collect(),
                });
            }
        };
        let router = setup.router.with_settings(settings)?;
        let setup = Setup { router, ..setup };
        Ok(Self { name: text.to_owned(), way: Way::Setup(Box::new(setup)) })
    }

    fn specified_baseline(text: &str) -> Option<Self> {
        let Some((name, region)) = text.split_once(AT) else {
            return Baseline::named(text).map(Self::baseline);
        };
        Self::baseline(Baseline::named(name)?).in_region(region.parse().ok()?)
    }

    /// Returns a baseline as a contender.
    #[must_use]
    pub fn baseline(baseline: Baseline) -> Self {
        let central = baseline.is_central.then_some(CENTRAL_REGION);
        Self { name: baseline.name.to_string(), way: Way::Baseline { baseline, central } }
    }

    /// Returns this central baseline moved to a region, with a name that includes the region;
    /// `None` for a contender that is not central.
    #[must_use]
    pub fn in_region(&self, region: usize) -> Option<Self> {
        let Way::Baseline { baseline, central: Some(_) } = &self.way else { return None };
        if region == CENTRAL_REGION {
            return Some(Self::baseline(*baseline));
        }
        let way = Way::Baseline { baseline: *baseline, central: Some(region) };
        Some(Self { name: format!("{}{AT}{region}", baseline.name), way })
    }

    /// Returns the name of the baseline in a contender's name, without the region where it runs.
    #[must_use]
    pub fn baseline_of(name: &str) -> &str {
        name.split_once(AT).map_or(name, |(baseline, _)| baseline)
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
            Way::Baseline { .. } => Role::Baseline,
            Way::Setup(setup) if setup.router.knowledge == Knowledge::Truth => Role::Omniscient,
            Way::Setup(_) => Role::Spillway,
        }
    }

    /// Returns the conditions for this contender: a central router runs in one region.
    #[must_use]
    pub fn conditions(&self, conditions: &Conditions) -> Conditions {
        let central = match &self.way {
            Way::Baseline { central, .. } => *central,
            Way::Setup(_) => None,
        };
        Conditions { central, ..conditions.clone() }
    }

    /// Runs a scenario that was made for [`Contender::conditions`].
    #[must_use]
    pub fn run(&self, scenario: &Scenario) -> Figures {
        // All contenders get the size of the caches, as replicas report it.
        match &self.way {
            Way::Setup(setup) => setup.run(scenario),
            Way::Baseline { baseline, .. } => {
                let kv_tokens = scenario.world.kv_tokens();
                scenario.run_with(&mut |position| baseline.make(position, kv_tokens))
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

    #[test]
    fn a_central_baseline_stands_where_its_name_says() {
        let second = Contender::specified("lmetric-central@1").unwrap();
        assert_eq!(second.conditions(&Conditions::default()).central, Some(1));
        assert_eq!((second.name(), second.role()), ("lmetric-central@1", Role::Baseline));
        assert_eq!(Contender::baseline_of(second.name()), "lmetric-central");
        assert_eq!(second.in_region(0).unwrap().name(), "lmetric-central");
        assert_eq!(second.in_region(2).unwrap().name(), "lmetric-central@2");
        for wrong in ["lmetric-local@1", "lmetric-central@x", "omni@1", "none@1"] {
            assert!(Contender::specified(wrong).is_err(), "{wrong}");
        }
    }
}
