//! Page of errors and of the reasons for shedding, of which docs/reference/errors.md is made.

use std::fmt::Write;

use spillway_node::{ReasonKind, ReasonText};

/// The page above its table of reasons.
const SHED: &str = "
## Reasons for shedding

A shed request gets one of these reasons in `x-spillway-shed-reason`, in the label `reason` of `spillway_sheds_total`
and in `shed` of the access log ([admission.md](../explanation/admission.md#who-is-turned-away) shows when). A message
with figures replaces the one in the table where the gateway has them.

| reason | error | `Retry-After` | message | what it means |
|---|---|---|---|---|
";

/// Returns docs/reference/errors.md.
pub(crate) fn error_reference() -> String {
    let mut page = spillway_protocol::error_reference();
    page.push_str(SHED);
    for ReasonText { name, text, message, code, retry_after, .. } in ReasonKind::Shed.reasons() {
        let [message, code, retry] = [message, code, retry_after].map(Option::unwrap_or_default);
        // A write to a string never fails.
        let _: std::fmt::Result =
            writeln!(page, "| `{name}` | `{code}` | {retry} | {message} | {text} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_errors_is_what_the_code_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(written.trim_end() == error_reference().trim_end(), "{remedy}");
    }
}
