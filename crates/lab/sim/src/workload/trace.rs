//! Recorded requests in the format of the Mooncake traces.

use serde::Deserialize;

use super::{Session, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Tokens per hash of such a trace.
const HASH_TOKENS: u32 = 512;

/// Longest step of a trace's clock in milliseconds: that of the published traces.
const STEP_MS_MAX: f64 = 3_000.0;

/// Options for playing a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceOptions {
    /// Number of regions that get the requests: by the second hash of a prompt, so that requests of
    /// one conversation stay together.
    pub regions: usize,
    /// Factor by which the trace is played faster than recorded.
    pub speed: f64,
    /// Longest prompt in tokens; requests with longer ones are left out, since the engine could not
    /// take them.
    pub prompt_tokens_max: u32,
    /// Seed by which requests are dealt to the regions, and to moments between two timestamps.
    pub seed: u64,
}

/// Error for a line of a trace that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The line is not such a JSON object.
    #[error("line {line} of the trace: {source}")]
    Json {
        /// Number of the line, from 1.
        line: usize,
        /// Cause of the error.
        source: serde_json::Error,
    },
    /// The line does not have a timestamp and two numbers.
    #[error("line {line} of the trace: expected TIMESTAMP,ContextTokens,GeneratedTokens")]
    Fields {
        /// Number of the line, from 1.
        line: usize,
    },
}

/// Request of the trace.
#[derive(Debug, Deserialize)]
struct Record {
    /// Milliseconds since the beginning.
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    /// Hashes of blocks of 512 tokens, the last of which may be incomplete; each covers the whole
    /// prompt up to the block's end.
    hash_ids: Vec<u64>,
}

/// Reads the requests of a trace: one JSON object a line with `timestamp` (ms), `input_length`,
/// `output_length` (tokens) and `hash_ids`.
///
/// The published traces have timestamps in steps of 3 s, with ten requests each. Requests with one
/// timestamp arrive at random moments until the next one: if all arrived at the same moment, no
/// gateway could know of another's requests.
///
/// # Errors
///
/// Returns an error if a line is not such an object.
pub fn read_trace(text: &str, options: &TraceOptions) -> Result<Vec<Session>, TraceError> {
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record: Record = serde_json::from_str(line)
            .map_err(|source| TraceError::Json { line: index + 1, source })?;
        if record.input_length > 0 && record.input_length <= options.prompt_tokens_max {
            records.push((index as u64, record));
        }
    }
    spread(&mut records, options.seed);
    Ok(records.iter().map(|(number, record)| session(record, *number, options)).collect())
}

/// Spreads requests with the same timestamp over the time until the next timestamp.
fn spread(records: &mut [(u64, Record)], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(mix(10, seed));
    let mut steps = records.chunk_by_mut(|a, b| a.1.timestamp == b.1.timestamp).peekable();
    while let Some(step) = steps.next() {
        let next_ms = steps.peek().map(|next| next[0].1.timestamp);
        let step_ms = next_ms.map_or(0.0, |next_ms| next_ms - step[0].1.timestamp);
        let step_ms = step_ms.clamp(0.0, STEP_MS_MAX);
        // A request of its own arrived exactly at the time of the trace.
        let is_shared = step.len() > 1;
        for (_, record) in step.iter_mut().filter(|_| is_shared) {
            record.timestamp += rng.f64() * step_ms;
        }
    }
}

fn session(record: &Record, number: u64, options: &TraceOptions) -> Session {
    let mut left = record.input_length;
    let mut pieces = Vec::new();
    for &hash in &record.hash_ids {
        let tokens = left.min(HASH_TOKENS);
        left -= tokens;
        pieces.push(Piece { id: mix(5, hash), tokens });
    }
    // Tokens beyond the hashes belong to this request alone.
    pieces.push(Piece { id: mix(6, number), tokens: left });
    // Almost all prompts share the first hash: the service's own system prompt.
    let key = record.hash_ids.get(1).or_else(|| record.hash_ids.first()).copied().unwrap_or(number);
    let turn = Turn {
        after: None,
        think_us: 0,
        prompt: Text::new(pieces),
        reply: Piece { id: mix(7, number), tokens: record.output_length.max(1) },
    };
    Session {
        start: Time::from_ms(record.timestamp / options.speed.max(1e-6)),
        region: (mix(mix(8, options.seed), key) % options.regions.max(1) as u64) as usize,
        affinity: mix(9, key),
        turns: vec![turn],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: TraceOptions =
        TraceOptions { regions: 3, speed: 2.0, prompt_tokens_max: 5_000, seed: 0 };

    #[test]
    fn requests_with_the_same_hashes_share_their_blocks() {
        let text = r#"
{"timestamp": 1000, "input_length": 1400, "output_length": 20, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 1500, "output_length": 30, "hash_ids": [0, 1, 3]}
{"timestamp": 4000, "input_length": 9000, "output_length": 30, "hash_ids": [0]}"#;
        let sessions = read_trace(text, &OPTIONS).unwrap();
        assert_eq!(sessions.len(), 2, "the third is too long");
        assert_eq!(sessions[1].start, Time::from_s(1.5));
        assert_eq!(sessions[0].region, sessions[1].region);
        let [a, b] = [0, 1].map(|at| sessions[at].turns[0].prompt.engine_chain());
        assert_eq!(a.iter().zip(&b).take_while(|(a, b)| a == b).count(), 64);
        assert_eq!(sessions[0].turns[0].prompt.tokens(), 1_400);
    }

    #[test]
    fn requests_of_one_timestamp_come_apart_before_the_next_timestamp() {
        let line = |at: u32| {
            format!(
                r#"{{"timestamp": {at}, "input_length": 9, "output_length": 1, "hash_ids": [1]}}"#
            )
        };
        let text = [0, 0, 0, 3_000, 9_000, 9_000, 19_000].map(line).join("\n");
        let starts = |seed| -> Vec<u64> {
            let options = TraceOptions { speed: 1.0, seed, ..OPTIONS };
            let sessions = read_trace(&text, &options).unwrap();
            sessions.iter().map(|one| one.start.0 / 1_000).collect()
        };
        let all = starts(1);
        let mut first = all[..3].to_vec();
        first.sort_unstable();
        first.dedup();
        assert!(first.len() == 3 && first.iter().all(|&at| at < 3_000), "{all:?}");
        assert_eq!((all[3], all[6]), (3_000, 19_000), "others stay");
        assert!(all[4..6].iter().all(|at| (9_000..12_000).contains(at)), "{all:?}");
        assert!(all == starts(1) && all != starts(2));
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read_trace("\n{\"timestamp\": 1}", &OPTIONS).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of the trace: missing field"), "{error}");
    }
}
