//! A request that ended, for people: as a line, and as a story.

use serde_json::Value;
use spillway_node::ReasonKind;

use super::words::{self, worded};

/// Describes one request in sentences: the places that were tried without success, where it went
/// and why, the expected and the actual outcome, and the regions that were not considered.
pub(crate) fn story(entry: &Value) -> String {
    let mut lines = Vec::new();
    if entry["is_guest"] == true {
        lines.push(format!("At {}, to which another node forwarded it:", plain(&entry["node"])));
    }
    lines.extend(tried(entry));
    lines.extend(went(entry));
    lines.extend(failed(entry));
    lines.extend(compared(entry));
    lines.extend(expected(entry));
    lines.push(came_of_it(entry));
    lines.extend(residency(entry));
    lines.extend(left_out(entry));
    lines.extend([String::new(), facts(entry)]);
    lines.join("\n")
}

/// Lists the places that were tried without success, in order.
fn tried(entry: &Value) -> Vec<String> {
    let lines = tries(entry).iter().zip(1..).map(|(tried, number)| {
        let (place, code) = (place(tried), plain(&tried["code"]));
        let after = tried["after_ms"].as_f64().map(time).unwrap_or_default();
        match tried["status"].as_u64() {
            Some(status) => {
                format!("Try {number}, after {after}: {place}: it answered with status {status} ({code}).")
            }
            None => format!("Try {number}, after {after}: {place}: {}.", meaning(code)),
        }
    });
    lines.collect()
}

fn tries(entry: &Value) -> &[Value] {
    entry["tries"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Names the place of a request, or of one of its tries.
fn place(entry: &Value) -> String {
    let region = plain(&entry["region"]);
    match entry["replica"].as_str() {
        Some(replica) => format!("{replica} in {region}"),
        None => format!("region {region}"),
    }
}

/// Describes where a request went, and why; leaves out a place that failed, which [`tried`] has
/// named.
fn went(entry: &Value) -> Option<String> {
    let text = |name: &str| entry[name].as_str();
    let why = |kind: ReasonKind, reason: Option<&str>| {
        reason.map(|name| format!(": {}", worded(kind, name))).unwrap_or_default()
    };
    let is_answered = text("end") == Some("answered");
    let last = tries(entry).last().filter(|_| is_answered);
    let is_last_try =
        last.is_some_and(|last| ["region", "replica"].iter().all(|it| last[it] == entry[it]));
    match (text("shed"), text("replica"), text("region")) {
        (Some(shed), ..) => Some(format!("It was refused{}.", why(ReasonKind::Shed, Some(shed)))),
        _ if is_last_try => None,
        (None, Some(_), Some(_)) => Some(format!(
            "It went to {}{}.",
            place(entry),
            why(ReasonKind::Replica, text("reason"))
        )),
        (None, None, Some(region)) => {
            let compared = entry["compared"]["reason"].as_str();
            Some(format!("It was forwarded to {region}{}.", why(ReasonKind::Region, compared)))
        }
        _ if tries(entry).is_empty() => {
            Some(format!("No replica was asked: {} answered it itself.", plain(&entry["node"])))
        }
        _ => None,
    }
}

/// Describes why a request failed.
fn failed(entry: &Value) -> Option<String> {
    let code = entry["code"].as_str()?;
    let detail = entry["detail"].as_str().map(|detail| format!(" {detail}")).unwrap_or_default();
    Some(match (code, entry["region"].as_str()) {
        ("replica_error", Some(region)) => {
            let by = match entry["replica"].as_str() {
                Some(replica) => replica.to_owned(),
                None => format!("a replica in {region}"),
            };
            let grpc = entry["grpc_status"].as_u64();
            let status = grpc.map(|grpc| format!("gRPC status {grpc}"));
            let status = status.unwrap_or_else(|| format!("status {}", entry["status"]));
            let named = detail.trim();
            let named = if named.is_empty() { String::new() } else { format!(", {named}") };
            format!(
                "It failed with replica_error: {by} answered with an error of its own ({status}{named})."
            )
        }
        _ if detail.is_empty() => format!("It failed with {code}: {}.", meaning(code)),
        _ => format!("It failed with {code}:{}.", detail.trim_end_matches('.')),
    })
}

/// Returns the meaning of a code, worded to follow a colon; the code itself if it is one of a newer
/// node.
fn meaning(code: &str) -> String {
    match words::meaning(&[ReasonKind::Code], code) {
        Some(meaning) => format!("{meaning} ({code})"),
        None => code.to_owned(),
    }
}

/// Describes where rules let a request be served.
fn residency(entry: &Value) -> Option<String> {
    let residency = entry["residency"].as_str()?;
    Some(format!("Its residency rules let it be served {residency}."))
}

/// Names the other regions that were not considered, and why.
fn left_out(entry: &Value) -> Option<String> {
    let regions = entry["left_out"].as_array().filter(|regions| !regions.is_empty())?;
    let named = |it: &Value| {
        format!("{} ({})", plain(&it["region"]), worded(ReasonKind::LeftOut, plain(&it["reason"])))
    };
    let named: Vec<String> = regions.iter().map(named).collect();
    Some(format!("Regions that were not considered: {}.", named.join(", ")))
}

/// Describes how this region compared with others.
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

/// Describes the figures that were expected of the replica.
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

/// Describes how the request ended.
fn came_of_it(entry: &Value) -> String {
    let number = |name: &str| entry[name].as_f64().unwrap_or_default();
    let is_by_client = entry["code"].as_str().is_none_or(|code| code == "client_closed");
    let end = match plain(&entry["end"]) {
        "cancelled_before_reply" if !is_by_client => "It was broken off before a reply",
        "cancelled_in_reply" if !is_by_client => "It was broken off in the reply",
        end => ReasonKind::End.text_of(end).unwrap_or(end),
    };
    // Each try has its own line.
    let retries = match number("retries") as u64 {
        0 => String::new(),
        _ if !tries(entry).is_empty() => String::new(),
        1 => ", after one retry".to_owned(),
        several => format!(", after {several} retries"),
    };
    let ms = number("duration_ms");
    format!("{end}: status {}, {ms:.0} ms in all{}{retries}.", entry["status"], used(entry))
}

/// Describes the tokens that a request used; empty if it used none.
fn used(entry: &Value) -> String {
    let (prompt, cached) = (&entry["prompt_tokens"], &entry["cached_tokens"]);
    let generated = entry["completion_tokens"].as_u64().unwrap_or_default();
    let about = if is_estimated(entry) { "about " } else { "" };
    match (prompt.as_u64().unwrap_or_default(), generated) {
        (0, 0) => String::new(),
        (0, _) => format!(", an unknown number of prompt tokens, {generated} generated"),
        _ => format!(", {about}{prompt} prompt tokens ({cached} cached), {generated} generated"),
    }
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
            let reason = entry["arm_reason"].as_str().filter(|_| name == "arm");
            let why = reason.map(|reason| format!(" ({})", worded(ReasonKind::Arm, reason)));
            facts.push(format!("{} {value}{}", name.replace('_', " "), why.unwrap_or_default()));
        }
    }
    let ended_ms = entry["ended_ms"].as_u64().unwrap_or_default();
    format!("ended {} UTC, {}", clock(ended_ms), facts.join(", "))
}

/// Column of a table of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Characters that the column begins with where rows come one by one.
    pub(crate) width: usize,
    cell: fn(&Value) -> String,
}

/// Columns of tables of requests.
pub(crate) const COLUMNS: [Column; 10] = [
    Column {
        name: "UTC",
        width: 8,
        cell: |it| clock(it["ended_ms"].as_u64().unwrap_or_default())[..SECONDS].to_owned(),
    },
    Column { name: "status", width: 6, cell: |it| it["status"].to_string() },
    Column { name: "code", width: 18, cell: |it| plain(&it["code"]).to_owned() },
    Column { name: "first", width: 6, cell: |it| duration(&it["first_token_ms"]) },
    Column { name: "total", width: 6, cell: |it| duration(&it["duration_ms"]) },
    Column { name: "tokens", width: 14, cell: tokens },
    Column { name: "model", width: 12, cell: |it| plain(&it["model"]).to_owned() },
    Column {
        name: "who",
        width: 8,
        cell: |it| text(it, "key").unwrap_or_else(|| plain(&it["tenant"])).to_owned(),
    },
    Column { name: "where", width: 16, cell: place_asked },
    Column { name: "why", width: 12, cell: |it| why(it).unwrap_or("-").to_owned() },
];

/// Columns in the order in which a narrow terminal is spared them.
pub(crate) const DROPPED: [&str; 4] = ["model", "who", "total", "tokens"];

/// Returns a request as a row of a table.
pub(crate) fn row(entry: &Value) -> Vec<String> {
    COLUMNS.iter().map(|column| (column.cell)(entry)).collect()
}

fn tokens(entry: &Value) -> String {
    let number = |name: &str| entry[name].as_u64().unwrap_or_default();
    let cached = match number("cached_tokens") {
        0 => String::new(),
        cached => format!("({cached})"),
    };
    let about = if is_estimated(entry) { "~" } else { "" };
    match (number("prompt_tokens"), number("completion_tokens")) {
        (0, 0) => "-".to_owned(),
        // No prompt has no tokens: they were not reported.
        (0, generated) => format!("-+{generated}"),
        (prompt, generated) => format!("{about}{prompt}{cached}+{generated}"),
    }
}

fn place_asked(entry: &Value) -> String {
    match (text(entry, "region"), text(entry, "replica")) {
        (Some(region), Some(replica)) => format!("{region}/{replica}"),
        (Some(region), None) => format!("{region} (forwarded)"),
        // Of a request that no place served, the place that was asked last.
        _ => tries(entry).last().map_or_else(|| "-".to_owned(), tried_target),
    }
}

fn why(entry: &Value) -> Option<&str> {
    let end = text(entry, "end").filter(|end| !matches!(*end, "complete" | "answered"));
    let compared = entry["compared"]["reason"].as_str();
    let compared = compared.filter(|_| text(entry, "replica").is_none());
    // Why a place was chosen is no cause of a failure.
    let chosen = text(entry, "reason").or(compared).filter(|_| text(entry, "code").is_none());
    end.or_else(|| text(entry, "shed")).or(chosen)
}

/// Returns the place of a try as a cell.
fn tried_target(tried: &Value) -> String {
    match tried["replica"].as_str() {
        Some(replica) => format!("{}/{replica}", plain(&tried["region"])),
        None => plain(&tried["region"]).to_owned(),
    }
}

fn duration(ms: &Value) -> String {
    ms.as_f64().map_or_else(|| "-".to_owned(), time)
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

/// Characters of a time of the day to its seconds.
const SECONDS: usize = "12:34:56".len();

/// Formats the time of the day (UTC) of a moment in milliseconds since 1970.
fn clock(at_ms: u64) -> String {
    let (s, ms) = (at_ms / 1_000 % 86_400, at_ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60)
}

fn plain(value: &Value) -> &str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("-")
}

fn text<'a>(entry: &'a Value, name: &str) -> Option<&'a str> {
    entry[name].as_str().filter(|text| !text.is_empty())
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
        assert_eq!(
            lines[0],
            "It went to gpu-b in eu: the replica has the longest part of the prompt in its cache."
        );
        assert_eq!(
            lines[1],
            "The first token was expected after 41 ms (1 ms waiting, 40 ms reading 512 of 1024 tokens, \
             3 running there); it came after 52 ms."
        );
        assert_eq!(
            lines[2],
            "The whole reply was forwarded: status 200, 1234 ms in all, 1024 prompt tokens (512 cached), \
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
        assert_eq!(row(&entry)[8..], ["us (forwarded)", "cached"]);
        entry["shed"] = json!("queue_full");
        assert!(story(&entry).starts_with("It was refused: the queue is full"));
    }

    /// Returns a failed request, with these fields in place of those of a served one.
    fn failing(fields: Value) -> Value {
        let mut entry = served();
        entry["expected"] = Value::Null;
        for name in ["prompt_tokens", "cached_tokens", "completion_tokens", "retries"] {
            entry[name] = json!(0);
        }
        for (name, value) in fields.as_object().expect("fields") {
            entry[name] = value.clone();
        }
        entry
    }

    fn lines(entry: &Value) -> Vec<String> {
        story(entry).lines().map(str::to_owned).take_while(|line| !line.is_empty()).collect()
    }

    #[test]
    fn a_request_of_a_lost_region_was_not_answered_by_its_node_alone() {
        let entry = failing(json!({
            "region": "eu", "replica": null, "reason": null, "status": 502, "end": "answered",
            "code": "replica_reset", "detail": "the region eu can't be reached any more",
            "tries": [{ "region": "eu", "replica": null, "code": "region_lost", "after_ms": 1012.0 }],
        }));
        assert_eq!(
            lines(&entry),
            [
                "Try 1, after 1.0 s: region eu: the region fell silent while its reply was waited \
                 for (region_lost).",
                "It failed with replica_reset: the region eu can't be reached any more.",
                "The gateway itself answered: status 502, 1234 ms in all.",
            ]
        );
        assert_eq!(row(&entry)[1..4], ["502", "replica_reset", "52 ms"]);
        assert_eq!(row(&entry)[8..], ["eu (forwarded)", "-"]);
    }

    #[test]
    fn a_replica_s_own_error_names_the_replica_and_no_reason_for_its_choice() {
        let entry = failing(json!({
            "status": 500, "code": "replica_error", "detail": "InternalServerError",
            "tries": [{ "region": "eu", "replica": "gpu-a", "code": "replica_error", "status": 503,
                "after_ms": 4.0 }],
        }));
        assert_eq!(
            lines(&entry)[..3],
            [
                "Try 1, after 4.0 ms: gpu-a in eu: it answered with status 503 (replica_error)."
                    .to_owned(),
                "It went to gpu-b in eu: the replica has the longest part of the prompt in its cache.".to_owned(),
                "It failed with replica_error: gpu-b answered with an error of its own (status 500, \
                 InternalServerError)."
                    .to_owned(),
            ]
        );
        assert_eq!(row(&entry)[8..], ["eu/gpu-b", "-"]);
    }

    #[test]
    fn rules_and_regions_that_were_not_considered_are_named() {
        let entry = failing(json!({
            "region": null, "replica": null, "reason": null, "status": 403, "end": "answered",
            "code": "region_not_allowed", "detail": "no region that could serve it is allowed",
            "residency": "only in the regions us",
            "left_out": [{ "region": "ap", "reason": "outside_residency" },
                { "region": "us", "reason": "drained" }],
        }));
        assert_eq!(
            lines(&entry)[3..],
            [
                "Its residency rules let it be served only in the regions us.",
                "Regions that were not considered: ap (the residency rules of the request do not allow \
                 the region), us (the region's weight is 0, or its ramp has not begun).",
            ]
        );
    }

    #[test]
    fn a_node_that_stops_is_no_client_that_left() {
        let entry = failing(json!({ "end": "cancelled_in_reply", "code": "node_stopped" }));
        let told = story(&entry);
        assert!(told.contains("It failed with node_stopped: the node stopped before"), "{told}");
        assert!(told.contains("It was broken off in the reply: status 200"), "{told}");
    }

    #[test]
    fn tokens_that_nobody_reported_are_a_dash() {
        let mut entry = served();
        entry["prompt_tokens"] = json!(0);
        entry["cached_tokens"] = json!(0);
        assert_eq!(row(&entry)[5], "-+128");
        entry["completion_tokens"] = json!(0);
        assert_eq!(row(&entry)[5], "-");
    }

    #[test]
    fn a_row_has_the_cells_of_the_heading() {
        let cells = row(&served());
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(
            cells,
            [
                "12:34:56",
                "200",
                "-",
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
        assert_eq!((&*cells[5], &*cells[9]), ("~1024(512)+128", "cut"));
        assert!(story(&cut).contains("about 1024 prompt tokens"), "{}", story(&cut));
    }
}
