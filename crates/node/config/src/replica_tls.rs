//! `tls` of a `[[replica]]`.

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_upstream::{ClientIdentity, ReplicaTlsError, TlsSpec};
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::{Source, read_file};

/// TLS towards a replica.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaTlsSection {
    /// PEM file with the CA certificates to trust instead of the system's.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) ca: Option<Spanned<String>>,
    /// Server name for SNI and verification, if it is not the host of the URL.
    #[serde(default)]
    pub(crate) server_name: Option<String>,
    /// PEM file with the client certificate for the replica, and its intermediates. Needs `key`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) certificate: Option<Spanned<String>>,
    /// PEM file with the private key of `certificate`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) key: Option<Spanned<String>>,
}

/// Reads the files of the section; without one, the system's CAs are trusted.
///
/// # Errors
/// Returns an error if a file can't be read, or if certificate and key do not belong together.
pub(crate) fn lower_tls(
    section: Option<ReplicaTlsSection>,
    source: &Source,
) -> Result<TlsSpec, ConfigError> {
    let Some(section) = section else {
        return Ok(TlsSpec { ca_pem: None, server_name: None, identity: None });
    };
    let identity = match (&section.certificate, &section.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(lower_identity(certificate, key, source)?),
        (Some(certificate), None) => {
            let message = "the client certificate has no key";
            return Err(source.fault(certificate.span(), message, "add key = \"client.key.pem\""));
        }
        (None, Some(key)) => {
            let remedy = "add certificate = \"client.pem\"";
            return Err(source.fault(key.span(), "the key has no client certificate", remedy));
        }
    };
    let ca_pem = section.ca.map(|file| read_file(&file, source)).transpose()?;
    Ok(TlsSpec { ca_pem, server_name: section.server_name, identity })
}

/// Reads the certificate that is shown to a replica, and its key.
///
/// # Errors
/// Returns an error if a file can't be read, or if both do not belong together.
fn lower_identity(
    certificate: &Spanned<String>,
    key: &Spanned<String>,
    source: &Source,
) -> Result<ClientIdentity, ConfigError> {
    let identity = ClientIdentity {
        certificate_pem: read_file(certificate, source)?,
        key_pem: read_file(key, source)?,
    };
    identity.check().map_err(|error| {
        let (at, remedy) = match error {
            ReplicaTlsError::Key(_) => (key, "give a PEM file with one private key"),
            ReplicaTlsError::Identity(_) => {
                (key, "give the key that the certificate was made with")
            }
            _ => (certificate, "give a PEM file with the certificate first"),
        };
        source.fault(at.span(), error.to_string(), remedy)
    })?;
    Ok(identity)
}
