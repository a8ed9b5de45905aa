//! Recorded requests in the format of the Azure traces, which contain only times and lengths.

use super::trace::TraceError;
use super::{Session, TraceOptions, Turn};
use crate::text::mix;
use crate::{Piece, Text, Time};

/// Reads the requests of an Azure trace: after a header, one line each with a timestamp, the tokens
/// of the prompt and those of the reply. No two requests have any text in common.
///
/// # Errors
///
/// Returns an error if a line is not such a request.
pub fn read_azure_trace(text: &str, options: &TraceOptions) -> Result<Vec<Session>, TraceError> {
    let mut sessions = Vec::new();
    let mut first_s = None;
    for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()) {
        let (at_s, prompt_tokens, reply_tokens) =
            request(line).ok_or_else(|| TraceError::Fields { line: index + 1 })?;
        let since_s = at_s - *first_s.get_or_insert(at_s);
        if prompt_tokens > 0 && prompt_tokens <= options.prompt_tokens_max {
            let number = index as u64;
            let key = mix(mix(50, options.seed), number);
            let turn = Turn {
                after: None,
                think_us: 0,
                prompt: Text::new(vec![Piece { id: mix(51, number), tokens: prompt_tokens }]),
                reply: Piece { id: mix(52, number), tokens: reply_tokens.max(1) },
            };
            sessions.push(Session {
                start: Time::from_s(since_s / options.speed.max(1e-6)),
                region: (key % options.regions.max(1) as u64) as usize,
                affinity: key,
                turns: vec![turn],
            });
        }
    }
    Ok(sessions)
}

/// Returns the second of the day and the lengths of one line's request.
fn request(line: &str) -> Option<(f64, u32, u32)> {
    let mut fields = line.trim_end().split(',');
    let (_, time) = fields.next()?.split_once(' ')?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let at_s = parts.next()?.ok()? * 3_600.0 + parts.next()?.ok()? * 60.0 + parts.next()?.ok()?;
    Some((at_s, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: TraceOptions =
        TraceOptions { regions: 3, speed: 2.0, prompt_tokens_max: 5_000, seed: 0 };

    #[test]
    fn times_and_lengths_are_those_of_the_trace() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
            2023-11-16 18:59:59.5000000,4808,10\n\
            2023-11-16 19:00:01.5000000,100,0\n\
            2023-11-16 19:00:02.0000000,9000,8\n";
        let sessions = read_azure_trace(text, &OPTIONS).unwrap();
        let lengths = |one: &Session| (one.turns[0].prompt.tokens(), one.turns[0].reply.tokens);
        let all: Vec<_> = sessions.iter().map(|one| (one.start, lengths(one))).collect();
        assert_eq!(all, [(Time(0), (4_808, 10)), (Time::from_s(1.0), (100, 1))], "one is too long");
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read_azure_trace("TIMESTAMP\n2023-11-16 18:59:59,a,10", &OPTIONS).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of the trace"), "{error}");
    }
}
