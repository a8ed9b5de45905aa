//! Requests of a run as CSV.

use std::fmt::Write;

use anyhow::{Context, ensure};
use spillway_sim::Record;

/// First line of a file.
const HEAD: &str = "region,served_by,arrived_s,first_token_ms,ended_ms,prompt_tokens,cached_tokens,reply_tokens,is_forwarded,fate,returns,asked_again_ms";

/// Formats requests as CSV; what did not happen is empty.
pub(super) fn csv(records: &[Record]) -> String {
    let mut text = format!("{HEAD}\n");
    for one in records {
        let _infallible = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{}",
            one.region,
            or_empty(one.served_by),
            one.arrived_s,
            or_empty(one.first_token_ms),
            or_empty(one.ended_ms),
            one.prompt_tokens,
            one.cached_tokens,
            one.reply_tokens,
            one.is_forwarded,
            one.fate,
            one.returns,
            one.asked_again_ms
        );
    }
    text
}

/// Reads requests from CSV.
///
/// # Errors
///
/// Returns an error with the number of the first line that is no request.
pub(super) fn read_csv(text: &str) -> anyhow::Result<Vec<Record>> {
    let mut lines = text.lines().enumerate();
    ensure!(lines.next().is_some_and(|(_, head)| head == HEAD), "the first line is not {HEAD}");
    let record = |(at, line)| record(line).with_context(|| format!("line {}", at + 1));
    lines.map(record).collect()
}

fn record(line: &str) -> anyhow::Result<Record> {
    let fields: Vec<&str> = line.split(',').collect();
    let [
        region,
        served_by,
        arrived,
        first,
        ended,
        prompt,
        cached,
        reply,
        forwarded,
        fate,
        returns,
        again,
    ] = fields[..]
    else {
        anyhow::bail!("{} fields in place of 12", fields.len());
    };
    let time = |text: &str| (!text.is_empty()).then(|| text.parse()).transpose();
    Ok(Record {
        region: region.parse()?,
        served_by: (!served_by.is_empty()).then(|| served_by.parse()).transpose()?,
        arrived_s: arrived.parse()?,
        first_token_ms: time(first)?,
        ended_ms: time(ended)?,
        prompt_tokens: prompt.parse()?,
        cached_tokens: cached.parse()?,
        reply_tokens: reply.parse()?,
        is_forwarded: forwarded.parse()?,
        fate: fate.parse()?,
        returns: returns.parse()?,
        asked_again_ms: again.parse()?,
    })
}

fn or_empty<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let served = Record {
            region: 2,
            served_by: Some(1),
            arrived_s: 61.25,
            first_token_ms: Some(123.456),
            ended_ms: Some(2_000.5),
            prompt_tokens: 900,
            cached_tokens: 512,
            reply_tokens: 80,
            is_forwarded: true,
            fate: spillway_sim::Fate::Answered,
            returns: 1,
            asked_again_ms: 4_000.5,
        };
        let failed = Record {
            served_by: None,
            first_token_ms: None,
            ended_ms: None,
            is_forwarded: false,
            ..served
        };
        let text = csv(&[served, failed]);
        let read = read_csv(&text).unwrap();
        assert_eq!((read.len(), read[0].served_by, read[1].first_token_ms), (2, Some(1), None));
        assert_eq!(csv(&read), text);
    }

    #[test]
    fn lines_that_are_no_requests_are_named() {
        assert!(read_csv("region,prompt\n").is_err());
        let text = format!("{HEAD}\n0,0,1,2,3,4,5,6,true,answered,0,0\n0,0,1,2,3\n");
        let error = format!("{:#}", read_csv(&text).unwrap_err());
        assert_eq!(error, "line 3: 5 fields in place of 12");
    }
}
