//! `spillway health`: asks a node's admin listener for its state; for images without other
//! programs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use spillway_node::OWN_AGENT;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::admin_stream;
use crate::cluster::{AdminUrl, Connect, parse_admin};
use crate::output;

/// Longest answer that is shown, in bytes: it is a sentence.
const ANSWER_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway health\n\
    Example: spillway health --url https://127.0.0.1:9900 --ca ca.pem --for clients\n\n\
    Exits with 0 if the answer is 200, with 1 if it is another or none.")]
pub(crate) struct HealthArgs {
    /// The node's admin listener.
    #[arg(long, env = "SPILLWAY_ADMIN", default_value = "http://127.0.0.1:9900")]
    #[arg(value_parser = parse_admin)]
    url: AdminUrl,
    /// The CA that the listener's certificate is of, as PEM; those of this machine, if left out.
    #[arg(long, env = "SPILLWAY_CA")]
    ca: Option<PathBuf>,
    /// What is asked.
    #[arg(long = "for", value_enum, default_value_t = Purpose::Node)]
    purpose: Purpose,
    /// How long the answer may take.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

/// Purpose of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Whether it works: it serves, and holds its shares of limits.
    Node,
    /// Whether clients should be sent to it.
    Clients,
}

impl Purpose {
    fn path(self) -> &'static str {
        match self {
            Self::Node => "/readyz",
            Self::Clients => "/steering",
        }
    }
}

/// Asks a node, and fails unless its answer is 200.
///
/// # Errors
/// Returns an error if there is no answer in time, or its status is not 200.
pub(crate) fn run(args: &HealthArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let limit = Duration::from_millis(args.timeout_ms);
        let answered = timeout(limit, ask(args)).await;
        let (status, said) = answered.with_context(|| format!("no answer from {}", args.url))??;
        if status != StatusCode::OK {
            bail!("{} of {} says {status}: {said}", args.purpose.path(), args.url);
        }
        output::line("ok")?;
        Ok(())
    })
}

async fn ask(args: &HealthArgs) -> Result<(StatusCode, String)> {
    let connect =
        Connect { admin: args.url.clone(), ca: args.ca.clone(), token_file: None, json: false };
    let stream = admin_stream::open(&connect).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with the one request that it is for")]
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(args.purpose.path())
        .header(header::HOST, &args.url.authority)
        .header(header::USER_AGENT, OWN_AGENT)
        .body(Empty::<Bytes>::new())?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    // The status alone decides, so an unreadable body is no error.
    let said = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let said = said.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok((head.status, String::from_utf8_lossy(&said).trim().to_owned()))
}
