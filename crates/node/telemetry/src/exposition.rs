//! Formats of the metrics page: OpenMetrics, and the classic text format of Prometheus.
//!
//! The registry writes OpenMetrics. The classic format has other types and names in its comments, and
//! no exemplars, units or end.

use std::fmt::Write;

/// Format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Text format 0.0.4 of Prometheus.
    Classic,
}

/// Match of an `Accept` header with a format: how exactly it names the format, and its quality in
/// thousandths.
type Match = (u8, u16);

impl Exposition {
    /// Chooses a format by the values of `Accept` headers. The classic format is the default, since
    /// every scraper reads it.
    #[must_use]
    pub fn of_accept<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let ranges: Vec<&str> = values.into_iter().flat_map(|value| value.split(',')).collect();
        let quality = |format: Self| {
            let matches = ranges.iter().filter_map(|range| format.is_met(range));
            // Of two matches the more exact one counts, whatever its quality (RFC 9110, 12.5.1).
            matches.max().map_or(0, |(_, quality)| quality)
        };
        if quality(Self::OpenMetrics) > quality(Self::Classic) {
            Self::OpenMetrics
        } else {
            Self::Classic
        }
    }

    /// Returns the `Content-Type` of the format.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns a page of OpenMetrics in this format.
    #[must_use]
    pub fn of_open_metrics(self, page: String) -> String {
        match self {
            Self::OpenMetrics => page,
            Self::Classic => classic(&page),
        }
    }

    /// Returns how a media range of `Accept` meets the format; `None` if it does not.
    fn is_met(self, range: &str) -> Option<Match> {
        let (kind, subtype, version) = match self {
            Self::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
            Self::Classic => ("text", "plain", "0.0.4"),
        };
        let mut parts = range.split(';').map(str::trim);
        let (of_kind, of_subtype) = parts.next()?.split_once('/')?;
        let mut exactness = match (of_kind, of_subtype) {
            ("*", "*") => 0,
            (of_kind, "*") if of_kind.eq_ignore_ascii_case(kind) => 1,
            _ if of_kind.eq_ignore_ascii_case(kind) && of_subtype.eq_ignore_ascii_case(subtype) => {
                2
            }
            _ => return None,
        };
        let mut quality = 1_000;
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("q") {
                quality = thousandths(value)?;
            } else if name.trim().eq_ignore_ascii_case("version") {
                if value != version {
                    return None;
                }
                exactness = 3;
            }
        }
        Some((exactness, quality))
    }
}

/// Reads a quality from 0 to 1; `None` for anything else.
fn thousandths(text: &str) -> Option<u16> {
    let quality: f32 = text.parse().ok()?;
    (0.0..=1.0).contains(&quality).then_some((quality * 1_000.0).round() as u16)
}

/// Converts a page of OpenMetrics, as the registry writes it, to the classic format.
fn classic(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut family = Family::default();
    for line in page.lines() {
        match line.strip_prefix("# ") {
            Some(comment) => family.comment(comment, &mut out),
            None => family.sample(line, &mut out),
        }
    }
    out
}

/// Family of the lines that are being converted.
#[derive(Debug, Default)]
struct Family<'p> {
    name: &'p str,
    kind: &'p str,
    /// Help of the family, which comes before its type.
    help: Option<&'p str>,
}

impl<'p> Family<'p> {
    fn comment(&mut self, comment: &'p str, out: &mut String) {
        let mut words = comment.splitn(3, ' ');
        let (keyword, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match keyword {
            "HELP" => self.help = Some(rest),
            "TYPE" => {
                (self.name, self.kind) = (name, rest);
                self.head(out);
            }
            // The classic format has no units, and no end.
            _ => {}
        }
    }

    /// Writes help and type under the name that the samples have.
    fn head(&mut self, out: &mut String) {
        let (suffix, kind) = match self.kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "stateset" => ("", "gauge"),
            "unknown" | "gaugehistogram" => ("", "untyped"),
            kind => ("", kind),
        };
        let name = self.name;
        if let Some(help) = self.help.take() {
            // A quote is escaped in OpenMetrics alone.
            let help = help.replace("\\\"", "\"");
            // Writing into a String can't fail.
            let _: std::fmt::Result = writeln!(out, "# HELP {name}{suffix} {help}");
        }
        let _: std::fmt::Result = writeln!(out, "# TYPE {name}{suffix} {kind}");
    }

    /// Writes a sample without its exemplar. Times of creation are left out: the classic format would
    /// take them for another family.
    fn sample(&self, line: &str, out: &mut String) {
        let suffix = line.strip_prefix(self.name).unwrap_or_default();
        let is_created =
            suffix.strip_prefix("_created").is_some_and(|rest| rest.starts_with(['{', ' ']));
        let can_be_created = matches!(self.kind, "counter" | "histogram" | "summary");
        if !(is_created && can_be_created) {
            out.push_str(without_exemplar(line));
            out.push('\n');
        }
    }
}

/// Returns a sample up to its exemplar. Label values may contain the mark of an exemplar, too.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scraper_gets_what_it_asks_for() {
        use Exposition::{Classic, OpenMetrics};
        for (expected, accept) in [
            // Prometheus 3.
            (
                OpenMetrics,
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ),
            // Prometheus 2.
            (
                OpenMetrics,
                "application/openmetrics-text;version=1.0.0,\
                 application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
                 */*;q=0.1",
            ),
            // Prometheus 2 before OpenMetrics, and the agent of VictoriaMetrics.
            (Classic, "text/plain;version=0.0.4;q=1,*/*;q=0.1"),
            (Classic, "text/plain;version=0.0.4, */*;q=0.5"),
            // Prometheus 3, with `PrometheusText1.0.0` first.
            (
                OpenMetrics,
                "text/plain;version=1.0.0, application/openmetrics-text;q=0.5, */*;q=0.1",
            ),
            (Classic, "text/plain;version=1.0.0"),
            (Classic, "text/plain"),
            (Classic, "TEXT/PLAIN; Version=\"0.0.4\""),
            (Classic, "text/*"),
            (OpenMetrics, "application/*"),
            (OpenMetrics, "application/openmetrics-text"),
            (OpenMetrics, "Application/OpenMetrics-Text; version=1.0.0; charset=utf-8"),
            // A version that is not served.
            (Classic, "application/openmetrics-text; version=0.0.1"),
            // curl, browsers, and clients that do not say.
            (Classic, "*/*"),
            (Classic, ""),
            (Classic, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            (Classic, "application/json"),
            // The more exact range counts.
            (OpenMetrics, "text/plain;q=0.1, */*"),
            (Classic, "application/openmetrics-text;q=0, */*;q=0.1"),
            (Classic, "application/openmetrics-text;q=0.5, text/plain;q=0.5"),
            (Classic, "application/openmetrics-text;q=x"),
        ] {
            assert_eq!(Exposition::of_accept([accept]), expected, "{accept}");
        }
        let lines = ["text/plain;q=0.2", "application/openmetrics-text"];
        assert_eq!(Exposition::of_accept(lines), OpenMetrics, "several headers are one list");
        assert_eq!(Exposition::of_accept([]), Classic);
    }

    #[test]
    fn what_no_scraper_should_send_gets_the_classic_format() {
        for accept in [
            "application/openmetrics-text;q=1.5",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=nan",
            "application/openmetrics-text;q=",
            "application/openmetrics-text;q=inf",
            "application/openmetrics-text;version=",
            "application/openmetrics-text;version=2.0.0",
            "openmetrics-text",
            "/openmetrics-text",
            "*/openmetrics-text",
            "application/",
            "application/openmetrics-text-next",
            ",,,;;;===",
            "application/openmetrics-text;q=0.0004",
        ] {
            assert_eq!(Exposition::of_accept([accept]), Exposition::Classic, "{accept}");
        }
        for accept in [
            " application/openmetrics-text ; q = 0.5 ",
            "application/openmetrics-text;q=\"1\"",
            "application/openmetrics-text;odd",
            ",application/openmetrics-text,",
            "application/openmetrics-text;version=2.0.0, application/openmetrics-text;version=1.0.0",
            // The least quality that the header can express.
            "application/openmetrics-text;q=0.001",
        ] {
            assert_eq!(Exposition::of_accept([accept]), Exposition::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn the_content_type_of_a_format_asks_for_the_same_format() {
        for format in [Exposition::OpenMetrics, Exposition::Classic] {
            assert_eq!(Exposition::of_accept([format.content_type()]), format);
        }
    }

    #[test]
    fn a_time_of_creation_is_left_out_and_a_metric_of_that_name_is_not() {
        for (kind, line, stays) in [
            ("counter", "a_created{x=\"y\"} 1", false),
            ("counter", "a_created 1", false),
            ("histogram", "a_created 1", false),
            ("summary", "a_created 1", false),
            ("gauge", "a_created 1", true),
            ("counter", "a_created_total 1", true),
            ("counter", "a_total{x=\"a_created \"} 1", true),
        ] {
            let page = format!("# TYPE a {kind}\n{line}\n# EOF\n");
            let classic = Exposition::Classic.of_open_metrics(page);
            assert_eq!(classic.contains(line), stays, "{kind}: {line}");
        }
    }

    #[test]
    fn a_family_without_help_does_not_take_that_of_another() {
        let page = "# HELP a About a.\n# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# EOF\n";
        let classic = Exposition::Classic.of_open_metrics(page.to_owned());
        assert_eq!(classic, "# HELP a About a.\n# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n");
    }

    #[test]
    fn a_page_of_each_type_becomes_classic() {
        let page = "\
# HELP build Facts \\\"here\\\".
# TYPE build info
build_info{version=\"1\"} 1
# HELP requests Requests\\nin two lines with a \\\\.
# TYPE requests counter
requests_total{model=\"a # b\",key=\"\\\"#\\\\\"} 5 # {trace_id=\"x y\"} 0.5 1.25
requests_created{model=\"a # b\"} 1700000000.5
# HELP wait Seconds.
# TYPE wait histogram
# UNIT wait seconds
wait_bucket{le=\"0.5\"} 1 # {trace_id=\"x\"} 0.4
wait_bucket{le=\"+Inf\"} 2
wait_sum 1.5
wait_count 2
wait_created 1700000000
# TYPE up gauge
up{of=\"_created\"} NaN
# TYPE state stateset
state{state=\"a\"} 1
# TYPE odd unknown
odd 7
# EOF
";
        let expected = "\
# HELP build_info Facts \"here\".
# TYPE build_info gauge
build_info{version=\"1\"} 1
# HELP requests_total Requests\\nin two lines with a \\\\.
# TYPE requests_total counter
requests_total{model=\"a # b\",key=\"\\\"#\\\\\"} 5
# HELP wait Seconds.
# TYPE wait histogram
wait_bucket{le=\"0.5\"} 1
wait_bucket{le=\"+Inf\"} 2
wait_sum 1.5
wait_count 2
# TYPE up gauge
up{of=\"_created\"} NaN
# TYPE state gauge
state{state=\"a\"} 1
# TYPE odd untyped
odd 7
";
        assert_eq!(Exposition::Classic.of_open_metrics(page.to_owned()), expected);
        assert_eq!(Exposition::OpenMetrics.of_open_metrics(page.to_owned()), page);
    }
}
