//! Expiry of certificates, except the one that this node shows to other nodes.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::catalog;
use crate::register::{Labels, metric};

/// Expiry times of certificates, in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct LiveCertificates {
    /// Trusted certificate authorities, by the first 16 digits of their SHA-256.
    pub authorities: Vec<(String, i64)>,
    /// Certificates of listeners, by the address in the config; `admin` is the operators' listener.
    pub listeners: Vec<(String, i64)>,
}

/// Metrics of the expiry of certificates.
#[derive(Debug)]
pub(crate) struct CertificateMetrics {
    authorities: Family<Labels, Gauge>,
    listeners: Family<Labels, Gauge>,
}

impl CertificateMetrics {
    pub(crate) fn new(r: &mut Registry) -> Self {
        Self {
            authorities: metric(r, &catalog::control::AUTHORITY_EXPIRES),
            listeners: metric(r, &catalog::control::LISTENER_EXPIRES),
        }
    }

    /// Shows the certificates in `live`; all others vanish.
    pub(crate) fn show(&self, live: &LiveCertificates) {
        for (family, ends, label) in [
            (&self.authorities, &live.authorities, "authority"),
            (&self.listeners, &live.listeners, "listener"),
        ] {
            // Cleared first, so that replaced certificates vanish.
            family.clear();
            for (name, end_s) in ends {
                family.get_or_create(&vec![(label, name.clone())]).set(*end_s);
            }
        }
    }
}
