//! Expiry of certificates, except the one that this node shows to other nodes.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::control;
use crate::register::{Labels, metric, registered};

/// Expiry times of certificates, in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct LiveCertificates {
    /// Trusted certificate authorities, by the first 16 digits of their SHA-256.
    pub authorities: Vec<(String, i64)>,
    /// Certificates of listeners, by the address in the config; `admin` is the operators' listener.
    pub listeners: Vec<(String, i64)>,
}

registered! {
    /// Metrics of the expiry of certificates.
    #[derive(Debug)]
    pub(crate) struct CertificateMetrics {
        authorities: Family<Labels, Gauge> = metric(control::AUTHORITY_EXPIRES),
        listeners: Family<Labels, Gauge> = metric(control::LISTENER_EXPIRES),
    }
}

impl CertificateMetrics {
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
