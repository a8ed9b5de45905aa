//! Measures the time that forwarding adds to the first byte of a reply, compared with the same
//! request served locally: by distance, request size and assumed bandwidth, on new and on used
//! connections.
//!
//! `cargo run -p spillway-link --example first_byte -- [--json] [--samples 5] [--rtt-ms 93]
//! [--first-mbit 20] [--congestion bbr] [--loss-permille 10] [--warm]`

mod pair;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use spillway_link::delayed::Path;
use spillway_link::{Congestion, ForwardAnswer, ForwardHead, PeerRoom, Transport};

use pair::{Pair, line, percentile};

const RTTS_MS: [u64; 4] = [0, 40, 93, 227];
const SIZES: [usize; 4] = [1 << 10, 16 << 10, 64 << 10, 128 << 10];
const RATES_MBIT_PER_S: [u32; 4] = [1, 10, 20, 50];

/// Returns the value of a command-line option; `None` if the option is absent.
fn option<T: std::str::FromStr>(name: &str) -> Result<Option<T>> {
    let Some(value) = std::env::args().skip_while(|argument| argument != name).nth(1) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|_| anyhow::anyhow!("{name} can't be `{value}`"))
}

/// Loss on the network, and the congestion control that handles it.
#[derive(Clone, Copy)]
struct Network {
    congestion: Congestion,
    loss_permille: u16,
}

/// Parameters of one measurement; `warm` is true for a used connection.
#[derive(Clone, Copy)]
struct Case {
    rtt_ms: u64,
    mbit_per_s: u32,
    bytes: usize,
    room: PeerRoom,
    warm: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let warm_only = std::env::args().any(|argument| argument == "--warm");
    let as_json = std::env::args().any(|argument| argument == "--json");
    let samples = option("--samples")?.unwrap_or(5);
    let rtts_ms = option("--rtt-ms")?.map_or_else(|| RTTS_MS.to_vec(), |rtt_ms| vec![rtt_ms]);
    let rates =
        option("--first-mbit")?.map_or_else(|| RATES_MBIT_PER_S.to_vec(), |rate| vec![rate]);
    let loss_permille = option("--loss-permille")?.unwrap_or(0);
    let congestion = match option::<String>("--congestion")?.as_deref() {
        None | Some("cubic") => Congestion::Cubic,
        Some("new_reno") => Congestion::NewReno,
        Some("bbr") => Congestion::Bbr,
        Some(other) => anyhow::bail!("no congestion control: {other}"),
    };
    if !as_json {
        line(
            "rtt ms  first Mbit/s  body KiB  room     connection  added p50 ms  added p95 ms  round trips",
        )?;
    }
    for rtt_ms in rtts_ms {
        for mbit_per_s in rates.iter().copied() {
            for bytes in SIZES {
                for (room, warm) in [
                    (PeerRoom::Unknown, false),
                    (PeerRoom::Unknown, true),
                    (PeerRoom::Likely, false),
                    (PeerRoom::Likely, true),
                ] {
                    // Bodies of up to 64 KiB go at once anyway.
                    if (room == PeerRoom::Likely && bytes <= 64 << 10) || (warm_only && !warm) {
                        continue;
                    }
                    let case = Case { rtt_ms, mbit_per_s, bytes, room, warm };
                    let network = Network { congestion, loss_permille };
                    let mut added_ms = Box::pin(measure(case, network, samples)).await?;
                    show(case, &mut added_ms, as_json)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the time that forwarding adds, in milliseconds, one value for each sample.
async fn measure(case: Case, network: Network, samples: u64) -> Result<Vec<f64>> {
    let transport = Transport {
        initial_mbit_per_s: case.mbit_per_s,
        congestion: network.congestion,
        ..Transport::default()
    };
    let path = Path {
        loss_permille: network.loss_permille,
        ..Path::of(Duration::from_micros(500 * case.rtt_ms))
    };
    let mut added_ms = Vec::new();
    let mut pair = Pair::start(transport.clone(), path, 1).await?;
    for sample in 0..samples {
        if case.warm && sample == 0 {
            for _ in 0..10 {
                first_byte(&pair, 128 << 10, PeerRoom::Likely).await?;
            }
        }
        let local = local_first_byte(case.bytes).await?;
        let forwarded = first_byte(&pair, case.bytes, case.room).await?;
        if pair.arrived() < case.bytes as u64 {
            anyhow::bail!("the reply came before the request was there");
        }
        added_ms.push((forwarded.as_secs_f64() - local.as_secs_f64()) * 1e3);
        if !case.warm && sample + 1 < samples {
            pair = Pair::start(transport.clone(), path, sample + 2).await?;
        }
    }
    Ok(added_ms)
}

async fn first_byte(pair: &Pair, bytes: usize, room: PeerRoom) -> Result<Duration> {
    let head = ForwardHead::new(Method::POST, "/v1/chat/completions".parse()?);
    let body = Full::new(Bytes::from(vec![7; bytes]));
    let begin = Instant::now();
    match pair.near.forward(pair.far_identity.node(), head, body, room).await? {
        ForwardAnswer::Reply(reply) => {
            let mut body = reply.into_body();
            body.frame().await.context("a first byte")??;
            let took = begin.elapsed();
            body.collect().await?;
            Ok(took)
        }
        ForwardAnswer::Refused(refused) => anyhow::bail!("refused: {refused:?}"),
    }
}

/// Measures the same request without a link: the body is there, and the reply is made.
async fn local_first_byte(bytes: usize) -> Result<Duration> {
    let body = Full::new(Bytes::from(vec![7; bytes]));
    let begin = Instant::now();
    body.collect().await?;
    Full::new(Bytes::from_static(b"first token")).frame().await.context("a first byte")??;
    Ok(begin.elapsed())
}

fn show(case: Case, added_ms: &mut [f64], as_json: bool) -> Result<()> {
    let Case { rtt_ms, mbit_per_s, bytes, room, warm } = case;
    let (added_p50_ms, added_p95_ms) = (percentile(added_ms, 50), percentile(added_ms, 95));
    let round_trips = added_p50_ms / rtt_ms.max(1) as f64;
    let (room, connection) = (format!("{room:?}"), if warm { "warm" } else { "cold" });
    if as_json {
        let row = serde_json::json!({
            "rtt_ms": rtt_ms, "initial_mbit_per_s": mbit_per_s, "body_bytes": bytes, "room": room,
            "connection": connection, "added_p50_ms": added_p50_ms,
            "added_p95_ms": added_p95_ms, "round_trips": round_trips,
        });
        return line(&row.to_string());
    }
    line(&format!(
        "{rtt_ms:>6} {mbit_per_s:>14} {:>9}  {room:<8} {connection:<10} {added_p50_ms:>13.1} \
         {added_p95_ms:>13.1} {round_trips:>12.2}",
        bytes >> 10,
    ))
}
