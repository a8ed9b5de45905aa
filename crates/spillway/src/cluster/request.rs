//! A request that ended, for people: as a line, and as a story.

use serde_json::Value;

use super::words;

/// Describes one request in sentences: where it went and why, what was expected, what came of it.
pub(super) fn story(entry: &Value) -> String {
    let mut lines = vec![went(entry)];
    lines.extend(compared(entry));
    lines.extend(expected(entry));
    lines.push(came_of_it(entry));
    lines.extend([String::new(), facts(entry)]);
    lines.join("\n")
}

/// Says where a request went, and why.
fn went(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str();
    let why = |reason: Option<&str>| {
        reason
            .map(|name| format!(": {}", words::of_reason(name).unwrap_or(name)))
            .unwrap_or_default()
    };
    let compared = entry["compared"]["reason"].as_str();
    match (text("shed"), text("replica"), text("region")) {
        (Some(shed), ..) => format!("It was turned away{}.", why(Some(shed))),
        (None, Some(replica), Some(region)) => {
            format!("It went to {replica} in {region}{}.", why(text("reason")))
        }
        (None, None, Some(region)) => format!("It was forwarded to {region}{}.", why(compared)),
        _ => format!("No replica was asked: {} answered it itself.", plain(&entry["node"])),
    }
}

/// Says how this region compared with others.
fn compared(entry: &Value) -> Option<String> {
    let compared = entry["compared"].as_object()?;
    let here = compared["here_ms"].as_f64();
    let here = here
        .map_or_else(|| "nothing here could serve it".to_owned(), |ms| format!("{ms:.0} ms here"));
    let there = match (compared["best"].as_str(), compared["best_ms"].as_f64()) {
        (Some(region), Some(cost_ms)) => {
            format!("{cost_ms:.0} ms in {region}, the best other region")
        }
        _ => "no other region could take it".to_owned(),
    };
    Some(format!("Regions were compared: {here}, {there}."))
}

/// Says what was expected of the replica.
fn expected(entry: &Value) -> Option<String> {
    let expected = entry["expected"].as_object()?;
    let number = |name: &str| expected.get(name).and_then(Value::as_f64).unwrap_or_default();
    let came = match (entry["first_token_ms"].as_f64(), entry["status"].as_u64()) {
        (Some(ms), _) => format!("it came after {ms:.0} ms"),
        // Its first token is not seen apart from the others.
        (None, Some(200..300)) if entry["is_stream"] == false => {
            "the reply came in one piece".to_owned()
        }
        (None, _) => "it never came".to_owned(),
    };
    Some(format!(
        "The first token was expected after {:.0} ms ({:.0} ms waiting, {:.0} ms reading {:.0} of {:.0} \
         tokens, {:.0} running there); {came}.",
        number("first_token_ms"),
        number("wait_ms"),
        number("prefill_ms"),
        number("prompt_tokens") - number("cached_tokens"),
        number("prompt_tokens"),
        number("running"),
    ))
}

/// Says how it ended.
fn came_of_it(entry: &Value) -> String {
    let number = |name: &str| entry[name].as_f64().unwrap_or_default();
    let end = match entry["end"].as_str().unwrap_or_default() {
        "complete" => "The reply was passed on whole",
        "answered" => "The gateway itself answered",
        "cancelled_before_reply" => "Its client left before a reply",
        "cancelled_in_reply" => "Its client left in the reply",
        "cut" => "The replica broke off in the reply",
        "stalled" => "The replica fell silent in the reply",
        "deadline_passed" => "Its deadline passed in the reply",
        other => other,
    };
    let retries = match number("retries") as u64 {
        0 => String::new(),
        1 => ", after one retry".to_owned(),
        several => format!(", after {several} retries"),
    };
    let about = if is_estimated(entry) { "about " } else { "" };
    format!(
        "{end}: status {}, {:.0} ms in all, {about}{} prompt tokens ({} cached), {} generated{retries}.",
        entry["status"],
        number("duration_ms"),
        entry["prompt_tokens"],
        entry["cached_tokens"],
        entry["completion_tokens"]
    )
}

/// Returns true if the tokens of a request are not all as its replica reported them.
fn is_estimated(entry: &Value) -> bool {
    entry["tokens_estimated"].as_bool().unwrap_or_default()
}

fn facts(entry: &Value) -> String {
    let mut facts = Vec::new();
    for name in ["model", "fallback_for", "arm", "route", "tenant", "key", "node", "trace_id", "id"]
    {
        if let Some(value) = entry[name].as_str() {
            facts.push(format!("{} {value}", name.replace('_', " ")));
        }
    }
    let ended_ms = entry["ended_ms"].as_u64().unwrap_or_default();
    format!("ended {} UTC, {}", clock(ended_ms), facts.join(", "))
}

/// Columns of [`row`].
pub(super) const HEADING: [&str; 9] =
    ["UTC", "status", "first", "total", "tokens", "model", "who", "where", "why"];

/// Columns in the order in which a narrow terminal is spared them.
pub(super) const DROPPED: [&str; 4] = ["model", "who", "total", "tokens"];

/// Returns a request as a row of a table.
pub(super) fn row(entry: &Value) -> Vec<String> {
    let text = |name: &str| entry[name].as_str().filter(|text| !text.is_empty());
    let number = |name: &str| entry[name].as_u64().unwrap_or_default();
    let place = match (text("region"), text("replica")) {
        (Some(region), Some(replica)) => format!("{region}/{replica}"),
        (Some(region), None) => format!("{region} (forwarded)"),
        _ => "-".to_owned(),
    };
    let cached = match number("cached_tokens") {
        0 => String::new(),
        cached => format!("({cached})"),
    };
    let about = if is_estimated(entry) { "~" } else { "" };
    let end = text("end").filter(|end| !matches!(*end, "complete" | "answered"));
    let compared = entry["compared"]["reason"].as_str().filter(|_| text("replica").is_none());
    let why = end.or_else(|| text("shed")).or_else(|| text("reason")).or(compared);
    vec![
        clock(number("ended_ms")),
        entry["status"].to_string(),
        entry["first_token_ms"].as_f64().map_or_else(|| "-".to_owned(), time),
        entry["duration_ms"].as_f64().map_or_else(|| "-".to_owned(), time),
        format!("{about}{}{cached}+{}", number("prompt_tokens"), number("completion_tokens")),
        text("model").unwrap_or("-").to_owned(),
        text("key").or_else(|| text("tenant")).unwrap_or("-").to_owned(),
        place,
        why.unwrap_or("-").to_owned(),
    ]
}

/// Formats milliseconds with three digits and their unit.
fn time(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..1_000.0 => format!("{ms:.0} ms"),
        ..60_000.0 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.1} min", ms / 6e4),
    }
}

/// Formats the time of the day (UTC) of a moment in milliseconds since 1970.
fn clock(at_ms: u64) -> String {
    let (s, ms) = (at_ms / 1_000 % 86_400, at_ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60)
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served() -> Value {
        json!({
            "number": 3, "ended_ms": 45_296_789_u64, "id": "abc", "node": "n1", "model": "llama",
            "tenant": "acme", "key": "k1", "route": "chat", "region": "eu", "replica": "gpu-b",
            "reason": "cached", "status": 200, "end": "complete", "duration_ms": 1_234.5,
            "first_token_ms": 52.3, "retries": 1, "prompt_tokens": 1024, "cached_tokens": 512,
            "completion_tokens": 128,
            "expected": { "first_token_ms": 41.0, "wait_ms": 1.0, "prefill_ms": 40.0,
                "prompt_tokens": 1024, "cached_tokens": 512, "running": 3.0 },
        })
    }

    #[test]
    fn a_story_says_where_why_what_was_expected_and_what_came_of_it() {
        let told = story(&served());
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "It went to gpu-b in eu: it has more of the prompt in its cache.");
        assert_eq!(
            lines[1],
            "The first token was expected after 41 ms (1 ms waiting, 40 ms reading 512 of 1024 tokens, \
             3 running there); it came after 52 ms."
        );
        assert_eq!(
            lines[2],
            "The reply was passed on whole: status 200, 1234 ms in all, 1024 prompt tokens (512 cached), \
             128 generated, after one retry."
        );
        assert!(lines[4].starts_with("ended 12:34:56.789 UTC, model llama, route chat"), "{told}");
    }

    #[test]
    fn a_reply_in_one_piece_is_no_stream_whose_first_token_never_came() {
        let came = |is_stream: bool, status: u16| {
            let mut entry = served();
            entry["first_token_ms"] = Value::Null;
            (entry["is_stream"], entry["status"]) = (json!(is_stream), json!(status));
            let told = story(&entry);
            told.lines().nth(1).unwrap().rsplit("; ").next().unwrap().to_owned()
        };
        assert_eq!(came(false, 200), "the reply came in one piece.");
        assert_eq!(came(true, 200), "it never came.");
        assert_eq!(came(false, 502), "it never came.");
    }

    #[test]
    fn what_was_forwarded_or_turned_away_says_why() {
        let mut entry = served();
        entry["replica"] = Value::Null;
        entry["region"] = json!("us");
        entry["compared"] =
            json!({ "here_ms": 400.0, "best": "us", "best_ms": 80.2, "reason": "better" });
        let told = story(&entry);
        assert!(
            told.starts_with(
                "It was forwarded to us: waiting here costs more.\n\
                 Regions were compared: 400 ms here, 80 ms in us, the best other region."
            ),
            "{told}"
        );
        assert_eq!(row(&entry)[7..], ["us (forwarded)", "cached"]);
        entry["shed"] = json!("queue_full");
        assert!(story(&entry).starts_with("It was turned away: the queue is full"));
    }

    #[test]
    fn a_row_has_the_cells_of_the_heading() {
        let cells = row(&served());
        assert_eq!(cells.len(), HEADING.len());
        assert_eq!(
            cells,
            [
                "12:34:56.789",
                "200",
                "52 ms",
                "1.2 s",
                "1024(512)+128",
                "llama",
                "k1",
                "eu/gpu-b",
                "cached"
            ]
        );
        let mut cut = served();
        cut["end"] = json!("cut");
        cut["tokens_estimated"] = json!(true);
        let cells = row(&cut);
        assert_eq!((&*cells[4], &*cells[8]), ("~1024(512)+128", "cut"));
        assert!(story(&cut).contains("about 1024 prompt tokens"), "{}", story(&cut));
    }
}
