//! Completions for shells: those of the command line, and names of records and replicas, for which a
//! script asks `spillway names`.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use spillway_node::Resource;

use crate::cli::Cli;
use crate::cluster::{OWN_REPLICAS, TARGETS};

/// Commands whose argument is a name, with the kind of names that `spillway names` lists for it.
const NAMED: [(&[&str], &str, &str); 18] = [
    (&["drain"], "target", TARGETS),
    (&["undrain"], "target", TARGETS),
    (&["weight"], "target", TARGETS),
    (&["replicas", "drain"], "name", OWN_REPLICAS),
    (&["replicas", "undrain"], "name", OWN_REPLICAS),
    (&["replicas", "load"], "name", OWN_REPLICAS),
    (&["keys", "revoke"], "key", "keys"),
    (&["limits", "set"], "name", "limits"),
    (&["splits", "set"], "name", "splits"),
    (&["splits", "rollout"], "name", "splits"),
    (&["splits", "promote"], "name", "splits"),
    (&["splits", "pause"], "name", "splits"),
    (&["splits", "resume"], "name", "splits"),
    (&["splits", "roll-back"], "name", "splits"),
    (&["splits", "restart"], "name", "splits"),
    (&["nodes", "operators"], "name", "nodes"),
    (&["nodes", "readmit"], "name", "removed-nodes"),
    (&["nodes", "trust-disk"], "name", "nodes"),
];

/// Commands that take a kind of record, and the name of one.
const OF_KINDS: [&str; 4] = ["get", "apply", "edit", "remove"];

/// Function of bash that adds names to the words that the generated function has found. `CASES`
/// maps a command to the kind of its names.
const BASH: &str = r#"
_spillway_named() {
    _spillway "$@"
    local kind word="${COMP_WORDS[COMP_CWORD]}"
    [[ "$word" == -* ]] && return 0
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
CASES        *) return 0 ;;
    esac
    COMPREPLY+=($(compgen -W "$(spillway names "$kind" 2> /dev/null)" -- "$word"))
}
complete -F _spillway_named -o bashdefault -o default spillway
"#;

/// Returns the script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => generated(shell, Cli::command()) + &BASH.replace("CASES", &bash_cases()),
        Shell::Fish => generated(shell, Cli::command()) + &fish_lines(),
        Shell::Zsh => zsh(),
        _ => generated(shell, Cli::command()),
    }
}

fn generated(shell: Shell, mut command: Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "spillway", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn bash_cases() -> String {
    let case = |(path, _, kind): (&[&str], &str, &str)| {
        // After a command of one word, the second word is an option or the name itself.
        let pattern = match path {
            [command] => format!("\"{command} \"*"),
            path => format!("\"{}\"", path.join(" ")),
        };
        format!("        {pattern}) kind={kind} ;;\n")
    };
    // The third word is the kind, and the fourth a name.
    let of_kind = |command| {
        format!(
            "        \"{command} \"*) ((COMP_CWORD == 3)) || return 0; kind=\"${{COMP_WORDS[2]}}\" ;;\n"
        )
    };
    NAMED.map(case).concat() + &OF_KINDS.map(of_kind).concat()
}

fn fish_lines() -> String {
    let line = |(path, _, kind): (&[&str], &str, &str)| {
        let seen: Vec<String> =
            std::iter::once(format!("__fish_spillway_using_subcommand {}", path[0]))
                .chain(path[1..].iter().map(|word| format!("__fish_seen_subcommand_from {word}")))
                .collect();
        let condition = seen.join("; and ");
        format!(
            "complete -c spillway -n \"{condition}\" -f -a \"(spillway names {kind} 2> /dev/null)\"\n"
        )
    };
    let kinds: Vec<&str> = Resource::ALL.iter().map(|kind| kind.name()).collect();
    let kinds = kinds.join(" ");
    let of_kind = |command| {
        let at = |words: usize| {
            format!(
                "complete -c spillway -n \"__fish_spillway_using_subcommand {command}; and test \
                 (count (commandline -opc)) -eq {words}\" -f -a"
            )
        };
        let names = "(spillway names (commandline -opc)[3] 2> /dev/null)";
        format!("{} \"{kinds}\"\n{} \"{names}\"\n", at(2), at(3))
    };
    NAMED.map(line).concat() + &OF_KINDS.map(of_kind).concat()
}

/// Returns the script for zsh, whose arguments call functions that list names. The functions come
/// before the script's last lines, which call the script itself when it is loaded on demand.
fn zsh() -> String {
    let command = NAMED.iter().fold(Cli::command(), |command, (path, argument, kind)| {
        marked(command, path, argument, kind)
    });
    let command = OF_KINDS
        .iter()
        .fold(command, |command, name| marked(command, &[name], "name", OF_GIVEN_KIND));
    let text: Vec<String> = generated(Shell::Zsh, command).lines().map(with_function).collect();
    let text = text.join("\n") + "\n";
    let kinds: BTreeSet<&str> = NAMED.iter().map(|(_, _, kind)| *kind).collect();
    let functions = kinds.iter().map(|kind| zsh_function(kind, kind));
    // The words are the command, the kind and the name.
    let functions = functions.chain([zsh_function(OF_GIVEN_KIND, "\"$words[2]\"")]);
    let functions: String = functions.collect();
    match text.rfind("if [ \"$funcstack[1]\"") {
        Some(at) => format!("{}{functions}\n{}", &text[..at], &text[at..]),
        None => text + &functions,
    }
}

/// Name of the function that lists names of the kind that the command line has.
const OF_GIVEN_KIND: &str = "of_kind";

fn zsh_function(name: &str, kind: &str) -> String {
    format!(
        "_spillway_{name}() {{ compadd -- ${{(f)\"$(spillway names {kind} 2> /dev/null)\"}} }}\n"
    )
}

/// Sign around a kind of names at the start of an argument's help: of those that no text uses.
const MARK: char = '\u{e000}';

/// Marks an argument of a command with the kind of its names.
fn marked(command: Command, path: &[&'static str], argument: &str, kind: &str) -> Command {
    match path {
        // `mut_arg` would move the argument after the others.
        [] => command.mut_args(|it| {
            if it.get_id() != argument {
                return it;
            }
            let help = it.get_help().map(ToString::to_string).unwrap_or_default();
            it.help(format!("{MARK}{kind}{MARK}{help}"))
        }),
        [name, rest @ ..] => {
            command.mut_subcommand(name, |inner| marked(inner, rest, argument, kind))
        }
    }
}

/// Has a marked argument call the function of its kind, and removes the mark.
fn with_function(line: &str) -> String {
    let mut parts = line.split(MARK);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(kind), Some(after)) => {
            let after = after.replace(":_default'", &format!(":_spillway_{kind}'"));
            format!("{before}{after}")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_ask_for_names_where_names_are_arguments() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = script(shell);
            assert!(script.contains("spillway names"), "{shell}");
        }
        let zsh = script(Shell::Zsh);
        assert!(!zsh.contains(MARK), "{zsh}");
        for (_, _, kind) in NAMED {
            let count = NAMED.iter().filter(|named| named.2 == kind).count();
            assert_eq!(zsh.matches(&format!(":_spillway_{kind}'")).count(), count, "{kind}");
        }
    }
}
