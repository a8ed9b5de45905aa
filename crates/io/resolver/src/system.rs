//! Files in which the system names hosts and name servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::client::DnsClient;
use crate::hosts_file::HostsFile;

/// Most bytes of such a file that are read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Files in which the system names hosts and name servers.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    /// Hosts file.
    pub hosts: PathBuf,
    /// Name servers.
    pub servers: NameServers,
}

/// Name servers that are asked.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// Name servers of this file, a resolv.conf.
    ResolvConf(PathBuf),
    /// These name servers.
    Fixed(Vec<SocketAddr>),
}

impl Default for SystemFiles {
    fn default() -> Self {
        let servers = NameServers::ResolvConf("/etc/resolv.conf".into());
        Self { hosts: "/etc/hosts".into(), servers }
    }
}

/// State that was read from the files, and is read again when they change.
#[derive(Debug)]
pub(crate) struct SystemState {
    files: SystemFiles,
    hosts_version: Option<FileVersion>,
    servers_version: Option<FileVersion>,
}

/// Version of a file, by what the file system reports; the content need not be read for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// Content of files that changed.
#[derive(Debug, Default)]
pub(crate) struct SystemChange {
    pub(crate) hosts: Option<HostsFile>,
    pub(crate) client: Option<Option<Arc<DnsClient>>>,
}

impl SystemState {
    pub(crate) fn new(files: SystemFiles) -> Self {
        Self { files, hosts_version: None, servers_version: None }
    }

    /// Reads the files that changed since the last call; at the first call, all.
    pub(crate) fn read(&mut self, is_first: bool) -> SystemChange {
        let mut change = SystemChange::default();
        let hosts_version = version(&self.files.hosts);
        if is_first || hosts_version != self.hosts_version {
            self.hosts_version = hosts_version;
            change.hosts = Some(HostsFile::read(&text(&self.files.hosts)));
        }
        match &self.files.servers {
            NameServers::ResolvConf(path) => {
                let servers_version = version(path);
                if is_first || servers_version != self.servers_version {
                    self.servers_version = servers_version;
                    let client = DnsClient::of_resolv_conf(&text(path));
                    change.client = Some(client.map(Arc::new));
                }
            }
            NameServers::Fixed(servers) => {
                if is_first {
                    let client = DnsClient::of_servers(servers, Duration::from_secs(2));
                    change.client = Some(client.map(Arc::new));
                }
            }
        }
        change
    }
}

fn version(path: &Path) -> Option<FileVersion> {
    use std::os::unix::fs::MetadataExt as _;
    let about = std::fs::metadata(path).ok()?;
    let (modified, bytes, inode) = (about.modified().ok(), about.len(), about.ino());
    Some(FileVersion { modified, bytes, inode })
}

/// Returns the text of a file; none if it can't be read: then it names nothing.
fn text(path: &Path) -> String {
    use std::io::Read as _;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_else(|error| {
        tracing::debug!(path = %path.display(), %error, "can't read");
        Vec::new()
    });
    String::from_utf8_lossy(&bytes).into_owned()
}
