//! `spillway config check`, `spillway config schema` and `spillway config reference`.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use spillway_config::{Config, ConfigErrors, Severity};
use spillway_node::preflight;

use crate::cli::CheckArgs;
use crate::{config_file, diagnostics, output, variables};

/// Checks a config file. The error has all that is wrong, with places and remedies.
pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    let file = config_file::chosen(args.file.as_deref(), Path::exists)?;
    let loaded = Config::load(&file);
    // A node reads the location databases at its start.
    let checked = loaded.and_then(|config| {
        let geo = config.geo.open().err().map(ConfigErrors::from).unwrap_or_default();
        let found = config.warnings.clone().with(preflight(&config)).with(geo);
        let found = found.with(variables::ignored(&file));
        if found.count(Severity::Error) > 0 { Err(found) } else { Ok((config, found)) }
    });
    match checked {
        Ok((config, warnings)) => {
            if args.json {
                output::line(&report(&file, &config, &warnings).to_string())?;
                return Ok(());
            }
            if !warnings.is_empty() {
                diagnostics::show(&warnings);
            }
            summary(&file, &config, &warnings)
        }
        Err(errors) => {
            if args.json {
                let diagnostics = diagnostics::as_json(&errors);
                let report = json!({ "ok": false, "diagnostics": diagnostics });
                output::line(&report.to_string())?;
            }
            // With JSON, too: the exit code comes from this error.
            Err(errors.into())
        }
    }
}

fn report(file: &Path, config: &Config, warnings: &ConfigErrors) -> Value {
    json!({
        "ok": true,
        "file": file,
        "replicas": config.world.replicas.len(),
        "routes": config.world.routes.len(),
        "limits": config.limits.len(),
        "diagnostics": diagnostics::as_json(warnings),
    })
}

fn summary(file: &Path, config: &Config, warnings: &ConfigErrors) -> Result<()> {
    let (replicas, routes) = (config.world.replicas.len(), config.world.routes.len());
    let warned = warnings.counted().map(|count| format!(", {count}"));
    let warned = warned.unwrap_or_default();
    let file = file.display();
    let (replicas, routes) = (counted(replicas, "replica"), counted(routes, "route"));
    output::line(&format!("{file}: ok, {replicas}, {routes}{warned}"))?;
    let limits = config.limits.len();
    if limits > 0 && config.cluster.is_some() {
        output::line(&format!(
            "{limits} [[limit]] hold on this node alone; a limit of the cluster takes the place of \
             one with its name"
        ))?;
    }
    Ok(())
}

/// Returns a number of things in words.
fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Prints the JSON Schema.
pub(crate) fn schema() -> Result<()> {
    output::line(&serde_json::to_string_pretty(&spillway_config::schema())?)?;
    Ok(())
}

/// Prints the page that lists all settings.
pub(crate) fn reference() -> Result<()> {
    output::line(spillway_config::reference().trim_end())?;
    Ok(())
}
