//! Page of results with its charts.

use std::{fs, path::Path};

use anyhow::Context as _;

use super::{
    herd,
    limits::{Limit, LimitVerdict, limits},
    results::{Results, SlowStart},
    slow::{self, is_load_aware},
    svg::{self, Bars, Panel},
    tables::{self, Section},
};

/// Start of the part of the page that another command makes.
const OTHER_PART: &str = "<!-- below: made by tests/servers/run.py --markdown -->";

/// Writes the page to `file` and the charts beside it. Keeps the part of the page that another
/// command made.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub(crate) fn write(results: &Results, file: &Path) -> anyhow::Result<()> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).context("no name for the page")?;
    let mut charts = Vec::new();
    for (name, caption, chart) in [
        ("slow", "p99 with a slow replica, over the healthy p99", slow_chart(results)),
        ("herd", "p99 around the joining of ten cold replicas", herd_chart(results)),
    ] {
        let Some(chart) = chart else { continue };
        let chart_file = format!("{stem}-{name}.svg");
        write_file(&file.with_file_name(&chart_file), &chart)?;
        charts.push(format!("![{caption}]({chart_file})\n"));
    }
    // A page that does not exist yet has no part to keep.
    let before = fs::read_to_string(file).unwrap_or_default();
    let other_part = before.find(OTHER_PART).map_or("", |start| &before[start..]);
    let gap = if other_part.is_empty() { "" } else { "\n" };
    write_file(file, &format!("{}{gap}{other_part}", page(results, &charts)))
}

fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

/// Formats the limits, one a line, for the page and the terminal.
pub(crate) fn limit_lines(limits: &[Limit]) -> Vec<String> {
    let line = |limit: &Limit| {
        let verdict = match limit.verdict {
            LimitVerdict::Holds => "holds",
            LimitVerdict::Fails => "DOES NOT HOLD",
            LimitVerdict::Unknown => "not known",
        };
        let must = if limit.is_must { " (must)" } else { "" };
        let evidence =
            if limit.evidence.is_empty() { String::new() } else { format!(": {}", limit.evidence) };
        format!("{verdict}{must}: {}{evidence}", limit.demand)
    };
    limits.iter().map(line).collect()
}

fn page(results: &Results, charts: &[String]) -> String {
    let origin = &results.origin;
    let mut text = String::from("# What faults do\n\n");
    text.push_str("Made by this command; edit nothing here by hand.\n\n");
    text.push_str(&format!("```sh\n{}\n```\n\n", origin.command));
    text.push_str(&format!(
        "{}, {}, on {}. Seed {}, {} requests per second with Poisson arrivals ({} per second with \
         the herd), half of them whole chats, three in ten streams, the rest V2 inference. Load, \
         gateway and replicas share the machine, {} runs at a time; a run during which it had no \
         time to spare is made again, and if that does not help it is marked as invalid. The replicas are emulated (docs/reference/emulator.md): an \
         L4 ten times faster than it is, so that a chat takes about 110 ms.\n\n",
        origin.date,
        origin.version,
        origin.machine,
        results.seed,
        results.rate_per_s,
        results.rate_per_s / 2.0,
        results.jobs
    ));
    text.push_str(&settings(results));
    text.push_str("## Limits\n\n");
    for line in limit_lines(&limits(results)) {
        text.push_str(&format!("- {line}\n"));
    }
    for Section { title, note, grid } in tables::sections(results) {
        text.push_str(&format!("\n## {title}\n\n{note}\n\n{}", grid.markdown()));
    }
    for chart in charts {
        text.push_str(&format!("\n{chart}"));
    }
    text
}

/// Describes the gateway's settings for the reader.
fn settings(results: &Results) -> String {
    let mut text = String::from(
        "Clients give up after 10 s and say so with a budget of 8 s; `timeouts.first_byte_ms` is \
         4000 and `timeouts.idle_ms` 2000. ",
    );
    match &results.health {
        None => text.push_str("This binary has no health checks."),
        Some(health) if health.is_empty() => text.push_str("`[health]` has its defaults."),
        Some(health) => {
            let settings: Vec<String> =
                health.iter().map(|(name, value)| format!("`{name} = {value}`")).collect();
            text.push_str(&format!(
                "`[health]` has its defaults but for {}; the replicas are ten times faster than real \
                 ones.",
                settings.join(", ")
            ));
        }
    }
    if !results.origin.overrides.is_empty() {
        let overrides = results.origin.overrides.join("`, `");
        text.push_str(&format!(" Set from the environment: `{overrides}`."));
    }
    text + "\n\n"
}

fn slow_chart(results: &Results) -> Option<String> {
    let bar = |row: &super::results::ResultRow<(), slow::Slow>| {
        let ratio = row.outcome.measured()?.ratio?;
        Some((row.policy.clone(), ratio, is_load_aware(&row.policy)))
    };
    let bars: Vec<_> = results.slow.iter().filter_map(bar).collect();
    let title = "p99 with one of four replicas ten times slower, over the healthy p99".to_owned();
    (!bars.is_empty()).then(|| svg::bars(&Bars { title, bars, limit: slow::RATIO_MAX }))
}

fn herd_chart(results: &Results) -> Option<String> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in &results.herd {
        let Some(herd) = row.outcome.measured() else { continue };
        let start = if row.about == SlowStart::On { "slow start" } else { "off" };
        let points = herd.p99_by_second.iter().map(|(at, p99_ms)| (f64::from(*at), *p99_ms));
        let line = (start.to_owned(), points.collect());
        match panels.iter_mut().find(|panel| panel.title == row.policy) {
            Some(panel) => panel.lines.push(line),
            None => panels.push(Panel { title: row.policy.clone(), lines: vec![line] }),
        }
    }
    let title = format!(
        "p99 of each second while ten cold replicas join two warm ones; limit {} × before",
        herd::RATIO_MAX
    );
    (!panels.is_empty()).then(|| svg::panels(&title, "ms", &panels))
}

#[cfg(test)]
mod tests {
    use super::super::results::tests as by_hand;
    use super::{super::account::Account, super::fault::Fault, super::results::*, *};

    #[test]
    fn the_page_says_what_fails_and_what_it_was_made_with() {
        let mut results = by_hand::nothing();
        results.origin.overrides = vec!["SPILLWAY__HEALTH__FALL=3".to_owned()];
        let account = Account { sent: 7, lost: 3, ..Account::default() };
        results.matrix = vec![ResultRow {
            policy: "random".to_owned(),
            about: Fault::Hung,
            outcome: ResultOutcome::Measured(by_hand::cell(account, &[])),
        }];
        results.slow = vec![by_hand::slow_row("least_connections", 1.8, &[])];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.md");
        fs::write(&file, format!("# Old\n\n{OTHER_PART}\n\n## Kept\n")).unwrap();
        write(&results, &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        for part in [
            "```sh\nspillway-bench faults\n```",
            "Seed 1, 120 requests per second",
            "- DOES NOT HOLD (must): 0 lost: random × hung 3\n",
            "- holds (must): 0 doubled: 7 requests in 2 runs\n",
            "- DOES NOT HOLD: least_connections: p99",
            "This binary has no health checks.",
            "`SPILLWAY__HEALTH__FALL=3`",
            "](results-slow.svg)",
            "\n\n<!-- below: made by tests/servers/run.py --markdown -->\n\n## Kept\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("# Old"));
        write(&results, &file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "written again, it is the same");
        let chart = fs::read_to_string(folder.path().join("results-slow.svg")).unwrap();
        assert!(chart.contains("least_connections"));
        assert!(!folder.path().join("results-herd.svg").exists() && !text.contains("herd.svg"));
    }
}
