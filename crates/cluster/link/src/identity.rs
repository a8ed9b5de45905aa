//! Identity of a node: the names in its certificate, which its peers expect.

use std::fmt;
use std::sync::Arc;

use spillway_types::{NodeName, RegionName};
use thiserror::Error;

/// Scheme of the URI in a node's certificate.
const SCHEME: &str = "spillway://";
/// Last label of a node's DNS name, which exists only in certificates; no name server knows it.
const DNS_SUFFIX: &str = "spillway";
/// Most bytes of a label in a DNS name; node and region are such labels.
const LABEL_BYTES_MAX: usize = 63;

/// Error: a name that can't be part of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{name}` can't name a {what}: 1 to 63 of a-z, 0-9 and `-` are allowed, with no `-` at either end"
)]
pub struct NameError {
    /// Kind of the name: `cluster`, `region` or `node`.
    pub what: &'static str,
    /// The name, cut after 80 characters.
    pub name: String,
}

/// Identity of a node in a cluster, for which the certificate URI
/// `spillway://<cluster>/<region>/<node>` stands.
///
/// The names are valid labels of a DNS name, so that URI and DNS name always agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    cluster: Arc<str>,
    region: RegionName,
    node: NodeName,
}

impl Identity {
    /// Makes the identity of the node `node` of `region` in the cluster `cluster`.
    ///
    /// # Errors
    /// Returns an error if a name is not a label of a DNS name.
    pub fn new(cluster: &str, region: &str, node: &str) -> Result<Self, NameError> {
        check_label("cluster", cluster)?;
        check_label("region", region)?;
        check_label("node", node)?;
        Ok(Self { cluster: cluster.into(), region: region.into(), node: node.into() })
    }

    /// Reads the URI of a certificate; `None` if it is not that of a node.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let mut labels = uri.strip_prefix(SCHEME)?.split('/');
        let (cluster, region, node) = (labels.next()?, labels.next()?, labels.next()?);
        if labels.next().is_some() {
            return None;
        }
        Self::new(cluster, region, node).ok()
    }

    /// Returns the name of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the name of the region.
    #[must_use]
    pub fn region(&self) -> &RegionName {
        &self.region
    }

    /// Returns the name of the node.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Returns the URI in the node's certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.cluster, self.region, self.node)
    }

    /// Returns the DNS name in the node's certificate, which its peers check.
    #[must_use]
    pub fn dns_name(&self) -> String {
        format!("{}.{}.{DNS_SUFFIX}", self.node, self.region)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.region, self.node)
    }
}

/// Returns the URI in the certificate of a cluster's CA.
pub(crate) fn authority_uri(cluster: &str) -> String {
    format!("{SCHEME}{cluster}")
}

/// Reads the URI of a CA; `None` if it names no cluster.
pub(crate) fn cluster_of_authority(uri: &str) -> Option<&str> {
    let cluster = uri.strip_prefix(SCHEME)?;
    check_label("cluster", cluster).ok().map(|()| cluster)
}

/// Checks that `name` is a label of a DNS name.
pub(crate) fn check_label(what: &'static str, name: &str) -> Result<(), NameError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=LABEL_BYTES_MAX).contains(&name.len());
    let edges = name.starts_with('-') || name.ends_with('-');
    if fits && !edges && name.bytes().all(allowed) {
        return Ok(());
    }
    // The error shows only the first 80 characters of a name, which may be hostile.
    Err(NameError { what, name: name.chars().take(80).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_uri_and_a_dns_name_say_who_it_is() {
        let identity = Identity::new("prod", "eu-central-1", "node-a").unwrap();
        assert_eq!(identity.uri(), "spillway://prod/eu-central-1/node-a");
        assert_eq!(identity.dns_name(), "node-a.eu-central-1.spillway");
        assert_eq!(Identity::from_uri(&identity.uri()), Some(identity));
    }

    #[test]
    fn what_is_no_identity_is_none() {
        for uri in [
            "",
            "spillway://",
            "spillway://prod",
            "spillway://prod/eu",
            "spillway://prod/eu/",
            "spillway://prod/eu/a/b",
            "spillway://prod//a",
            "spiffe://prod/eu/a",
            "spillway://Prod/eu/a",
            "spillway://prod/eu/a.b",
            "spillway://prod/eu/-a",
            "spillway://prod/eu/a-",
            "spillway://prod/eu/a?b",
        ] {
            assert_eq!(Identity::from_uri(uri), None, "{uri}");
        }
        assert_eq!(Identity::from_uri(&format!("spillway://p/e/{}", "a".repeat(64))), None);
    }

    #[test]
    fn an_authority_names_its_cluster() {
        assert_eq!(cluster_of_authority(&authority_uri("prod")), Some("prod"));
        assert_eq!(cluster_of_authority("spillway://prod/eu/a"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic_and_a_reading_writes_the_same(
            uri in "(spillway://)?[a-z0-9/-]{0,40}",
        ) {
            if let Some(identity) = Identity::from_uri(&uri) {
                prop_assert_eq!(identity.uri(), uri);
            }
        }
    }
}
