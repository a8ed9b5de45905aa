//! `[access_log]`: a line for each request.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::settings;
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;

settings! {
    /// `[access_log]`: a line of JSON for each completed request, as in `GET /v1/requests`. It never
    /// contains text of prompts or replies.
    pub(crate) struct AccessLogSection {
        /// Requests to log.
        requests: LoggedRequests = LoggedRequests::default(),
        /// Share of successful requests to log, in percent.
        #[schemars(range(min = 0, max = 100))]
        share_percent: f64 = 100.0,
        /// File to write to, reopened after it is moved away. Standard output by default.
        #[schemars(with = "Option<String>")]
        file: Option<Spanned<String>> = None,
    }
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

/// Checks the section.
pub(crate) fn lower_access_log(
    source: &Source,
    section: AccessLogSection,
) -> Result<AccessLogConfig, ConfigError> {
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
    Ok(AccessLogConfig { requests: section.requests, share_percent: section.share_percent, file })
}
