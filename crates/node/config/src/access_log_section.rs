//! `[access_log]`: a line for each request.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;

/// `[access_log]`: a line of JSON for each completed request, as in `GET /v1/requests`. It never
/// contains text of prompts or replies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessLogSection {
    /// Requests to log.
    pub(crate) requests: LoggedRequests,
    /// Share of successful requests to log, in percent.
    #[schemars(with = "f64", range(min = 0, max = 100))]
    pub(crate) share_percent: Spanned<f64>,
    /// File to write to, reopened after it is moved away. Standard output by default.
    #[schemars(with = "Option<String>")]
    pub(crate) file: Option<Spanned<String>>,
}

/// Requests that the access log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoggedRequests {
    /// None.
    #[default]
    Off,
    /// Those with a status of 400 or more, and those that broke off.
    Errors,
    /// All of these, and the share of the others.
    All,
}

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogConfig {
    /// Requests to log.
    pub requests: LoggedRequests,
    /// Share of successful requests to log, in percent.
    pub share_percent: f64,
    /// File to write to; `None` for standard output.
    pub file: Option<PathBuf>,
}

impl Default for AccessLogSection {
    fn default() -> Self {
        Self {
            requests: LoggedRequests::default(),
            share_percent: Spanned::new(0..0, 100.0),
            file: None,
        }
    }
}

/// Checks the section.
pub(crate) fn lower_access_log(
    source: &Source,
    section: AccessLogSection,
) -> Result<AccessLogConfig, ConfigError> {
    let share = &section.share_percent;
    if !(0.0..=100.0).contains(share.get_ref()) {
        let message = format!("{} is no share in percent", share.get_ref());
        return Err(source.fault(share.span(), message, "give a number from 0 to 100"));
    }
    let file = section.file.map(|name| (source.resolve(name.get_ref()), name.span()));
    if let Some((path, span)) = &file
        && !path.parent().is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir())
    {
        let message = format!("{} is in no folder that is there", path.display());
        return Err(source.fault(span.clone(), message, "make the folder, or name another file"));
    }
    if let Some((path, span)) = file.as_ref().filter(|(path, _)| path.is_dir()) {
        let message = format!("{} is a folder", path.display());
        return Err(source.fault(span.clone(), message, "name a file in it"));
    }
    let file = file.map(|(path, _)| path);
    Ok(AccessLogConfig { requests: section.requests, share_percent: *share.get_ref(), file })
}
