//! `[[split]]`: one name for clients, several models behind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_route::{ArmWeight, Split, SplitError};
use spillway_types::{ArmName, ModelName, ModelVersion, Percent, SplitArm, SplitBy, is_token};
use spillway_view::{ArmSpec, SplitSpec, StickyCookie};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::names::ServedNames;
use crate::source::Source;

/// Maximum number of arms of one split: each is a series in the metrics, and no experiment needs
/// more.
const ARMS_MAX: usize = 32;
/// Maximum length of an arm's name.
const ARM_NAME_MAX: usize = 64;
/// Time for which clients keep the cookie of a split: an experiment of a few weeks ends before.
const STICKY_MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// `[[split]]`: one name for clients, several models behind it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitSection {
    /// Model name in requests: a new name, or the name of a model, whose requests are then split.
    #[schemars(with = "String")]
    pub(crate) model: Spanned<String>,
    /// Basis for choosing a request's arm: `random`, `user`, `header:NAME` or `cookie:NAME`.
    #[serde(default = "default_by")]
    #[schemars(with = "String")]
    pub(crate) by: Spanned<String>,
    /// Name of a cookie that keeps a client on the arm that was chosen for it, for 30 days.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) sticky_cookie: Option<Spanned<String>>,
    /// Models that share the requests.
    #[schemars(with = "Vec<ArmSection>")]
    pub(crate) arms: Spanned<Vec<ArmSection>>,
}

/// One of the models that share a split's requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArmSection {
    /// Name of the arm, unique in the split; it is used in metrics, headers, and requests of
    /// testers.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Model that serves the arm.
    #[schemars(with = "String")]
    pub(crate) model: Spanned<String>,
    /// Share of the requests in percent, with at most one decimal; the sum of all arms is 100. An
    /// arm with 0 gets only requests that name it.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0, max = 100))]
    pub(crate) weight_percent: Option<Percent>,
    /// Share of the requests relative to the other arms, instead of in percent: 9 and 1 are 90 %
    /// and 10 %.
    #[serde(default)]
    pub(crate) weight: Option<u32>,
    /// Version of the model that serves the arm; any by default.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) version: Option<Spanned<String>>,
}

impl SplitSection {
    /// Converts the split to the data path's form. `splits` are the names of all splits.
    ///
    /// # Errors
    /// Returns all faults of its arms, else the first fault, with their lines.
    pub(crate) fn lower(
        self,
        source: &Source,
        served: &ServedNames<'_>,
        splits: &BTreeSet<String>,
    ) -> Result<SplitSpec, ConfigErrors> {
        let name = ModelName::from(self.model.get_ref().as_str());
        let by: SplitBy = self.by.get_ref().parse().map_err(|error| {
            let message = format!("{error}");
            source.fault(self.by.span(), message, "e.g. by = \"header:x-user\"")
        })?;
        let sticky = self.sticky(source, &by)?;
        let span = self.arms.span();
        let sections = self.arms.into_inner();
        if sections.len() > ARMS_MAX {
            let message = format!("a split has {ARMS_MAX} arms at most");
            return Err(source.fault(span, message, "leave some out").into());
        }
        let shares = shares(&sections).map_err(|message| {
            let remedy = "give each arm a weight_percent, which make 100, or each a weight";
            source.fault(span.clone(), message, remedy)
        })?;
        let mut errors = ConfigErrors::default();
        let mut weights = Vec::new();
        let mut arms = Vec::new();
        for (arm, weight) in sections.into_iter().zip(shares) {
            let is_again = |known: &ArmWeight| known.name.as_str() == arm.name.get_ref().as_str();
            if weights.iter().any(is_again) {
                let message = format!("a second arm is called {:?}", arm.name.get_ref());
                errors.add(source.fault(arm.name.span(), message, "give each its own name"));
            }
            errors.keep(arm.check(source, served, name.as_str(), splits));
            let arm_name = ArmName::from(arm.name.into_inner());
            weights.push(ArmWeight { name: arm_name.clone(), weight });
            arms.push(ArmSpec {
                arm: Arc::new(SplitArm { split: name.clone(), arm: arm_name }),
                model: ModelName::from(arm.model.into_inner()),
                version: arm.version.map(|version| ModelVersion::from(version.into_inner())),
            });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let split = Split::new(&name, weights).map_err(|error| {
            let remedy = match error {
                SplitError::NoWeight => "give at least one arm a weight above 0",
                SplitError::SameName(_) => "give each its own name",
            };
            source.fault(span, format!("the split can't be: {error}"), remedy)
        })?;
        Ok(SplitSpec { name, by, sticky, split: Arc::new(split), arms })
    }

    fn sticky(
        &self,
        source: &Source,
        by: &SplitBy,
    ) -> Result<Option<Arc<StickyCookie>>, ConfigError> {
        let Some(cookie) = &self.sticky_cookie else { return Ok(None) };
        check_cookie_name(source, cookie)?;
        let name = cookie.get_ref().clone();
        if *by == SplitBy::Cookie(name.clone()) {
            let message = "the split goes by this cookie already";
            let remedy = "remove sticky_cookie, or give it another name";
            return Err(source.fault(cookie.span(), message, remedy));
        }
        Ok(Some(Arc::new(StickyCookie { name, max_age: STICKY_MAX_AGE })))
    }
}

/// Returns the weights of all arms against each other.
fn shares(arms: &[ArmSection]) -> Result<Vec<u32>, String> {
    let percents: Option<Vec<Percent>> = arms.iter().map(|arm| arm.weight_percent).collect();
    let weights: Option<Vec<u32>> = arms.iter().map(|arm| arm.weight).collect();
    match (percents, weights) {
        // `Split::new` reports that no arm has a weight.
        _ if arms.is_empty() => Ok(Vec::new()),
        // Sums of percentages are exact here: they are counted in permille.
        (Some(percents), _) if arms.iter().all(|arm| arm.weight.is_none()) => {
            let permille: Vec<u32> = percents.iter().map(|it| it.permille().into()).collect();
            match permille.iter().sum() {
                1_000 => Ok(permille),
                sum => Err(format!("the weights of the arms make {} %", f64::from(sum) / 10.0)),
            }
        }
        (None, Some(weights)) if arms.iter().all(|arm| arm.weight_percent.is_none()) => Ok(weights),
        _ => Err("some arms have no weight, or another kind of weight than others".to_owned()),
    }
}

impl ArmSection {
    fn check(
        &self,
        source: &Source,
        served: &ServedNames<'_>,
        own: &str,
        splits: &BTreeSet<String>,
    ) -> Result<(), ConfigError> {
        let name = self.name.get_ref();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=ARM_NAME_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            let message = format!("an arm can't be called {name:?}");
            let remedy = format!("use up to {ARM_NAME_MAX} letters, digits, hyphens and dots");
            return Err(source.fault(self.name.span(), message, remedy));
        }
        let model = self.model.get_ref();
        // An arm may serve the model whose name the split has taken: that one is not split again.
        if model != own && splits.contains(model.as_str()) {
            let message = format!("{model:?} is a split itself");
            let remedy = "name a model that replicas serve, and give its arms here";
            return Err(source.fault(self.model.span(), message, remedy));
        }
        served.check_model(source, &self.model)?;
        match &self.version {
            Some(version) => served.check_version(source, model, version),
            None => Ok(()),
        }
    }
}

/// Checks the name of a cookie.
///
/// # Errors
/// Returns an error if clients could not send a cookie of this name back.
pub(crate) fn check_cookie_name(
    source: &Source,
    name: &Spanned<String>,
) -> Result<(), ConfigError> {
    if is_token(name.get_ref()) {
        return Ok(());
    }
    let message = format!("a cookie can't be called {:?}", name.get_ref());
    Err(source.fault(name.span(), message, "use letters, digits and hyphens"))
}

fn default_by() -> Spanned<String> {
    Spanned::new(0..0, "random".to_owned())
}
