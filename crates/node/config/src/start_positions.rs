//! Positions of settings that need the machine to be checked: ports, certificates, folders.

use toml::Spanned;

use crate::cluster_section::ClusterSection;
use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::source::Source;

/// Position of a setting, for errors that are found later than the file is read.
#[derive(Debug, Clone)]
pub struct SettingPosition(ConfigError);

impl SettingPosition {
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

/// Positions of settings that only the start of a node can check.
#[derive(Debug, Clone)]
pub struct StartPositions {
    /// Addresses of the listeners, in the config's order.
    pub listeners: Vec<SettingPosition>,
    /// Address of the admin listener.
    pub admin: Option<SettingPosition>,
    /// Address of the name server.
    pub dns: Option<SettingPosition>,
    /// Settings of the cluster.
    pub cluster: Option<ClusterPositions>,
    /// Folder of usage.
    pub usage: Option<SettingPosition>,
}

/// Positions of a cluster's settings.
#[derive(Debug, Clone)]
pub struct ClusterPositions {
    /// Address for other nodes.
    pub address: SettingPosition,
    /// File of the certificate.
    pub certificate: SettingPosition,
    /// File of the key that all nodes hash with.
    pub prefix_key: SettingPosition,
    /// Folder of the agreed state.
    pub data: Option<SettingPosition>,
}

impl StartPositions {
    pub(crate) fn new(source: &Source, file: &ConfigFile) -> Self {
        let listeners = file.listener.iter().map(|it| SettingPosition::new(source, &it.address));
        Self {
            listeners: listeners.collect(),
            admin: file.admin.as_ref().map(|admin| SettingPosition::new(source, &admin.address)),
            dns: file.dns.as_ref().map(|dns| SettingPosition::new(source, &dns.listen)),
            cluster: file.cluster.as_ref().map(|cluster| ClusterPositions::new(source, cluster)),
            usage: file.usage.folder.as_ref().map(|folder| SettingPosition::new(source, folder)),
        }
    }
}

impl ClusterPositions {
    fn new(source: &Source, cluster: &ClusterSection) -> Self {
        Self {
            address: SettingPosition::new(source, &cluster.address),
            certificate: SettingPosition::new(source, &cluster.certificate),
            prefix_key: SettingPosition::new(source, &cluster.prefix_key),
            data: cluster.data.as_ref().map(|data| SettingPosition::new(source, data)),
        }
    }
}
