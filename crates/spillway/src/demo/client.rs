//! Client of the demo: one request on a connection of its own, and its outcome.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use spillway_harness::{AttemptEnd, LoadAttempt, LoadClient};

use crate::demo::region::DemoRegion;
use crate::demo::sample::{Sample, SampleEnd};
use crate::demo::workload::DemoArrival;

/// Listener addresses of the regions, in the order of [`DemoRegion::ALL`].
pub(crate) type Doors = [SocketAddr; 3];

/// Longest wait of a client for its whole reply: longer than a node lets a request wait.
const PATIENCE: Duration = Duration::from_secs(40);

/// Sends a request that is due now and reads its reply to the end.
pub(crate) async fn ask(arrival: &DemoArrival, due: Instant, doors: Doors) -> Sample {
    let home = arrival.home;
    let request = arrival.chat.request(PATIENCE);
    let attempt = client(home, doors).send(&request, due).await;
    let is_door = |region: &DemoRegion| doors[region.index()] == attempt.address;
    let door = match attempt.end {
        // No region got the request, so it counts at the client's own.
        AttemptEnd::Unsent(_) => None,
        _ => DemoRegion::ALL.into_iter().find(is_door),
    };
    let lag = attempt.sent.saturating_duration_since(due);
    let end = end(&attempt, arrival.chat.is_stream).unwrap_or_else(|| {
        tracing::debug!(home = home.name(), "request failed: {:?}", attempt.end);
        SampleEnd::Failed
    });
    Sample { home, door: door.unwrap_or(home), due, lag, ended: attempt.ended, end }
}

/// Returns a client that connects to the nearest region that listens, like a client of a DNS name
/// with all regions.
fn client(home: DemoRegion, doors: Doors) -> LoadClient {
    let [first, second, third] = home.nearest().map(|region| {
        // The path to another region takes time, which loopback does not have.
        LoadClient::at_distance(doors[region.index()], home.rtt_to(region) / 2)
    });
    first.or(second.or(third))
}

/// Returns how a request ended; `None` if it failed.
fn end(attempt: &LoadAttempt, is_stream: bool) -> Option<SampleEnd> {
    if attempt.reply().is_some_and(|reply| matches!(reply.status, 429 | 503)) {
        return Some(SampleEnd::Shed);
    }
    let reply = attempt.reply().filter(|_| attempt.is_good())?;
    let by = DemoRegion::from_name(&reply.region)?;
    let first_byte = attempt.first_byte?;
    // A stream that could not go on ends with an error event instead.
    let is_whole = !is_stream || reply.stream().is_whole();
    let first_token = is_stream.then(|| first_byte - attempt.due + attempt.one_way);
    is_whole.then_some(SampleEnd::Served { by, first_token })
}
