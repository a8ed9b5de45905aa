//! Help in groups, completions, manual pages and the pages of the reference.

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, CommandFactory, FromArgMatches};
use spillway_docs::Page;
use spillway_node::Resource;

use crate::access_log_page::access_log_reference;
use crate::cli::{Cli, CompletionsArgs, ManArgs, ReferencePage};
use crate::connect::Connect;
use crate::errors_page::error_reference;
use crate::groups::{GROUPS, page_of};
use crate::removed::successor;
use crate::{completion, output, screen};

/// Characters before the description of a command.
const INDENT: usize = 20;
/// Characters of a line of help that goes to no terminal.
const PLAIN_WIDTH: usize = 100;
/// The heading of the page of all commands, and what holds for all of them.
const PAGE: &str = "# Commands\n\n\
    This page lists all commands of `spillway` with their arguments and options. `spillway reference` \
    generates it from the\ncommand line. `--help` after a command shows the same with examples. \
    `spillway completions` and `spillway man` \
    generate\nshell completions and manual pages.\n\n\
    | exit code | meaning |\n|--:|---|\n\
    | 0 | success; for `status` and `health`: healthy |\n\
    | 1 | failed, or refused by a node; for `status` and `health`: not healthy |\n\
    | 2 | wrong usage: an unknown command, option or value |\n\
    | 64 | invalid config, or an invalid file that it names; retrying does not help |\n\n\
    With `--json` the result goes to standard output as JSON, even if the exit code is not 0. Notes \
    and errors go to\nstandard error.\n\n\
    ## Connection\n\n\
    Commands with the mark † send requests to a node. They take these options:\n";

/// Reads the command line. Ends the process for wrong usage, help and version.
pub(crate) fn parse() -> Cli {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os()).unwrap_or_else(|error| {
        let words: Vec<String> =
            std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
        match successor(&command, &words).filter(|_| error.use_stderr()) {
            Some(successor) => {
                let message = format!("there is no such command: use `spillway {successor}`");
                command.error(ErrorKind::InvalidSubcommand, message).exit()
            }
            None => error.exit(),
        }
    });
    // Both come from the same definitions.
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the command line, with the commands in groups.
pub(crate) fn command() -> Command {
    let command = documented();
    let width = match screen::width() {
        usize::MAX => PLAIN_WIDTH,
        width => width,
    };
    let groups = groups(&command, width);
    command.help_template(format!(
        "{{about}}\n\nUsage: spillway [OPTIONS] COMMAND\n\n{groups}\nOptions:\n{{options}}\n\n\
         {{after-help}}\n"
    ))
}

/// Returns the command line, whose commands name their pages of the docs.
fn documented() -> Command {
    let mut command = Cli::command();
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        if let Some(page) = page_of(&name) {
            command = command.mut_subcommand(name, |it| with_page(it, page));
        }
    }
    with_own_page(command, Page::INDEX)
}

/// Names the page in the help of a command and of its subcommands.
fn with_page(mut command: Command, page: Page) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |it| with_page(it, page));
    }
    with_own_page(command, page)
}

fn with_own_page(command: Command, page: Page) -> Command {
    let examples = command.get_after_help().map(|it| format!("{it}\n\n")).unwrap_or_default();
    let address = page.address();
    command.after_help(format!("{examples}Docs: {page}, on a node's admin listener {address}"))
}

/// Formats the groups with their commands.
fn groups(command: &Command, width: usize) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for (name, _) in *names {
            let about = match *name {
                // Made by clap, when it parses.
                "help" => "Shows help for a command.".to_owned(),
                name => about(command.find_subcommand(name)),
            };
            text.push_str(&entry(name, &about, width));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn about(command: Option<&Command>) -> String {
    let about = command.and_then(Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}

/// Formats one command: its name, followed by its description in lines of that width.
fn entry(name: &str, about: &str, width: usize) -> String {
    let lines = screen::wrapped(about, width.saturating_sub(INDENT));
    let begin = format!("  {name}");
    let mut text = format!("{begin:<INDENT$}{}\n", lines[0]);
    for line in &lines[1..] {
        text.push_str(&format!("{:INDENT$}{line}\n", ""));
    }
    text
}

/// Prints completions for a shell.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    Ok(output::line(completion::script(args.shell).trim_end())?)
}

/// Writes a manual page for each command into a folder.
///
/// # Errors
/// Returns an error if a page can't be written.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("the folder {} can't be made", folder.display()))?;
    clap_mangen::generate_to(documented(), folder)
        .with_context(|| format!("manual pages can't be written into {}", folder.display()))?;
    Ok(output::line(&format!("manual pages are in {}", folder.display()))?)
}

/// Prints a page of the reference.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(crate) fn reference(page: ReferencePage) -> Result<()> {
    let text = match page {
        ReferencePage::Commands => commands(),
        ReferencePage::Metrics => spillway_telemetry::reference(),
        ReferencePage::Errors => error_reference(),
        ReferencePage::AccessLog => access_log_reference(),
        ReferencePage::Dashboard => serde_json::to_string_pretty(&spillway_telemetry::dashboard())?,
    };
    Ok(output::line(text.trim_end())?)
}

/// Returns the page of all commands. What many commands share is described once.
fn commands() -> String {
    let mut command = Cli::command();
    // Fills in names and global options.
    command.build();
    let mut text = PAGE.to_owned();
    table(&mut text, Connect::augment_args(Command::new("")).get_arguments());
    for (group, names) in GROUPS {
        let known = names.iter().filter_map(|(name, _)| command.find_subcommand(name));
        let known: Vec<&Command> = known.filter(|command| command.get_name() != "help").collect();
        // A write to a string never fails.
        let _: std::fmt::Result = write!(text, "\n## {group}\n");
        known.into_iter().for_each(|command| section(&mut text, command, "spillway"));
    }
    kinds(&mut text);
    text
}

/// Adds the kinds of records, and the fields of those that commands write.
fn kinds(text: &mut String) {
    text.push_str("\n## Kinds of records\n\n| `KIND` | records |\n|---|---|\n");
    for kind in Resource::ALL {
        let (name, one, about) = (kind.name(), kind.singular(), kind.about());
        text.push_str(&format!("| `{name}`, `{one}` | {} |\n", about.trim_end_matches('.')));
    }
    text.push_str("\n| kind | field | meaning |\n|---|---|---|\n");
    for kind in Resource::ALL {
        for field in kind.fields() {
            let about = field.about.trim_end_matches('.').replace('|', "\\|");
            text.push_str(&format!("| `{}` | `{}` | {about} |\n", kind.singular(), field.name));
        }
    }
}

fn section(text: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let is_at_node = is_at_node(command);
    let shown = |arg: &&Arg| {
        let is_shared = is_everywhere(arg) || is_at_node && is_of_connection(arg);
        !arg.is_hide_set() && !is_shared
    };
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    // As in the help: the command's own first.
    arguments.sort_by_key(|argument| argument.get_help_heading().is_some());
    let about = about(Some(command));
    let mark = if is_at_node { " [†](#connection)" } else { "" };
    let _: std::fmt::Result = write!(text, "\n### `{name}`\n\n{about}{mark}\n");
    if !arguments.is_empty() {
        table(text, arguments);
    }
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            section(text, subcommand, &name);
        }
    }
}

/// Adds a table of arguments.
fn table<'a>(text: &mut String, arguments: impl IntoIterator<Item = &'a Arg>) {
    text.push_str("\n| argument | meaning |\n|---|---|\n");
    for argument in arguments {
        text.push_str(&format!("| {} | {} |\n", spelling(argument), meaning(argument)));
    }
}

/// Returns true for commands that take the options of a connection to a node.
fn is_at_node(command: &Command) -> bool {
    let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    has("admin") && has("token_file") && has("json")
}

/// Returns true for the options of a connection to a node.
fn is_of_connection(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "admin" | "ca" | "token_file" | "json")
}

/// Returns true for options that every command has.
fn is_everywhere(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version" | "log" | "log_json")
}

fn spelling(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    let takes_value = argument.get_action().takes_values();
    let value = value.filter(|_| takes_value);
    match (argument.get_long(), argument.get_short(), value) {
        (Some(long), Some(short), Some(value)) => format!("`--{long}`, `-{short} {value}`"),
        (Some(long), None, Some(value)) => format!("`--{long} {value}`"),
        (Some(long), _, None) => format!("`--{long}`"),
        (None, _, Some(value)) => format!("`{value}`"),
        (None, _, None) => format!("`{}`", argument.get_id()),
    }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let mut text = help.trim_end_matches('.').replace('|', "\\|").replace('\n', " ");
    let defaults = argument.get_default_values().iter().filter_map(|value| value.to_str());
    let defaults: Vec<&str> = defaults.collect();
    let takes_value = argument.get_action().takes_values();
    if takes_value && !defaults.is_empty() {
        text.push_str(&format!("; default `{}`", defaults.join(", ")));
    }
    let values = argument.get_possible_values();
    let is_kind = argument.get_id() == "kind";
    if takes_value && is_kind {
        text.push_str("; one of the [kinds](#kinds-of-records)");
    } else if takes_value && !values.is_empty() {
        let names: Vec<String> = values.iter().map(|it| format!("`{}`", it.get_name())).collect();
        text.push_str(&format!("; one of {}", names.join(", ")));
    }
    if let Some(variable) = argument.get_env().and_then(|name| name.to_str()) {
        text.push_str(&format!("; also by `{variable}`"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let names = GROUPS.iter().flat_map(|(_, names)| *names);
        let mut grouped: Vec<&str> = names.map(|(name, _)| *name).collect();
        let mut known: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_page_of_commands_is_what_the_command_line_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(written.trim_end() == commands().trim_end(), "{remedy}");
    }

    #[test]
    fn the_help_of_every_command_names_a_page_of_the_docs() {
        fn check(command: &Command) {
            if command.is_hide_set() {
                return;
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            assert!(after.contains("Docs: docs/"), "{name}");
            command.get_subcommands().for_each(check);
        }
        check(&documented());
    }

    #[test]
    fn a_long_sentence_wraps_behind_the_name() {
        let text = entry("run", "Runs a gateway node until it is told to stop.", 50);
        assert_eq!(
            text,
            "  run               Runs a gateway node until it\n                    is told to stop.\n"
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
