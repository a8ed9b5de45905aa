//! `credential` of a `[[replica]]`.

use std::io;

use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;

/// A header added to each request to a replica. Exactly one of `value`, `value_env` and
/// `value_file` must be given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialSection {
    /// Name of the header.
    #[serde(default = "default_credential_header")]
    pub(crate) header: String,
    /// Text in front of the value, e.g. `"Bearer "`.
    #[serde(default)]
    pub(crate) prefix: String,
    /// Value; better keep secrets out of this file.
    #[serde(default)]
    pub(crate) value: Option<String>,
    /// Environment variable that holds the value.
    #[serde(default)]
    pub(crate) value_env: Option<String>,
    /// File that holds the value; surrounding white space is removed. The file is read again when
    /// it changes.
    #[serde(default)]
    pub(crate) value_file: Option<String>,
}

/// Reads the value, and checks that it can be sent as a header.
///
/// # Errors
/// Returns an error if there is no value, or not exactly one.
pub(crate) fn lower_credential(
    section: Spanned<CredentialSection>,
    source: &Source,
) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let span = section.span();
    let fault = |message: String, remedy: &str| source.fault(span.clone(), message, remedy);
    let section = section.into_inner();
    let value = match (section.value, section.value_env, section.value_file) {
        (Some(value), None, None) => value,
        (None, Some(variable), None) => std::env::var(&variable).map_err(|_| {
            fault(format!("the environment variable {variable} is not set"), "set it")
        })?,
        (None, None, Some(file)) => {
            let read = source.read(&file);
            read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
                .map_err(|error| fault(format!("can't read {file}: {error}"), "check the path"))?
                .trim()
                .to_owned()
        }
        _ => {
            let remedy = "give exactly one of value, value_env and value_file";
            return Err(fault("the credential has no value, or several".to_owned(), remedy));
        }
    };
    // A file that is being replaced may be empty for a moment.
    if value.is_empty() {
        return Err(fault("the credential is empty".to_owned(), "give the API's key"));
    }
    let name: HeaderName = section.header.parse().map_err(|_| {
        fault(format!("{:?} is not a header name", section.header), "e.g. authorization")
    })?;
    let mut value = HeaderValue::from_str(&format!("{}{value}", section.prefix))
        .map_err(|_| fault("the value can't stand in a header".to_owned(), "check the secret"))?;
    // Keeps it out of debug output and of HTTP/2's compression tables.
    value.set_sensitive(true);
    Ok((name, value))
}

fn default_credential_header() -> String {
    "authorization".to_owned()
}
