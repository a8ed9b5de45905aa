//! `spillway config check`, `spillway config schema` and `spillway config reference`.

use anyhow::Result;
use serde_json::json;
use spillway_config::Config;

use crate::cli::CheckArgs;
use crate::output;

/// Checks a config file. The error names the fault, its place, and what to do.
pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    let loaded = Config::load(&args.file);
    // A node reads the location databases at its start.
    match loaded.and_then(|config| config.geo.open().map(|_| config)) {
        Ok(config) => {
            let (replicas, routes) = (config.world.replicas.len(), config.world.routes.len());
            let limits = config.limits.len();
            if args.json {
                let report =
                    json!({"ok": true, "replicas": replicas, "routes": routes, "limits": limits});
                output::line(&report.to_string())?;
            } else {
                let file = args.file.display();
                output::line(&format!("{file}: ok, {replicas} replicas, {routes} routes"))?;
                if limits > 0 && config.cluster.is_some() {
                    output::line(&format!(
                        "{limits} [[limit]] hold on this node alone; a limit of the cluster takes \
                         the place of one with its name"
                    ))?;
                }
            }
            Ok(())
        }
        Err(error) => {
            if args.json {
                let (line, column) = error.position.unzip();
                let report = json!({
                    "ok": false, "file": error.path, "line": line, "column": column,
                    "message": error.message, "remedy": error.remedy,
                });
                output::line(&report.to_string())?;
            }
            // With JSON, too: the exit code comes from this error.
            Err(error.into())
        }
    }
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
