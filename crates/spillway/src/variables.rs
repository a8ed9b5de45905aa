//! Environment variables that were meant for `spillway` and have no effect.

use std::path::Path;

use clap::{Command, CommandFactory};
use spillway_config::{ConfigError, ConfigErrors, Severity, setting_variables};
use spillway_types::nearest;

use crate::cli::Cli;

/// Prefix of all variables of the program.
const PREFIX: &str = "SPILLWAY_";
/// Prefix of variables that set a setting of the config.
const SETTING: &str = "SPILLWAY__";
/// Variables that the program reads beside those of its options.
const OTHERS: [&str; 1] = ["SPILLWAY_BACKUP_PASSPHRASE"];

/// Returns a warning for each variable of this process that has no effect, and was likely meant to
/// have one.
pub(crate) fn ignored(file: &Path) -> ConfigErrors {
    let mut known: Vec<String> = OTHERS.map(str::to_owned).to_vec();
    add_options(&Cli::command(), &mut known);
    let given: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let ignored = without_effect(&given, &known, &setting_variables());
    let warnings = ignored.into_iter().map(|(name, meant)| {
        let message = format!("the environment variable {name} has no effect");
        let remedy = match meant {
            Some(meant) => format!("did you mean {meant}? Write that, or unset it"),
            None => format!("unset it, or name a setting as {SETTING}SECTION__KEY"),
        };
        let mut warning = ConfigError::whole_file(file, message, &remedy);
        warning.severity = Severity::Warning;
        warning.place.variable = Some(name);
        warning
    });
    warnings.collect::<Vec<_>>().into()
}

/// Adds the variables of a command's options, and those of its subcommands.
fn add_options(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(variables.map(str::to_owned));
    command.get_subcommands().for_each(|command| add_options(command, known));
}

/// Returns the variables that look like one of `known`, or like one that sets one of `settings`,
/// each with that name if one is near. Other variables with the prefix may belong to another
/// program.
fn without_effect(
    given: &[(String, String)],
    known: &[String],
    settings: &[String],
) -> Vec<(String, Option<String>)> {
    // With single underscores, as people write the variables of other programs.
    let plain = |name: &str| name.replace("__", "_").replace("_0_", "_");
    let names: Vec<(String, &str)> =
        known.iter().chain(settings).map(|name| (plain(name), name.as_str())).collect();
    let bare: Vec<&str> = names.iter().filter_map(|(name, _)| name.strip_prefix(PREFIX)).collect();
    let sections: Vec<&str> =
        settings.iter().filter_map(|name| name.strip_prefix(SETTING)?.split("__").next()).collect();
    let mut ignored = Vec::new();
    for (name, value) in given {
        let is_used = name.starts_with(SETTING) || known.contains(name);
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !is_used) else { continue };
        if is_of_kubernetes(rest, value) {
            continue;
        }
        let meant = nearest(&plain(rest), &bare).and_then(|meant| {
            let (_, name) =
                names.iter().find(|(name, _)| name.strip_prefix(PREFIX) == Some(meant))?;
            Some((*name).to_owned())
        });
        let is_of_section = sections
            .iter()
            .any(|section| rest.strip_prefix(section).is_some_and(|key| key.starts_with('_')));
        if meant.is_some() || is_of_section {
            ignored.push((name.clone(), meant));
        }
    }
    ignored.sort();
    ignored
}

/// Returns true for what Kubernetes sets in all pods beside a service whose name begins with
/// `spillway`.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let is_port = rest == "PORT" || rest.ends_with("_PORT");
    rest.contains("SERVICE_HOST")
        || rest.contains("SERVICE_PORT")
        || rest.contains("PORT_") && (rest.contains("_TCP") || rest.contains("_UDP"))
        || is_port && value.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, value: &str) -> Vec<Option<String>> {
        let mut known = Vec::new();
        add_options(&Cli::command(), &mut known);
        let given = [(name.to_owned(), value.to_owned())];
        let ignored = without_effect(&given, &known, &setting_variables());
        ignored.into_iter().map(|(_, meant)| meant).collect()
    }

    #[test]
    fn a_variable_that_was_meant_for_the_program_is_told_with_the_nearest_name() {
        for (name, meant) in [
            ("SPILLWAY_NODE_REGION", "SPILLWAY__NODE__REGION"),
            ("SPILLWAY_NODE_REGOIN", "SPILLWAY__NODE__REGION"),
            ("SPILLWAY_REPLICA_0_URL", "SPILLWAY__REPLICA__0__URL"),
            ("SPILLWAY_TOKENFILE", "SPILLWAY_TOKEN_FILE"),
            ("SPILLWAY_CONFG", "SPILLWAY_CONFIG"),
        ] {
            assert_eq!(found(name, "x"), [Some(meant.to_owned())], "{name}");
        }
        assert_eq!(found("SPILLWAY_NODE_WHATEVER_ELSE", "x"), [None]);
    }

    #[test]
    fn variables_with_an_effect_and_those_of_others_are_not_told() {
        for (name, value) in [
            ("SPILLWAY_LOG", "info"),
            ("SPILLWAY__NODE__REGION", "eu"),
            ("SPILLWAY__NODE__NONSENSE", "is an error of the config itself"),
            ("SPILLWAY_VERSION", "0.1.0"),
            ("SPILLWAY_BIN", "/usr/bin/spillway"),
            ("SPILLWAY_PORT", "tcp://10.0.0.1:8080"),
            ("SPILLWAY_ADMIN_PORT", "tcp://10.0.0.1:9900"),
            ("SPILLWAY_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("SPILLWAY_SERVICE_HOST", "10.0.0.1"),
            ("SPILLWAY_EU_SERVICE_PORT_HTTP", "8080"),
            ("NODE_REGION", "eu"),
        ] {
            assert!(found(name, value).is_empty(), "{name}");
        }
    }
}
