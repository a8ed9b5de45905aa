//! Specification of a router: the names of its settings with their values, as text.

use serde_json::Value;
use thiserror::Error;

use crate::RouterConfig;

/// Part of the settings whose names may be written without it, for brevity.
const IMPLIED: &str = "tuning";

/// Text that specifies no router.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Text without a value.
    #[error("{0} needs a value: key=value")]
    NoValue(String),
    /// Name of no setting.
    #[error("no setting is called {key}; there are {}", known.join(", "))]
    Unknown {
        /// Name as given.
        key: String,
        /// Names of all settings.
        known: Vec<String>,
    },
    /// Value that a setting can't have.
    #[error("{key} can't be {value}: {reason}")]
    Value {
        /// Name of the setting.
        key: String,
        /// Value as given.
        value: String,
        /// Reason, as the type of the setting gives it.
        reason: String,
    },
}

impl RouterConfig {
    /// Returns these settings with those of a text in their stead: `key=value`, with `:` between
    /// two of them. A key is a path with dots, such as `spill.gain_share` or `predicted.kappa`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such setting, or if it can't have the value.
    pub fn with_settings(&self, text: &str) -> Result<Self, SpecError> {
        let mut settings = text.split(':').filter(|setting| !setting.is_empty());
        settings.try_fold(*self, |config, setting| config.with_setting(setting))
    }

    fn with_setting(&self, setting: &str) -> Result<Self, SpecError> {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(SpecError::NoValue(setting.to_owned()));
        };
        let wrong = |error: serde_json::Error| SpecError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            reason: error.to_string(),
        };
        // The settings' own serialization lists the settings, so a new one needs no entry here.
        let mut tree = serde_json::to_value(self).map_err(wrong)?;
        let Some(slot) = find(&mut tree, key) else {
            let known = names(&serde_json::to_value(self).map_err(wrong)?);
            return Err(SpecError::Unknown { key: key.to_owned(), known });
        };
        // Numbers and booleans are JSON, names of variants are not.
        *slot = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let config: Self = serde_json::from_value(tree).map_err(wrong)?;
        Ok(Self { retries: self.retries, ..config })
    }
}

/// Returns the slot of a setting; groups of settings have none.
fn find<'a>(tree: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let path = format!("/{}", key.replace('.', "/"));
    let implied = format!("/{IMPLIED}{path}");
    let path = if tree.pointer(&path).is_some() { path } else { implied };
    tree.pointer_mut(&path).filter(|slot| !slot.is_object())
}

/// Returns the names of all settings, in the shortest form that [`find`] knows.
fn names(tree: &Value) -> Vec<String> {
    let Value::Object(fields) = tree else { return Vec::new() };
    let mut all = Vec::new();
    for (name, value) in fields {
        let within = names(value);
        match value {
            Value::Object(_) if name == IMPLIED => all.extend(within),
            Value::Object(_) => all.extend(within.iter().map(|one| format!("{name}.{one}"))),
            _ => all.push(name.clone()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use spillway_route::{Policy, Push};
    use spillway_types::Speed;

    use super::*;
    use crate::Knowledge;

    fn config() -> RouterConfig {
        RouterConfig::new(Policy::PredictedLatency, Speed::UNKNOWN)
    }

    #[test]
    fn settings_of_all_groups_are_found_and_others_kept() {
        let text = "spill.gain_share=0.25:predicted.kappa=0:predicted.push=always:spills=false:\
                    knowledge=truth:spill.guests_max_permille=200:attempts_max=1";
        let made = config().with_settings(text).unwrap();
        let mut expected = config();
        expected.terms.gain_share = 0.25;
        expected.tuning.predicted.kappa = 0.0;
        expected.tuning.predicted.push = Push::Always;
        expected.spills = false;
        expected.knowledge = Knowledge::Truth;
        expected.terms.guests_max_permille = Some(200);
        expected.attempts_max = 1;
        assert_eq!(format!("{made:?}"), format!("{expected:?}"));
        assert_eq!(format!("{:?}", config().with_settings("").unwrap()), format!("{:?}", config()));
    }

    #[test]
    fn a_key_is_known_with_its_whole_path_as_well() {
        let short = config().with_settings("predicted.crowding=0.5").unwrap();
        let long = config().with_settings("tuning.predicted.crowding=0.5").unwrap();
        assert_eq!(short.tuning, long.tuning);
        assert_ne!(short.tuning, config().tuning);
    }

    #[test]
    fn an_unknown_key_is_told_with_all_that_there_are() {
        let error = config().with_settings("predicted.capa=0").unwrap_err().to_string();
        assert!(error.starts_with("no setting is called predicted.capa; there are "), "{error}");
        for known in ["predicted.kappa", "spill.gain_share", "knowledge", "spills"] {
            assert!(error.contains(known), "{error}");
        }
        // A group is no setting.
        assert!(matches!(config().with_settings("spill=1"), Err(SpecError::Unknown { .. })));
    }

    #[test]
    fn a_value_that_a_setting_cannot_have_is_told() {
        let error = config().with_settings("knowledge=most").unwrap_err().to_string();
        assert!(error.contains("knowledge can't be most") && error.contains("truth"), "{error}");
        assert!(matches!(config().with_settings("spills=2"), Err(SpecError::Value { .. })));
        let error = config().with_settings("spills").unwrap_err();
        assert_eq!(error, SpecError::NoValue("spills".to_owned()));
    }
}
