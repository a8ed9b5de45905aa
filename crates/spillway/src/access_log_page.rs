//! Page of the fields of the access log, of which docs/reference/access-log.md is made.

use std::fmt::Write;

use spillway_node::{ReasonKind, ReasonText};
use spillway_types::{RecordField, RequestEntry};

/// The page above its table.
const HEAD: &str = "\
# Access log

The access log has one line of JSON for each completed request ([requests.md](../guides/requests.md#access-log) shows how
to enable it). `GET /v1/requests` returns the same fields. `spillway reference access-log` generates this page.

The log does not contain health checks, and connections that end before a whole request head was read, such as failed TLS
handshakes. Metrics count those. A head above `limits.header_bytes_max` is logged, but without id and path over HTTP/1.1.
Over HTTP/2, a head of more than twice that size is not logged.

| field | meaning |
|---|---|
";

/// The page above the table of codes.
const CODES: &str = "
## `code`

Each failed request has a code, including replies with status 200 that broke off and gRPC calls with a status other than
0. It is the code of [errors.md](errors.md) that the client got, or one of the following. Entries of `tries` use the same
codes.

| code | meaning |
|---|---|
";

/// Returns docs/reference/access-log.md.
pub(crate) fn access_log_reference() -> String {
    let mut page = HEAD.to_owned();
    let fields = RequestEntry::fields();
    // Writes to a string never fail.
    for RecordField { name, meaning, values } in &fields {
        let more = if values.is_some() { " ([values](#values))" } else { "" };
        let _: std::fmt::Result = writeln!(page, "| `{name}` | {meaning}{more} |");
    }
    page.push_str(CODES);
    for cause in spillway_protocol::FailureCause::ALL {
        let code = cause.code();
        let meaning = spillway_protocol::code_meaning(code).unwrap_or_default();
        let _: std::fmt::Result = writeln!(page, "| <a id=\"{code}\"></a>`{code}` | {meaning} |");
    }
    page.push_str("\n## Values\n");
    for RecordField { name, values, .. } in &fields {
        let kind = |values| ReasonKind::ALL.into_iter().find(|kind| kind.name() == values);
        let Some(kind) = values.and_then(kind) else { continue };
        let _: std::fmt::Result =
            write!(page, "\n### Values of `{name}`\n\n| value | meaning |\n|---|---|\n");
        for ReasonText { name, text, .. } in kind.reasons() {
            let _: std::fmt::Result = writeln!(page, "| `{name}` | {text} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_access_log_is_what_the_code_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/access-log.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(written.trim_end() == access_log_reference().trim_end(), "{remedy}");
    }
}
