//! Sends the planned requests and records what their clients observe.

use std::time::{Duration, Instant};

use spillway_harness::{AttemptEnd, LoadAttempt, LoadClient, LoadRequest, open_loop};

use super::{
    config::replica_index,
    ending::{Ending, judge},
    plan::{FaultKind, Planned, Workload},
};

/// Result of one request. Times count from the start of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Number of the request.
    pub(crate) number: u32,
    /// Time at which the request was due.
    pub(crate) due: Duration,
    /// Time at which the client began to send.
    pub(crate) sent: Duration,
    /// Time of the first byte of the reply's body.
    pub(crate) first_byte: Option<Duration>,
    /// Time of the end.
    pub(crate) ended: Duration,
    /// Replica that the reply names.
    pub(crate) replica: Option<u16>,
    /// End as the client saw it.
    pub(crate) ending: Ending,
}

impl Observation {
    fn new(planned: &Planned, attempt: &LoadAttempt, start: Instant) -> Self {
        let since_start = |at: Instant| at.saturating_duration_since(start);
        Self {
            number: planned.number,
            due: planned.at,
            sent: since_start(attempt.sent),
            first_byte: attempt.first_byte.map(since_start),
            ended: since_start(attempt.ended),
            replica: attempt.reply().and_then(|reply| replica_index(&reply.replica)),
            ending: judge(planned.kind, &attempt.end),
        }
    }
}

/// Sends every planned request at its due time, whatever happened to earlier ones. Returns when all
/// are over.
pub(crate) async fn send_all(
    client: &LoadClient,
    workload: &Workload,
    planned: &[Planned],
    start: Instant,
) -> Vec<Observation> {
    let arrivals = planned.iter().map(|planned| (start + planned.at, *planned));
    let mut seen = open_loop(arrivals, |planned, due| {
        let (client, request) = (client.clone(), workload.request(&planned));
        Some(async move {
            let attempt = client.send(&request, due).await;
            Observation::new(&planned, &attempt, start)
        })
    })
    .await;
    seen.sort_by_key(|observation| observation.number);
    seen
}

/// Sends a request outside the plan, to test if the gateway serves.
///
/// # Errors
/// Returns an error without an answer, or if its status is no success.
pub(crate) async fn check(client: &LoadClient, workload: &Workload) -> anyhow::Result<()> {
    let plan = Workload { length: Duration::from_secs(60), ..*workload }.plan();
    let planned = plan.into_iter().find(|planned| planned.kind == FaultKind::Infer);
    let planned = planned.ok_or_else(|| anyhow::anyhow!("no V2 request planned"))?;
    // The id is not in the plan, so that the account does not count this request.
    let request = LoadRequest { headers: Vec::new(), ..workload.request(&planned) };
    let request =
        request.header("content-type", "application/json").header("x-request-id", "trial");
    match client.send(&request, Instant::now()).await.end {
        AttemptEnd::Whole(reply) if (200..300).contains(&reply.status) => Ok(()),
        end => anyhow::bail!("{end:?}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::{super::ending::Loss, *};

    const WORKLOAD: Workload = Workload {
        seed: 1,
        rate_per_s: 50.0,
        length: Duration::from_millis(400),
        prefixes: 2,
        prefix_bytes: 100,
    };

    /// Serves connections one after the other, each with one of the `answers`, then closes it.
    async fn serve(listener: TcpListener, answers: &'static [&'static str]) {
        let mut buffer = vec![0; 65_536];
        for answer in answers.iter().cycle() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _length = stream.read(&mut buffer).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    async fn observe(answers: &'static [&'static str]) -> Vec<Observation> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = LoadClient::new(listener.local_addr().unwrap());
        let planned = WORKLOAD.plan();
        tokio::select! {
            seen = send_all(&client, &WORKLOAD, &planned, Instant::now()) => seen,
            () = serve(listener, answers) => unreachable!("it goes round for ever"),
        }
    }

    #[tokio::test]
    async fn each_request_is_observed_once_and_with_its_replica() {
        let seen = observe(&["HTTP/1.1 503 Busy\r\nx-spillway-replica: replica-3\r\n\
             x-spillway-code: overloaded\r\ncontent-length: 2\r\n\r\n{}"])
        .await;
        assert_eq!(seen.len(), WORKLOAD.plan().len());
        for (number, observation) in (0..).zip(&seen) {
            assert_eq!((observation.number, observation.replica), (number, Some(3)));
            let Ending::Failed(failure) = &observation.ending else { panic!("{observation:?}") };
            assert_eq!(failure.kind, "503 overloaded");
            assert!(observation.due <= observation.sent && observation.sent <= observation.ended);
            assert!(observation.first_byte.is_some());
        }
    }

    #[tokio::test]
    async fn a_connection_that_closes_without_a_reply_loses_the_request() {
        let seen = observe(&[""]).await;
        assert!(!seen.is_empty());
        for observation in &seen {
            assert_eq!(observation.ending, Ending::Lost(Loss::NoReply), "{observation:?}");
        }
    }
}
