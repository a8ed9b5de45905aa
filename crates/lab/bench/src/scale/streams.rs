//! Memory and CPU of many streams with a token now and then.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::backend::BackendAnswer;
use crate::client::BenchReply;
use crate::load::{self, LoadSpec};
use crate::scale::figures::{ScaleFigures, progress};
use crate::scale::memory::Memory;
use crate::scale::site::{ScaleSite, one_request};
use crate::stats::median;
use crate::usage::descendants_usage;

/// Time between two tokens of a stream.
const INTERVAL: Duration = Duration::from_millis(50);

/// Tokens of a stream: more than a run lasts, so that no stream ends.
const TOKENS: u64 = 100_000;

/// Nodes that are measured one after the other.
const ROUNDS: usize = 3;

/// Time over which the streams start, time until the window, and the window.
const RAMP: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(20);

/// Lines of each replica: by default it would get 64 requests at first, and more as they end.
const REPLICA: &str = "concurrency = \"unlimited\"\n";

/// Figures of one round.
struct Round {
    before: Memory,
    during: Memory,
    cpu_s_per_million: f64,
    cpu_ms_per_s: f64,
    tokens_per_s: f64,
}

/// Measures `count` streams that are under way together.
pub(super) async fn measure(spillway: &Path, count: u16) -> anyhow::Result<ScaleFigures> {
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let round = measure_round(spillway, count).await?;
        progress(&format!(
            "round {number}: {:.0} tokens/s, CPU {:.0} ms/s, {:.1} MiB",
            round.tokens_per_s, round.cpu_ms_per_s, round.during.resident_mib
        ));
        rounds.push(round);
    }
    let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick)).unwrap_or(f64::NAN);
    let columns = &[
        ("resident, MiB", 1),
        ("anonymous, MiB", 1),
        ("KiB more a stream", 1),
        ("tokens/s", 0),
        ("CPU, ms/s", 0),
        ("CPU s per 1,000,000 tokens", 2),
    ];
    let mut figures = ScaleFigures::new("streams", columns);
    let nothing = f64::NAN;
    let before = [of(|round| round.before.resident_mib), of(|round| round.before.anonymous_mib)];
    figures.push("0", &[before[0], before[1], nothing, nothing, nothing, nothing]);
    let more_mib = of(|round| round.during.resident_mib - round.before.resident_mib);
    let values = [
        of(|round| round.during.resident_mib),
        of(|round| round.during.anonymous_mib),
        more_mib * 1024.0 / f64::from(count),
        of(|round| round.tokens_per_s),
        of(|round| round.cpu_ms_per_s),
        of(|round| round.cpu_s_per_million),
    ];
    figures.push(count.to_string(), &values);
    Ok(figures)
}

/// Measures a node of its own, with backends of its own: streams do not end by themselves.
async fn measure_round(spillway: &Path, count: u16) -> anyhow::Result<Round> {
    let site = ScaleSite::start(BackendAnswer::Stream { tokens: TOKENS, interval: INTERVAL })?;
    let node = site.node(spillway, "streams", REPLICA).await?;
    let before = node.memory()?;
    let spec = LoadSpec {
        clients: count.into(),
        reply: BenchReply::Stream { tokens: None },
        ramp: RAMP,
        warm_up: WARM_UP,
        window: WINDOW,
        ..one_request()
    };
    let probe = || -> anyhow::Result<_> {
        Ok((descendants_usage(node.guard()).context("read /proc")?, node.memory()?))
    };
    let (seen, (usage, _), (usage_after, during)) = load::run(node.address(), &spec, probe).await?;
    let due = f64::from(count) / INTERVAL.as_secs_f64();
    anyhow::ensure!(
        seen.errors == 0 && seen.tokens_per_s() > 0.9 * due,
        "{:.0} of {due} tokens/s, {} errors: {:?}",
        seen.tokens_per_s(),
        seen.errors,
        seen.first_error
    );
    let cpu_s = usage_after.cpu_s_since(&usage);
    Ok(Round {
        before,
        during,
        cpu_s_per_million: cpu_s * 1e6 / seen.tokens as f64,
        cpu_ms_per_s: cpu_s * 1e3 / seen.seconds,
        tokens_per_s: seen.tokens_per_s(),
    })
}
