//! Completions for shells: those of the command line, and names of regions, replicas and keys, for
//! which a script asks `spillway names`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Adds names to what the function of bash has found.
const BASH: &str = r#"
_spillway_named() {
    _spillway "$@"
    local kind word="${COMP_WORDS[COMP_CWORD]}"
    [[ "$word" == -* ]] && return 0
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
        "drain "* | "undrain "* | "weight "*) kind=targets ;;
        "regions set" | "regions get" | "regions remove") kind=regions ;;
        "keys set" | "keys revoke" | "keys remove") kind=keys ;;
        *) return 0 ;;
    esac
    COMPREPLY+=($(compgen -W "$(spillway names "$kind" 2> /dev/null)" -- "$word"))
}
complete -F _spillway_named -o bashdefault -o default spillway
"#;

/// Functions of zsh, which arguments of the script name.
const ZSH: &str = r#"
_spillway_targets() { compadd -- ${(f)"$(spillway names targets 2> /dev/null)"} }
_spillway_keys() { compadd -- ${(f)"$(spillway names keys 2> /dev/null)"} }
"#;

/// Completions of fish.
const FISH: &str = r#"
complete -c spillway -n "__fish_seen_subcommand_from drain undrain weight" -f -a "(spillway names targets 2> /dev/null)"
complete -c spillway -n "__fish_seen_subcommand_from keys; and __fish_seen_subcommand_from set revoke remove" -f -a "(spillway names keys 2> /dev/null)"
complete -c spillway -n "__fish_seen_subcommand_from regions; and __fish_seen_subcommand_from set get remove" -f -a "(spillway names regions 2> /dev/null)"
"#;

/// Returns the script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "spillway", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Fish => text + FISH,
        Shell::Zsh => with_functions(&text),
        _ => text,
    }
}

/// Has arguments of zsh's script call the functions. They stand before its last lines, which call the
/// script itself when it is loaded by need.
fn with_functions(text: &str) -> String {
    let line = |line: &str| {
        let function = match () {
            () if line.starts_with("':target -- ") => "_spillway_targets",
            () if line.starts_with("':key -- ") => "_spillway_keys",
            () => return line.to_owned(),
        };
        line.replace(":_default'", &format!(":{function}'"))
    };
    let text: Vec<String> = text.lines().map(line).collect();
    let text = text.join("\n") + "\n";
    match text.rfind("if [ \"$funcstack[1]\"") {
        Some(at) => format!("{}{ZSH}\n{}", &text[..at], &text[at..]),
        None => text + ZSH,
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
        assert_eq!(zsh.matches(":_spillway_targets'").count(), 3, "drain, undrain, weight");
        assert_eq!(zsh.matches(":_spillway_keys'").count(), 3, "set, revoke, remove");
    }
}
