//! Requests of a run as CSV.

use spillway_sim::Record;

/// First line of a file: the fields of a request.
const HEAD: &str = "region,served_by,arrived_s,first_token_ms,ended_ms,prompt_tokens,cached_tokens,reply_tokens,is_forwarded,fate,returns,asked_again_ms";

/// Formats requests as CSV; what did not happen is empty.
///
/// # Errors
///
/// Returns an error if a request can't be written.
pub(super) fn csv(records: &[Record]) -> anyhow::Result<String> {
    let mut text = format!("{HEAD}\n");
    for record in records {
        let fields = serde_json::to_value(record)?;
        let field = |name| match &fields[name] {
            serde_json::Value::Null => String::new(),
            value => value.to_string().trim_matches('"').to_owned(),
        };
        text += &HEAD.split(',').map(field).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_written_and_what_did_not_happen_is_empty() {
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
        let text = csv(&[served, failed]).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "2,1,61.25,123.456,2000.5,900,512,80,true,answered,1,4000.5",
                "2,,61.25,,,900,512,80,false,answered,1,4000.5"
            ]
        );
    }
}
