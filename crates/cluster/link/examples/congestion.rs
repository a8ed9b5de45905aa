//! Measures congestion controls under delay and loss: the throughput of a long transfer on a path
//! of 100 Mbit/s, and the time of small requests beside it.
//!
//! `cargo run -p spillway-link --example congestion -- [--json] [--seconds 8]`

mod pair;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use spillway_link::delayed::Path;
use spillway_link::{Congestion, ForwardAnswer, ForwardHead, PeerRoom, Transport};

use pair::{Pair, line, percentile};

const BITS_PER_S: u64 = 100_000_000;
const RTTS_MS: [u64; 3] = [2, 90, 230];
const LOSSES_PERMILLE: [u16; 3] = [0, 1, 10];
const CONTROLS: [Congestion; 3] = [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr];

/// Measurements on one path with one congestion control.
struct CongestionRow {
    control: Congestion,
    rtt_ms: u64,
    loss_permille: u16,
    mbit_per_s: f64,
    first_2_mib_ms: f64,
    small_p50_ms: f64,
    small_p95_ms: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let as_json = arguments.iter().any(|argument| argument == "--json");
    let seconds = arguments.iter().position(|argument| argument == "--seconds");
    let seconds = match seconds {
        Some(at) => arguments.get(at + 1).context("--seconds of what?")?.parse()?,
        None => 8,
    };
    if !as_json {
        line("control  rtt ms  loss ‰  Mbit/s  first 2 MiB ms  small p50 ms  small p95 ms")?;
    }
    for rtt_ms in RTTS_MS {
        for loss_permille in LOSSES_PERMILLE {
            for control in CONTROLS {
                let length = Duration::from_secs(seconds);
                let row = Box::pin(measure(control, rtt_ms, loss_permille, length)).await?;
                show(&row, as_json)?;
            }
        }
    }
    Ok(())
}

async fn measure(
    control: Congestion,
    rtt_ms: u64,
    loss_permille: u16,
    length: Duration,
) -> Result<CongestionRow> {
    // A queue of 40 ms, as routers have.
    let queue_bytes = (BITS_PER_S / 8 / 25) as usize;
    let path = Path {
        loss_permille,
        bits_per_s: Some(BITS_PER_S),
        queue_bytes,
        ..Path::of(Duration::from_micros(500 * rtt_ms))
    };
    let transport = Transport { congestion: control, ..Transport::default() };
    let pair = Pair::start(transport, path, 1).await?;
    let begin = Instant::now();
    send(&pair, 2 << 20).await?;
    let first_2_mib_ms = begin.elapsed().as_secs_f64() * 1e3;
    let (before, begin) = (pair.arrived(), Instant::now());
    // Two at a time, so that the path is never idle between them.
    let bulk = async { tokio::try_join!(keep_sending(&pair), keep_sending(&pair)) };
    let mut small_ms = Vec::new();
    let small = async {
        while begin.elapsed() < length {
            let one = Instant::now();
            send(&pair, 1 << 10).await?;
            small_ms.push(one.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let bytes = pair.arrived() - before;
        anyhow::Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e6)
    };
    let mbit_per_s = tokio::select! {
        failed = bulk => bail!("the bulk ended: {failed:?}"),
        mbit_per_s = small => mbit_per_s?,
    };
    pair.near.shutdown(Duration::from_millis(100)).await;
    pair.far.shutdown(Duration::ZERO).await;
    Ok(CongestionRow {
        control,
        rtt_ms,
        loss_permille,
        mbit_per_s,
        first_2_mib_ms,
        small_p50_ms: percentile(&mut small_ms, 50),
        small_p95_ms: percentile(&mut small_ms, 95),
    })
}

async fn keep_sending(pair: &Pair) -> Result<()> {
    loop {
        send(pair, 4 << 20).await?;
    }
}

async fn send(pair: &Pair, bytes: usize) -> Result<()> {
    let head = ForwardHead::new(Method::POST, "/".parse()?);
    let body = Full::new(Bytes::from(vec![7; bytes]));
    match pair.near.forward(pair.far_identity.node(), head, body, PeerRoom::Likely).await? {
        ForwardAnswer::Reply(reply) => reply.into_body().collect().await?,
        ForwardAnswer::Refused(refused) => bail!("refused: {refused:?}"),
    };
    Ok(())
}

fn show(row: &CongestionRow, as_json: bool) -> Result<()> {
    let CongestionRow { control, rtt_ms, loss_permille, mbit_per_s, first_2_mib_ms, .. } = row;
    let CongestionRow { small_p50_ms, small_p95_ms, .. } = row;
    if as_json {
        let row = serde_json::json!({
            "control": control, "rtt_ms": rtt_ms, "loss_permille": loss_permille,
            "mbit_per_s": mbit_per_s, "first_2_mib_ms": first_2_mib_ms,
            "small_p50_ms": small_p50_ms, "small_p95_ms": small_p95_ms,
        });
        return line(&row.to_string());
    }
    line(&format!(
        "{:<8} {rtt_ms:>6} {loss_permille:>7} {mbit_per_s:>7.1} {first_2_mib_ms:>15.0} \
         {small_p50_ms:>13.1} {small_p95_ms:>13.1}",
        format!("{control:?}"),
    ))
}
