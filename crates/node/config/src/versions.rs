//! `versions` of a replica: the versions of its models that it serves.

use std::collections::BTreeMap;

use spillway_types::{ModelName, ModelVersion};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::names::check_version_text;
use crate::source::Source;

/// Maximum number of versions of a model that one replica serves: each is a group of replicas on
/// each route.
const VERSIONS_MAX: usize = 64;

/// Versions by model, as they are written.
pub(crate) type VersionsSection = BTreeMap<String, Spanned<Vec<Spanned<String>>>>;

/// Checks the section.
///
/// # Errors
/// Returns the first fault of each model, with its line.
pub(crate) fn lower_versions(
    source: &Source,
    section: VersionsSection,
    models: &[String],
) -> Result<BTreeMap<ModelName, Vec<ModelVersion>>, ConfigErrors> {
    let lowered = all(section.into_iter().map(|(model, versions)| {
        let span = versions.span();
        let fault = |message: String, remedy: &str| source.fault(span.clone(), message, remedy);
        if !models.contains(&model) {
            let message = format!("the replica does not serve {model:?}");
            return Err(fault(message, "add the model to models, or remove its versions"));
        }
        let count = versions.get_ref().len();
        if !(1..=VERSIONS_MAX).contains(&count) {
            let message = format!("a replica serves 1 to {VERSIONS_MAX} versions of a model");
            return Err(fault(message, "name its versions, e.g. [\"1\", \"2\"]"));
        }
        let mut list: Vec<ModelVersion> = Vec::with_capacity(count);
        for version in versions.into_inner() {
            check_version_text(source, &version)?;
            let name = ModelVersion::from(version.get_ref().as_str());
            if list.contains(&name) {
                let message = format!("the version {name} is there twice");
                return Err(source.fault(version.span(), message, "name each version once"));
            }
            list.push(name);
        }
        Ok::<_, ConfigError>((ModelName::from(model), list))
    }))?;
    Ok(lowered.into_iter().collect())
}
