//! Client of the demo: one request on a connection of its own, and its outcome.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::demo::region::DemoRegion;
use crate::demo::sample::{Sample, SampleEnd};
use crate::demo::workload::{Chat, DemoArrival};

/// Listener addresses of the regions, in the order of [`DemoRegion::ALL`].
pub(crate) type Doors = [SocketAddr; 3];

/// Longest wait of a client for its whole reply: longer than a node lets a request wait.
const PATIENCE: Duration = Duration::from_secs(40);

/// Sends a request that is due now and reads its reply to the end.
pub(crate) async fn ask(arrival: &DemoArrival, due: Instant, doors: Doors) -> Sample {
    let lag = due.elapsed();
    let mut door = arrival.home;
    let exchange = exchange(arrival, due, doors, &mut door);
    let end = match timeout(PATIENCE, exchange).await {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => {
            tracing::debug!(home = arrival.home.name(), "request failed: {error:#}");
            SampleEnd::Failed
        }
        Err(_) => SampleEnd::Failed,
    };
    Sample { home: arrival.home, door, due, lag, ended: Instant::now(), end }
}

async fn exchange(
    arrival: &DemoArrival,
    due: Instant,
    doors: Doors,
    door: &mut DemoRegion,
) -> Result<SampleEnd> {
    let tcp;
    (tcp, *door) = connect(arrival.home, doors).await?;
    // The way to another region takes time, which loopback does not have.
    let one_way = arrival.home.rtt_to(*door) / 2;
    sleep(one_way).await;
    let (mut sender, connection) = handshake(TokioIo::new(tcp)).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with the handle at the latest")]
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let reply = sender.send_request(request(&arrival.chat)?).await.context("no reply")?;
    match reply.status() {
        StatusCode::OK => {}
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            return Ok(SampleEnd::Shed);
        }
        status => return Err(anyhow!("status {status}")),
    }
    let by = served_by(&reply).context("the reply does not say which region served it")?;
    let is_stream = arrival.chat.is_stream;
    let first_byte = read(reply, is_stream).await?;
    let first_token = is_stream.then(|| first_byte - due + one_way);
    Ok(SampleEnd::Served { by, first_token })
}

/// Connects to the nearest region that listens, like a client of a DNS name with all regions.
async fn connect(home: DemoRegion, doors: Doors) -> Result<(TcpStream, DemoRegion)> {
    let mut failure = None;
    for region in home.nearest() {
        match TcpStream::connect(doors[region.index()]).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                return Ok((tcp, region));
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.map_or_else(|| anyhow!("there are no regions"), Into::into))
}

/// Builds a request that may be sent again: its idempotency key says that repeats do no harm.
fn request(chat: &Chat) -> Result<Request<Full<Bytes>>> {
    let request = Request::post("/v1/chat/completions")
        .header("host", "demo")
        .header("content-type", "application/json")
        .header("idempotency-key", chat.key());
    Ok(request.body(Full::new(Bytes::from(chat.body().to_string())))?)
}

fn served_by(reply: &Response<Incoming>) -> Option<DemoRegion> {
    DemoRegion::from_name(reply.headers().get("x-spillway-region")?.to_str().ok()?)
}

/// Reads a reply to its end and returns when its first byte came.
async fn read(reply: Response<Incoming>, is_stream: bool) -> Result<Instant> {
    let mut body = reply.into_body();
    let (mut first_byte, mut last) = (None, Bytes::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the reply broke off")?;
        if let Ok(piece) = frame.into_data() {
            first_byte.get_or_insert_with(Instant::now);
            last = piece;
        }
    }
    // A stream that could not go on ends with an error event instead.
    ensure!(!is_stream || last.trim_ascii_end().ends_with(b"[DONE]"), "the stream is not whole");
    first_byte.context("the reply is empty")
}
