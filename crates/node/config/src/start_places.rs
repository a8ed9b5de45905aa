//! Places of settings that need the machine to be checked: ports, certificates, folders.

use toml::Spanned;

use crate::cluster_section::ClusterSection;
use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::source::Source;

/// Place of a setting, for errors that are found later than the file is read.
#[derive(Debug, Clone)]
pub struct Named(ConfigError);

impl Named {
    fn new<T>(source: &Source, value: &Spanned<T>) -> Self {
        Self(source.fault(value.span(), "", ""))
    }

    /// Creates an error at the setting.
    #[must_use]
    pub fn error(&self, message: String, remedy: &str) -> ConfigError {
        ConfigError { message, remedy: remedy.to_owned(), ..self.0.clone() }
    }

    /// Creates a warning at the setting.
    #[must_use]
    pub fn warning(&self, message: String, remedy: &str) -> ConfigError {
        self.error(message, remedy).into_warning()
    }
}

/// Places of settings that only the start of a node can check.
#[derive(Debug, Clone)]
pub struct StartPlaces {
    /// Addresses of the listeners, in the config's order.
    pub listeners: Vec<Named>,
    /// Address of the admin listener.
    pub admin: Option<Named>,
    /// Address of the name server.
    pub dns: Option<Named>,
    /// Settings of the cluster.
    pub cluster: Option<ClusterPlaces>,
    /// Folder of usage.
    pub usage: Option<Named>,
}

/// Places of a cluster's settings.
#[derive(Debug, Clone)]
pub struct ClusterPlaces {
    /// Address for other nodes.
    pub address: Named,
    /// File of the certificate.
    pub certificate: Named,
    /// File of the key that all nodes hash with.
    pub prefix_key: Named,
    /// Folder of the agreed state.
    pub data: Option<Named>,
}

impl StartPlaces {
    pub(crate) fn new(source: &Source, file: &ConfigFile) -> Self {
        let listeners = file.listener.iter().map(|it| Named::new(source, &it.address));
        Self {
            listeners: listeners.collect(),
            admin: file.admin.as_ref().map(|admin| Named::new(source, &admin.address)),
            dns: file.dns.as_ref().map(|dns| Named::new(source, &dns.listen)),
            cluster: file.cluster.as_ref().map(|cluster| ClusterPlaces::new(source, cluster)),
            usage: file.usage.folder.as_ref().map(|folder| Named::new(source, folder)),
        }
    }
}

impl ClusterPlaces {
    fn new(source: &Source, cluster: &ClusterSection) -> Self {
        Self {
            address: Named::new(source, &cluster.address),
            certificate: Named::new(source, &cluster.certificate),
            prefix_key: Named::new(source, &cluster.prefix_key),
            data: cluster.data.as_ref().map(|data| Named::new(source, data)),
        }
    }
}
