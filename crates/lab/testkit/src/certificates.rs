//! Certificates of one authority in a temporary folder.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use spillway_link::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity};
use spillway_link::{CertificateFiles, Identity, Link, LinkConfig};
use tempfile::TempDir;

use crate::link::RefuseAll;

/// Name of the cluster that all certificates are for.
pub const CLUSTER: &str = "test";
/// Validity of every certificate, days: longer than any test runs.
const VALID_DAYS: u32 = 5;

/// A certificate authority and the folder with its files; nodes get theirs from [`Self::issue`].
///
/// The folder is removed when this value is dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    authority: Authority,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// Makes an authority and a prefix key, and writes both to a new folder.
    ///
    /// # Panics
    /// If the folder or its files can't be written.
    #[must_use]
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let authority = Authority::new(CLUSTER, validity()).expect("an authority");
        let key = PrefixKey::random().expect("randomness");
        AuthorityFiles::in_folder(folder.path())
            .write(&authority, &key, IfExists::Refuse)
            .expect("files");
        Self { folder, authority }
    }

    /// Returns the folder with all files. Tests may put files of their own there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the authority and hands over its folder.
    #[must_use]
    pub fn into_folder(self) -> TempDir {
        self.folder
    }

    /// Writes a new certificate and key for a node, in place of those it has.
    ///
    /// # Panics
    /// If the names are not valid or the files can't be written.
    #[must_use]
    pub fn issue(&self, region: &str, node: &str) -> CertificateFiles {
        let files = NodeFiles::in_folder(self.folder(), region, node);
        let issued = self.authority.issue(region, node, validity()).expect("a certificate");
        files.write(issued, IfExists::Replace).expect("files");
        files.with_authority(&AuthorityFiles::in_folder(self.folder()))
    }

    /// Issues a certificate and returns the config of a link on a free port of loopback.
    ///
    /// # Panics
    /// If [`Self::issue`] does.
    #[must_use]
    pub fn link_config(&self, region: &str, node: &str) -> LinkConfig {
        let files = self.issue(region, node);
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = LinkConfig::new(identity(region, node), any_port, files);
        // Packets lost on loopback are sent again at once.
        config.transport.rtt_default_ms = 5;
        config
    }

    /// Starts a link of a node that refuses every forwarded request.
    ///
    /// # Panics
    /// If the link does not start.
    #[must_use]
    pub fn start_link(&self, region: &str, node: &str) -> Arc<Link> {
        let config = self.link_config(region, node);
        Arc::new(Link::start(config, Arc::new(RefuseAll)).expect("a link"))
    }
}

/// Returns the identity of a node of [`CLUSTER`].
///
/// # Panics
/// If the names are not valid.
#[must_use]
pub fn identity(region: &str, node: &str) -> Identity {
    Identity::new(CLUSTER, region, node).expect("an identity")
}

fn validity() -> Validity {
    Validity::days(SystemTime::now(), VALID_DAYS).expect("a time")
}
