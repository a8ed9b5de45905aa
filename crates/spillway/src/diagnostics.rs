//! Errors and warnings of configs, shown with the line that they are about.

use std::io::{IsTerminal, stderr};

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};
use spillway_config::{ConfigError, ConfigErrors, Severity, SourcePosition};

/// Writes diagnostics to standard error with their lines, in colour on a terminal.
pub(crate) fn show(errors: &ConfigErrors) {
    crate::output::note(&rendered(errors, has_colours()));
    if errors.count(Severity::Error) > 0
        && let Some(counted) = errors.counted()
    {
        crate::output::note(&format!("\nspillway: the config can't be used: {counted}"));
    }
}

/// Writes diagnostics to the log, one a line.
pub(crate) fn log(errors: &ConfigErrors) {
    for error in errors.iter() {
        let (line, column) = error.position().unzip();
        let file = error.place.path.display();
        let (variable, help) = (error.place.variable.as_deref(), error.remedy.as_str());
        match error.severity {
            Severity::Error => {
                tracing::error!(%file, line, column, variable, help, "{}", error.message);
            }
            Severity::Warning => {
                tracing::warn!(%file, line, column, variable, help, "{}", error.message);
            }
        }
    }
}

/// Returns diagnostics in the form for programs.
pub(crate) fn as_json(errors: &ConfigErrors) -> Vec<Value> {
    errors.iter().map(one_as_json).collect()
}

fn one_as_json(error: &ConfigError) -> Value {
    let SourcePosition { path, variable, mark, .. } = &*error.place;
    // Places inside a variable's value are none of the file.
    let mark = mark.as_ref().filter(|_| variable.is_none());
    let (line, column) = mark.map(|mark| mark.start).unzip();
    let (end_line, end_column) = mark.map(|mark| mark.end).unzip();
    json!({
        "severity": error.severity.name(),
        "file": path,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "env": variable,
        "message": error.message,
        "help": error.remedy,
    })
}

/// Returns true if standard error is a terminal whose user did not ask for plain text
/// (<https://no-color.org>).
fn has_colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

fn rendered(errors: &ConfigErrors, has_colours: bool) -> String {
    let renderer = if has_colours { Renderer::styled() } else { Renderer::plain() };
    let shown: Vec<String> = errors.iter().map(|error| renderer.render(&[report(error)])).collect();
    shown.join("\n\n")
}

fn report(error: &ConfigError) -> Group<'_> {
    let level = match error.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let place = &*error.place;
    let group = match (&place.variable, &place.mark) {
        (Some(variable), Some(mark)) => {
            let title = format!("environment variable {variable}: {}", error.message);
            let primary = annotation(AnnotationKind::Primary, mark.span.clone(), &error.label);
            let snippet = Snippet::source(&*place.shown.0).line_numbering(false);
            level.primary_title(title).element(snippet.annotation(primary))
        }
        (None, Some(mark)) => {
            let primary = annotation(AnnotationKind::Primary, mark.span.clone(), &error.label);
            let earlier = place
                .earlier
                .iter()
                .map(|(mark, label)| annotation(AnnotationKind::Context, mark.span.clone(), label));
            let snippet = Snippet::source(&*place.shown.0).path(place.path.to_string_lossy());
            let snippet = snippet.annotation(primary).annotations(earlier);
            level.primary_title(&error.message).element(snippet)
        }
        (_, None) => {
            let origin = Origin::path(place.path.to_string_lossy());
            level.primary_title(&error.message).element(origin)
        }
    };
    group.element(Level::HELP.message(&error.remedy))
}

fn annotation<'a>(
    kind: AnnotationKind,
    span: std::ops::Range<usize>,
    label: &'a str,
) -> Annotation<'a> {
    let annotation = kind.span(span);
    if label.is_empty() { annotation } else { annotation.label(label) }
}
