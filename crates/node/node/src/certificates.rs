//! The certificates that this node uses, for operators that watch expiry dates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use serde::Serialize;
use spillway_admin::CertificateEnd;
use spillway_config::{AdminListener, ListenerConfig};
use spillway_front::client::TlsIdentity;
use spillway_link::certs::{
    CertificateDer, CertificateFacts, authority_of, certificates_of_pem, fingerprint,
};
use spillway_link::{Identity, Link, PeerStatus};
use spillway_telemetry::LiveCertificates;
use spillway_types::unix_ms;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Time limit for a node to show its certificate: several round trips of the longest path.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of nodes that are asked at the same time. Each takes a handshake here and there.
const LOOKS_MAX: usize = 8;

/// Name of a listener with a certificate (its address in the config, or `admin`), and its identity.
pub(crate) type ListenerIdentity = (String, TlsIdentity);

/// The certificates of listeners, and when each was taken into use.
#[derive(Debug)]
pub(crate) struct Certificates {
    listeners: ArcSwap<Vec<ListenerCertificate>>,
    /// Allows one look at the whole cluster at a time.
    looks: Semaphore,
}

impl Default for Certificates {
    fn default() -> Self {
        Self { listeners: ArcSwap::default(), looks: Semaphore::new(1) }
    }
}

/// A certificate that a listener shows.
#[derive(Clone, Debug, Serialize)]
struct ListenerCertificate {
    listener: String,
    since_ms: u64,
    certificate: CertificateFacts,
}

/// The certificates of one node.
#[derive(Debug, Serialize)]
pub(crate) struct OwnCertificates {
    /// Certificates of the node's links; `None` if it is in no cluster.
    cluster: Option<LinkCertificates>,
    listeners: Vec<ListenerCertificate>,
}

#[derive(Debug, Serialize)]
struct LinkCertificates {
    since_ms: u64,
    certificate: Option<CertificateFacts>,
    /// Fingerprint of the authority that vouches for the certificate.
    authority: Option<String>,
    authority_fault: Option<String>,
    authorities: Vec<CertificateFacts>,
}

/// The certificate that a node of the cluster shows now.
#[derive(Debug, Serialize)]
pub(crate) struct NodeCertificate {
    node: String,
    region: String,
    certificate: Option<CertificateFacts>,
    /// Fingerprint of the authority that vouches for the certificate.
    authority: Option<String>,
    /// Reason why the certificate can't be seen or is not trusted.
    fault: Option<String>,
}

/// Returns the TLS identities of a config's listeners. The operators' listener is called `admin`.
pub(crate) fn shown_identities(
    listeners: &[ListenerConfig],
    admin: Option<&AdminListener>,
) -> Vec<ListenerIdentity> {
    let of_clients = listeners
        .iter()
        .filter_map(|listener| Some((listener.address.to_string(), listener.spec.tls.clone()?)));
    let of_operators = admin.and_then(|admin| Some(("admin".to_owned(), admin.tls.clone()?)));
    of_clients.chain(of_operators).collect()
}

impl Certificates {
    /// Takes over the certificates that listeners show from now on. An unchanged one keeps its
    /// time.
    pub(crate) fn show(&self, identities: Vec<ListenerIdentity>) {
        let before = self.listeners.load();
        let now_ms = unix_ms(SystemTime::now());
        let listeners = identities.into_iter().filter_map(|(listener, identity)| {
            let chain = certificates_of_pem(&identity.certificate_pem);
            let certificate = chain.first().and_then(CertificateFacts::of)?;
            let known = before
                .iter()
                .find(|known| known.listener == listener && known.certificate == certificate);
            let since_ms = known.map_or(now_ms, |known| known.since_ms);
            Some(ListenerCertificate { listener, since_ms, certificate })
        });
        self.listeners.store(Arc::new(listeners.collect()));
    }

    /// Returns the certificates that this node uses.
    pub(crate) fn own(&self, link: Option<&Link>) -> OwnCertificates {
        let listeners = self.listeners.load().to_vec();
        OwnCertificates { cluster: link.map(of_link), listeners }
    }

    /// Returns the certificate of this node that ends first. Ends of authorities are left out: nodes do
    /// not look at them.
    pub(crate) fn first(&self, link: Option<&Link>) -> Option<CertificateEnd> {
        let own =
            link.and_then(|link| CertificateFacts::of(link.used_certificates().chain.first()?));
        let end = |of: String, facts: &CertificateFacts| CertificateEnd {
            of,
            begins_ms: facts.not_before_ms,
            ends_ms: facts.not_after_ms,
        };
        let own = own.map(|facts| end("links".to_owned(), &facts));
        let listeners = self.listeners.load();
        let of_listeners =
            listeners.iter().map(|it| end(format!("listener {}", it.listener), &it.certificate));
        own.into_iter().chain(of_listeners).min_by_key(|end| end.ends_ms)
    }

    /// Returns the expiry times for metrics, in seconds since 1970.
    pub(crate) fn live(&self, link: Option<&Link>) -> LiveCertificates {
        let seconds = |facts: &CertificateFacts| facts.not_after_ms.div_euclid(1_000);
        let listeners = self.listeners.load();
        let listeners = listeners.iter().map(|it| (it.listener.clone(), seconds(&it.certificate)));
        let authorities = link.map(|link| link.used_certificates().authorities).unwrap_or_default();
        let authorities = authorities.iter().filter_map(CertificateFacts::of);
        LiveCertificates {
            authorities: authorities
                .map(|facts| (facts.fingerprint.chars().take(16).collect(), seconds(&facts)))
                .collect(),
            listeners: listeners.collect(),
        }
    }

    /// Asks every node of the cluster, this one included, for the certificate that it shows to new
    /// connections. `None` if another look is under way.
    pub(crate) async fn of_all(&self, link: &Arc<Link>) -> Option<Vec<NodeCertificate>> {
        let _turn = self.looks.try_acquire().ok()?;
        let used = Arc::new(link.used_certificates());
        let mut all = vec![judged(link.me(), &used.chain, &used.authorities)];
        let (mut waiting, mut looking) = (link.peers().into_iter(), JoinSet::new());
        loop {
            while looking.len() < LOOKS_MAX
                && let Some(peer) = waiting.next()
            {
                let (link, used) = (Arc::clone(link), Arc::clone(&used));
                looking.spawn(async move { look(&link, &peer, &used.authorities).await });
            }
            match looking.join_next().await {
                None => break,
                // The look was stopped with the node, or has panicked: nothing is known of that
                // node.
                Some(Err(_)) => {}
                Some(Ok(shown)) => all.push(shown),
            }
        }
        // This node stays first.
        all[1..].sort_by(|one, other| one.node.cmp(&other.node));
        Some(all)
    }
}

type Chain = [CertificateDer<'static>];

async fn look(link: &Link, peer: &PeerStatus, authorities: &Chain) -> NodeCertificate {
    match link.shown_by(peer.identity.node(), LOOK_LIMIT).await {
        Ok(chain) => judged(&peer.identity, &chain, authorities),
        Err(fault) => NodeCertificate {
            node: peer.identity.node().to_string(),
            region: peer.identity.region().to_string(),
            certificate: None,
            authority: None,
            fault: Some(fault.to_string()),
        },
    }
}

fn judged(who: &Identity, chain: &Chain, authorities: &Chain) -> NodeCertificate {
    let authority = authority_of(chain, authorities, SystemTime::now());
    NodeCertificate {
        node: who.node().to_string(),
        region: who.region().to_string(),
        certificate: chain.first().and_then(CertificateFacts::of),
        authority: authority.as_ref().ok().map(|at| fingerprint(&authorities[*at])),
        fault: authority.err(),
    }
}

fn of_link(link: &Link) -> LinkCertificates {
    let used = link.used_certificates();
    let authority = authority_of(&used.chain, &used.authorities, SystemTime::now());
    LinkCertificates {
        since_ms: unix_ms(used.since),
        certificate: used.chain.first().and_then(CertificateFacts::of),
        authority: authority.as_ref().ok().map(|at| fingerprint(&used.authorities[*at])),
        authority_fault: authority.err(),
        authorities: used.authorities.iter().filter_map(CertificateFacts::of).collect(),
    }
}
