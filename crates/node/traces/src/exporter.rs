//! Sender of spans to a collector, on a thread of its own.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter as OtlpExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use spillway_resolver::Resolver;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio_util::sync::CancellationToken;

use crate::collector_names::CollectorNames;
use crate::config::TracesConfig;
use crate::spans::Origin;

/// Most spans that wait to be sent: a second of 2,000 requests that are all exported.
const WAITING_MAX: usize = 4_096;
/// Most spans of one message, as the SDKs of OpenTelemetry have it.
const BATCH_MAX: usize = 512;
/// Longest time for which a span waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// Time for one message, retries included.
const SENDING: Duration = Duration::from_secs(10);
/// Time to send the rest when the node ends.
const ENDING: Duration = Duration::from_secs(2);

/// Sender of spans. When it is dropped, it sends the waiting spans, for two seconds at most.
#[derive(Debug)]
pub struct Exporter {
    /// `None` once it is being dropped.
    spans: Option<Sender<SpanData>>,
    counts: Arc<Counts>,
    ending: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// Spans since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Spans that the collector took.
    pub(crate) sent: AtomicU64,
    /// Spans that found no room, or that the collector did not take.
    pub(crate) lost: AtomicU64,
}

/// Reason for which no sender can be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A certificate to trust is none.
    #[error("CA certificates: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// TLS can't use the certificates.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The settings don't fit together.
    #[error(transparent)]
    Settings(#[from] ExporterBuildError),
    /// No thread can be started.
    #[error("no thread: {0}")]
    Thread(#[from] io::Error),
}

impl Exporter {
    /// Starts a sender. It connects when there is something to send.
    ///
    /// # Errors
    /// Returns an error if certificates or address are unusable, or if no thread can be started.
    pub(crate) fn start(
        config: &TracesConfig,
        origin: &Origin,
        resolver: &Resolver,
        counts: Arc<Counts>,
    ) -> Result<Self, ExportError> {
        let (spans, waiting) = channel(WAITING_MAX);
        let ending = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Connections are bound to the runtime that they are made in.
        let guard = runtime.enter();
        let mut exporter = exporter(config, resolver)?;
        drop(guard);
        exporter.set_resource(&resource(origin));
        let mut sending = Sending {
            exporter,
            counts: Arc::clone(&counts),
            ending: ending.clone(),
            is_failing: false,
        };
        let thread = thread::Builder::new().name("traces".to_owned()).spawn(move || {
            runtime.block_on(sending.run(waiting));
        })?;
        Ok(Self { spans: Some(spans), counts, ending, thread: Some(thread) })
    }

    /// Sends a span, without waiting. One for which there is no room is counted as lost.
    pub(crate) fn send(&self, span: SpanData) {
        let Some(spans) = &self.spans else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = spans.try_send(span) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Without a sender the thread ends behind the last span.
        self.spans = None;
        self.ending.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Sending {
    exporter: OtlpExporter,
    counts: Arc<Counts>,
    ending: CancellationToken,
    is_failing: bool,
}

impl Sending {
    async fn run(&mut self, mut waiting: Receiver<SpanData>) {
        let ending = self.ending.clone();
        let given_up = async {
            ending.cancelled().await;
            tokio::time::sleep(ENDING).await;
        };
        tokio::select! {
            () = self.send_all(&mut waiting) => {}
            () = given_up => {}
        }
    }

    async fn send_all(&mut self, waiting: &mut Receiver<SpanData>) {
        loop {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            if waiting.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            let gathering = async {
                while batch.len() < BATCH_MAX {
                    let room = BATCH_MAX - batch.len();
                    if waiting.recv_many(&mut batch, room).await == 0 {
                        return;
                    }
                }
            };
            // The spans gathered so far are sent, whether they fill a message or not.
            drop(tokio::time::timeout(GATHERING, gathering).await);
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let result = match tokio::time::timeout(SENDING, self.exporter.export(batch)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", SENDING.as_secs())),
        };
        match result {
            Ok(()) => {
                self.counts.sent.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector accepts traces again");
                }
            }
            Err(error) => {
                self.counts.lost.fetch_add(count, Ordering::Relaxed);
                // Only the first failure in a row is logged: the counts show how many spans were
                // lost.
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(error, "the collector accepts no traces");
                }
            }
        }
    }
}

fn resource(origin: &Origin) -> Resource {
    Resource::builder()
        .with_service_name("spillway")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", origin.node.clone()),
            KeyValue::new("cloud.region", origin.region.clone()),
        ])
        .build()
}

fn exporter(config: &TracesConfig, resolver: &Resolver) -> Result<OtlpExporter, ExportError> {
    let headers = config
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
    let builder = OtlpExporter::builder()
        .with_http()
        .with_http_client(HyperClient::new(connector(config, resolver)?, SENDING, None))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(config.endpoint.to_string())
        .with_headers(headers.collect::<HashMap<_, _>>());
    Ok(builder.build()?)
}

fn connector(
    config: &TracesConfig,
    resolver: &Resolver,
) -> Result<HttpsConnector<HttpConnector<CollectorNames>>, ExportError> {
    let mut roots = RootCertStore::empty();
    match &config.ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
        }
        None if config.endpoint.scheme_str() == Some("https") => {
            // A broken certificate of the system must not disable the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new_with_resolver(CollectorNames(resolver.clone()));
    // The layer above speaks TLS.
    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    Ok(builder.enable_http1().wrap_connector(http))
}
